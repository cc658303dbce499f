"""What looks at the devices while a payload works: for others on them, and for their wear.

Faults of both are made up here: somebody on the GPU, or a GPU that is worn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _telemetry.fake import XID, Fake
from _telemetry.health import Health
from _telemetry.sharing import Watch
from contract.catalogue import OF_WEAR
from contract.nvidia import open_source

if TYPE_CHECKING:
    from .inject import Faults
    from .main import Session


def observers(session: Session, chosen: list[str]) -> tuple[Watch, Health]:
    """Make what watches these devices; each looks at nothing where no driver tells of them."""
    uuids = {
        f"cuda:{each['index']}": str(each["uuid"] or each["index"])
        for each in session.report.devices
        if f"cuda:{each['index']}" in chosen
    }
    source = open_source(list(uuids.values())) if uuids else None
    watch, health = Watch(source, uuids, session.ranks.local_world), Health(source, uuids)
    labels = dict(zip(chosen, chosen, strict=True))
    others, worn = _others(session.faults), _worn(session.faults)
    if others:
        watch = Watch(Fake(chosen, others), labels)
    if worn:
        health = Health(Fake(chosen, worn), labels)
    return watch, health


def _others(faults: Faults) -> dict[str, float]:
    busy, held = faults.get("busy"), faults.get("held")
    if not busy and not held:
        return {}
    return {"held": held.number("mib", 8000) if held else 0.0} | ({"busy": 1.0} if busy else {})


def _worn(faults: Faults) -> dict[str, float]:
    named = {name: faults.get(name) for name in OF_WEAR}
    return {name: fault.number("value", XID) for name, fault in named.items() if fault}
