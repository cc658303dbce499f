"""Nodes that plans avoid for some days, with why and until when: one JSON file for each cluster.

`rv accept` writes the file, every launch reads it, and neither knows more of the other. It lies on
this machine and is replaced whole, by one process at a time; it also has when nodes were said to be
repaired. Times are seconds since the epoch by this machine's clock; no entry counts for longer than
`MOST_DAYS` from now, whatever a clock that was ahead wrote.
"""

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rv.bundle import acceptance_file
from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.slurm.printable import printable

DAYS: Final = 7
MOST_DAYS: Final = 90
DAY_S: Final = 86400.0
_MOST_EVIDENCE: Final = 20
_LOCK_S: Final = 20.0
ON_PURPOSE: Final = " (made on purpose: --inject)"
"""How evidence ends that was found in a run with an injected fault."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedTest:
    """What has to pass before its node is good again, on the GPUs of these UUIDs.

    `test` is "" where that is the whole payload: where it is not known, or a pass never names it.
    `is_of_speed` says that it was slow, and not wrong.
    """

    payload: str
    test: str = ""
    uuids: tuple[str, ...] = ()
    is_of_speed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class AvoidedNode:
    """A node that failed; `run` names the acceptance run, `uuids` its bad GPUs.

    `since` is when the newest job that failed on it began, and `over_at` when the last of them was
    known to be over, 0 in entries of an older rv, which have no `failed` either. `was_quick` says
    that quick runs of payloads found it, so that a quick one can find whether it is still there.
    `is_injected`: all that was found there was made on purpose (`--inject`).
    """

    node: str
    since: float
    until: float
    run: str
    evidence: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    failed: tuple[FailedTest, ...] = ()
    over_at: float = 0.0
    was_quick: bool = False
    is_injected: bool = False

    @property
    def accusers(self) -> tuple[FailedTest, ...]:
        """All that has to pass; where only sentences tell what failed, the payloads in them."""
        if self.failed:
            return self.failed
        payloads = dict.fromkeys(line.partition(" ")[0] for line in self.evidence)
        return tuple(FailedTest(payload=payload, uuids=self.uuids) for payload in payloads)

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


def update(
    cluster: str, bad: Sequence[AvoidedNode], good: Collection[AvoidedNode], now_s: float
) -> None:
    """Add the nodes that failed, to what is known of them, and remove those that are good again.

    An entry of `good` that another process has changed since it was loaded stays, and a failure of
    before a repair is not added. Raises `RvError(STAGE)` where this machine's disk does not take
    the file.
    """
    with _locked(cluster):
        known = load(cluster, now_s)
        entries = {entry.node: entry for entry in known if entry not in good}
        repaired = repairs(cluster, now_s)
        for entry in bad:
            if entry.node not in repaired or entry.since > repaired[entry.node]:
                entries[entry.node] = _merged(entry, entries.get(entry.node, entry))
        _write(cluster, entries.values(), repaired)


def forget(cluster: str, nodes: Iterable[str], now_s: float) -> None:
    """Avoid nodes no longer, nor for what jobs find that began before now.

    Raises `RvError(STAGE)` where this machine's disk does not take the file.
    """
    names = dict.fromkeys(nodes, now_s)
    with _locked(cluster):
        entries = [entry for entry in load(cluster, now_s) if entry.node not in names]
        _write(cluster, entries, {**repairs(cluster, now_s), **names})


@contextmanager
def _locked(cluster: str) -> Iterator[None]:
    """Be the only one that changes a cluster's file; who reads needs no lock.

    Raises `RvError(STAGE)` where its folder cannot be made, or another process keeps it.
    """
    from rv.files import locked  # who plans only reads

    path = acceptance_file("avoid", cluster, ".lock")
    try:
        with locked(path, _LOCK_S):
            yield
    except TimeoutError as error:
        problem = "cannot remember bad nodes: another rv has their file open"
        raise RvError(ErrorKind.STAGE, f"{problem}, on {path}", hint="again") from error
    except OSError as error:
        raise _not_kept(error, path) from error


def _not_kept(error: OSError, path: Path) -> RvError:
    why = error.strerror or str(error)
    return RvError(ErrorKind.STAGE, f"cannot remember bad nodes: {why}, on {path}")


def _merged(new: AvoidedNode, old: AvoidedNode) -> AvoidedNode:
    """Add to what is known of a node: a pass has to answer all of it."""
    newest = max(new, old, key=lambda entry: entry.since)
    over_at = max(new.over_at, old.over_at)
    return replace(
        newest,
        until=max(new.until, old.until),
        evidence=_cut(dict.fromkeys((*new.evidence, *old.evidence))),
        uuids=tuple(dict.fromkeys((*new.uuids, *old.uuids))),
        failed=tuple(dict.fromkeys((*new.accusers, *old.accusers))),
        over_at=max(over_at, newest.since) if over_at else 0.0,
        was_quick=new.was_quick and old.was_quick,
        is_injected=new.is_injected and old.is_injected,
    )


def _cut(evidence: Iterable[str]) -> tuple[str, ...]:
    """Keep so much evidence, and the first of each payload: an older rv knows no more of it."""
    lines = tuple(evidence)
    firsts = {line.partition(" ")[0]: line for line in reversed(lines)}.values()
    others = [line for line in lines if line not in firsts]
    kept = {*firsts, *others[: max(0, _MOST_EVIDENCE - len(firsts))]}
    return tuple(line for line in lines if line in kept)


def require_readable(cluster: str) -> None:
    """Raise `RvError(CONFIG)` for a file that is not as rv writes it, whose nodes nobody avoids."""
    path = acceptance_file("avoid", cluster, ".json")
    if path.exists() and not _document(cluster):
        problem = f"{path} cannot be read: no node is avoided for what it said"
        raise RvError(ErrorKind.CONFIG, problem, hint="mend it, or move it away")


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
        if path.exists() and not _document(cluster):
            path.rename(path.with_suffix(".broken"))  # it may be mended: nothing of it is lost
        write_atomically(path, json.dumps(document, indent=1))
    except OSError as error:
        raise _not_kept(error, path) from error


def _read_entry(item: Any, now_s: float) -> AvoidedNode | None:
    """Read one entry of the file; None for what is none."""
    try:
        until = float(item["until"])
        entry = AvoidedNode(
            node=printable(item["node"]),
            since=_past(item.get("since", 0.0), now_s),
            until=min(until, now_s + MOST_DAYS * DAY_S),
            run=printable(item.get("run", "")),
            evidence=_texts(item.get("evidence", ())),
            uuids=_texts(item.get("uuids", ())),
            failed=tuple(map(_read_failed, item.get("failed", ()))),
            over_at=_past(item.get("over_at", 0.0), now_s),
            was_quick=item.get("was_quick") is True,
            is_injected=item.get("is_injected") is True,
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return None
    return entry if entry.node and math.isfinite(entry.until) else None


def _read_failed(item: Any) -> FailedTest:
    return FailedTest(
        payload=printable(item["payload"]),
        test=printable(item["test"]),
        uuids=_texts(item["uuids"]),
        is_of_speed=item.get("is_of_speed") is True,
    )


def _texts(items: Iterable[Any]) -> tuple[str, ...]:
    return tuple(map(printable, items))


def _past(time: Any, now_s: float) -> float:
    """Read a time that is over: a clock that was ahead does not count."""
    seconds = float(time)
    return min(max(seconds, 0.0), now_s) if math.isfinite(seconds) else 0.0
