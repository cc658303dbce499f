"""Nodes that plans avoid for some days, with why and until when: one JSON file for each cluster.

`rv accept` writes the file, every launch reads it, and neither knows more of the other. It lies on
this machine and is replaced whole; it also has when nodes were said to be repaired. Times are
seconds since the epoch by this machine's clock; no entry counts for longer than `MOST_DAYS` from
now, whatever a clock that was ahead wrote.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, Final

from rv.bundle import acceptance_file
from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.slurm.printable import printable

DAYS: Final = 7
MOST_DAYS: Final = 90
DAY_S: Final = 86400.0
_MOST_EVIDENCE: Final = 20
ON_PURPOSE: Final = " (made on purpose: --inject)"
"""How evidence ends that was found in a run with an injected fault."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AvoidedNode:
    """A node that failed; `run` names the acceptance run, `uuids` its bad GPUs.

    `since` is when the newest job that failed on it began; `was_quick` says that quick runs of
    payloads found it, so that a quick one can find whether it is still there. `is_injected`: all
    that was found there was made on purpose (`--inject`).
    """

    node: str
    since: float
    until: float
    run: str
    evidence: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    was_quick: bool = False
    is_injected: bool = False

    @property
    def reason(self) -> str:
        """Say in a sentence why no job is sent to the node."""
        day = f"{datetime.fromtimestamp(self.until, tz=UTC):%Y-%m-%d}"
        real = [line for line in self.evidence if not line.endswith(ON_PURPOSE)]
        what = next(iter([*real, *self.evidence]), "acceptance failed")
        return f"failed acceptance ({what}); avoided until {day}, --no-avoid asks for it"


def reasons(cluster: str, now_s: float) -> Mapping[str, str]:
    """Give the planner each avoided node of a cluster with its reason."""
    return {entry.node: entry.reason for entry in load(cluster, now_s)}


def load(cluster: str, now_s: float) -> tuple[AvoidedNode, ...]:
    """Read the nodes of a cluster that are avoided now; a file that cannot be read avoids none."""
    items = _document(cluster).get("nodes")
    entries = [_read_entry(item, now_s) for item in (items if isinstance(items, list) else [])]
    return tuple(entry for entry in entries if entry and entry.until > now_s)


def repairs(cluster: str, now_s: float) -> Mapping[str, float]:
    """Say when nodes were last said to be good: what failed before that tells nothing of them."""
    found = _document(cluster).get("repaired")
    times = found.items() if isinstance(found, dict) else ()
    return {
        printable(node): min(time, now_s)
        for node, time in times
        if isinstance(time, float) and math.isfinite(time)
    }


def update(cluster: str, bad: Sequence[AvoidedNode], good: frozenset[str], now_s: float) -> None:
    """Add the nodes that failed, to what is known of them, and remove those that are good again.

    Raises `RvError(STAGE)` where this machine's disk does not take the file.
    """
    entries = {entry.node: entry for entry in load(cluster, now_s) if entry.node not in good}
    for entry in bad:
        entries[entry.node] = _merged(entry, entries.get(entry.node, entry))
    _write(cluster, entries.values(), repairs(cluster, now_s))


def forget(cluster: str, nodes: Iterable[str], now_s: float) -> None:
    """Avoid nodes no longer, nor for what jobs find that began before now.

    Raises `RvError(STAGE)` where this machine's disk does not take the file.
    """
    names = dict.fromkeys(nodes, now_s)
    entries = [entry for entry in load(cluster, now_s) if entry.node not in names]
    _write(cluster, entries, {**repairs(cluster, now_s), **names})


def _merged(new: AvoidedNode, old: AvoidedNode) -> AvoidedNode:
    """Add to what is known of a node: a pass has to answer all of it."""
    newest = max(new, old, key=lambda entry: entry.since)
    return replace(
        newest,
        until=max(new.until, old.until),
        evidence=_cut(dict.fromkeys((*new.evidence, *old.evidence))),
        uuids=tuple(dict.fromkeys((*new.uuids, *old.uuids))),
        was_quick=new.was_quick and old.was_quick,
        is_injected=new.is_injected and old.is_injected,
    )


def _cut(evidence: Iterable[str]) -> tuple[str, ...]:
    """Keep so much evidence, and the first of each payload: it alone can clear the node."""
    lines = tuple(evidence)
    firsts = {line.partition(" ")[0]: line for line in reversed(lines)}.values()
    others = [line for line in lines if line not in firsts]
    kept = {*firsts, *others[: max(0, _MOST_EVIDENCE - len(firsts))]}
    return tuple(line for line in lines if line in kept)


def _document(cluster: str) -> Mapping[str, Any]:
    try:
        document = json.loads(acceptance_file("avoid", cluster, ".json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _write(cluster: str, entries: Iterable[AvoidedNode], repaired: Mapping[str, float]) -> None:
    from rv.files import write_atomically  # who plans only reads

    document = {"nodes": list(map(asdict, entries)), "repaired": repaired}
    path = acceptance_file("avoid", cluster, ".json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(document, indent=1))
    except OSError as error:
        why = error.strerror or str(error)
        raise RvError(ErrorKind.STAGE, f"cannot remember bad nodes: {why}, on {path}") from error


def _read_entry(item: Any, now_s: float) -> AvoidedNode | None:
    """Read one entry of the file; None for what is none."""
    try:
        since, until = float(item.get("since", 0.0)), float(item["until"])
        entry = AvoidedNode(
            node=printable(item["node"]),
            since=min(max(since, 0.0), now_s) if math.isfinite(since) else 0.0,
            until=min(until, now_s + MOST_DAYS * DAY_S),
            run=printable(item.get("run", "")),
            evidence=tuple(printable(line) for line in item.get("evidence", ())),
            uuids=tuple(printable(uuid) for uuid in item.get("uuids", ())),
            was_quick=item.get("was_quick") is True,
            is_injected=item.get("is_injected") is True,
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return None
    return entry if entry.node and math.isfinite(entry.until) else None
