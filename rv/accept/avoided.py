"""Nodes that failed acceptance: remembered for some days for each cluster.

One JSON file a cluster, on this machine, replaced whole. Times are this machine's own: a node whose
clock is ahead is not avoided for longer, and one entry never for longer than `MOST_DAYS` from now.
Every launch reads this: it imports little.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rv.accept.fields import list_of, number_of, object_of, text_of
from rv.accept.folders import cluster_file
from rv.errors import ErrorKind, RvError
from rv.files import write_atomically

DAYS: Final = 7
MOST_DAYS: Final = 90
DAY_S: Final = 86400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class BadNode:
    """A node that failed, on what evidence; `since` and `until` are seconds since the epoch."""

    node: str
    since: float
    until: float
    run: str
    evidence: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Why nothing is sent there, in a sentence."""
        day = f"{datetime.fromtimestamp(self.until, tz=UTC):%Y-%m-%d}"
        what = self.evidence[0] if self.evidence else "acceptance failed"
        return f"failed acceptance ({what}); avoided until {day}, --no-avoid asks for it"


def load(cluster: str, now: float) -> tuple[BadNode, ...]:
    """The nodes of a cluster that are avoided now; a file that cannot be read avoids none."""
    try:
        document = json.loads(_file(cluster).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return ()
    entries = [_entry(item, now) for item in list_of(object_of(document).get("nodes"))]
    return tuple(entry for entry in entries if entry and entry.until > now)


def update(cluster: str, bad: Sequence[BadNode], good: frozenset[str], now: float) -> None:
    """Remember nodes that failed and forget those that are good again.

    Raises `RvError(STAGE)` where this machine's disk does not take it.
    """
    kept = {entry.node: entry for entry in load(cluster, now) if entry.node not in good}
    kept |= {entry.node: entry for entry in bad}
    path = _file(cluster)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"nodes": [_plain(e) for e in kept.values()]}, indent=1))
    except OSError as error:
        why = error.strerror or str(error)
        raise RvError(ErrorKind.STAGE, f"cannot remember bad nodes: {why}, on {path}") from error


def reasons(cluster: str, now: float) -> Mapping[str, str]:
    """What the planner is told: each avoided node with its reason."""
    return {entry.node: entry.reason for entry in load(cluster, now)}


def _file(cluster: str) -> Path:
    return cluster_file("avoid", cluster, ".json")


def _plain(entry: BadNode) -> dict[str, object]:
    return {
        "node": entry.node,
        "since": entry.since,
        "until": entry.until,
        "run": entry.run,
        "evidence": list(entry.evidence[:20]),
        "uuids": list(entry.uuids),
    }


def _entry(item: object, now: float) -> BadNode | None:
    fields = object_of(item)
    node, until = text_of(fields.get("node")), number_of(fields.get("until"))
    if not node or until is None:
        return None
    return BadNode(
        node=node,
        since=number_of(fields.get("since")) or 0.0,
        until=min(until, now + MOST_DAYS * DAY_S),
        run=text_of(fields.get("run")),
        evidence=tuple(text_of(line) for line in list_of(fields.get("evidence"))),
        uuids=tuple(text_of(uuid) for uuid in list_of(fields.get("uuids"))),
    )
