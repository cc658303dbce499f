"""The wear of this job's GPUs, read before and after the work; see `wear` for what is judged."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from contract.readings import NOTHING, Counters, tells
from contract.xids import SwitchXid, Xid, judge_switches, worst_of_each

from . import wear
from .kernel_log import KernelLog
from .wear import Wear

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract.readings import Source

    from .wear import Finding

Event = TypeVar("Event", Xid, SwitchXid)


class Health:
    """Reads a source once before and once after; GPUs are named by their labels."""

    def __init__(self, source: Source | None, uuids: dict[str, str]) -> None:
        self.source, self._uuids = source, uuids
        self._log, self._xids_from = KernelLog(), []  # type: KernelLog, list[str]
        self._began_s: float | None = None
        self._before: dict[str, Counters] = {}
        self.wear: dict[str, Wear] = {}
        self._switches: list[SwitchXid] = []

    def start(self) -> None:
        """Read the counters, and note which Xids are old."""
        if self.source is None:
            return
        self._before = self.source.counters()
        if self.source.xids() is not None:
            self._xids_from.append(self.source.name)
        if self.source.name != "fake":
            self._log.start()
            self._xids_from += [self._log.source] if self._log.source else []
        self._began_s = time.monotonic()

    def stop(self) -> None:
        """Read the counters again, and the Xids that came since."""
        if self.source is None or self._began_s is None:
            return
        seconds = time.monotonic() - self._began_s
        after, told = self._after(), self.source.xids() or {}
        logged = self._log.new()
        self._switches = _of_kind(SwitchXid, [*told.get("", []), *logged])
        for label, uuid in self._uuids.items():
            now, before = after.get(uuid, NOTHING), self._before.get(uuid, NOTHING)
            own = [xid for xid in _of_kind(Xid, logged) if xid.bus in (before.bus, now.bus)]
            both = [*_of_kind(Xid, told.get(uuid, [])), *own]
            links = _most_links(now.model, after)
            self.wear[label] = Wear(before, now, seconds, worst_of_each(both), links)

    def _after(self) -> dict[str, Counters]:
        """Read the counters, and say of a GPU that tells nothing any more whether it is lost.

        One that the driver still knows has only hidden its figures.
        """
        assert self.source is not None
        after = self.source.counters()
        buses = {
            uuid: before.bus
            for uuid, before in self._before.items()
            if tells(before) and not tells(after.get(uuid, NOTHING))
        }
        lost = self.source.lost(buses) if buses else {}
        return after | {uuid: Counters(repair=said) for uuid, said in lost.items()}

    def of_switches(self) -> list[Finding]:
        """Judge what the NVSwitches of this node told of in the run."""
        return judge_switches(self._switches)

    def findings(self, label: str) -> list[Finding]:
        """Judge one GPU's wear."""
        return wear.findings(self.wear[label])

    def details(self, label: str) -> dict[str, Any]:
        """Return what was read of a GPU, and by which means Xids were looked for."""
        assert self.source is not None
        facts = wear.details(self.wear[label])
        return {**facts, "source": self.source.name, "xids_from": self._xids_from}


def _of_kind(kind: type[Event], events: Iterable[object]) -> list[Event]:
    return [each for each in events if isinstance(each, kind)]


def _most_links(model: str, counters: dict[str, Counters]) -> int:
    """Return the most NVLinks that are up on one GPU of a model."""
    return max((each.links.up or 0 for each in counters.values() if each.model == model), default=0)
