"""Nodes that plans avoid for some days, with why and until when: one JSON file for each cluster.

`rv accept` writes the file, every launch reads it, and neither knows more of the other. It lies on
this machine and is replaced whole, by one process at a time; it also has when nodes were said to be
repaired. Times are seconds since the epoch by this machine's clock; no entry counts for longer than
`MOST_DAYS` from now, whatever a clock that was ahead wrote.

A file that has anything that rv does not write cannot be read: what is sound in it still counts,
and the next write keeps it beside the new one, as `.broken`. Fields that an older rv did not write
may be absent, and those that only a newer one knows are no fault.
"""

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field, replace
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
_MOST_BYTES: Final = 64 * 1024**2
_LOCK_S: Final = 20.0
_MOST_TOLD: Final = 3
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Memory:
    """What is sound in a file, and what is wrong in it."""

    entries: Sequence[AvoidedNode] = ()
    repaired: Mapping[str, float] = field(default_factory=dict)
    problems: Sequence[str] = ()


def load(cluster: str, now_s: float) -> tuple[AvoidedNode, ...]:
    """Read the nodes of a cluster that are avoided now; entries that cannot be read avoid none."""
    entries = (_as_of(entry, now_s) for entry in _read(cluster).entries)
    return tuple(entry for entry in entries if entry.until > now_s)


def repairs(cluster: str, now_s: float) -> Mapping[str, float]:
    """Say when nodes were last said to be good: what failed before that tells nothing of them."""
    return {node: min(time, now_s) for node, time in _read(cluster).repaired.items()}


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


def problem_of(cluster: str) -> str:
    """Say what is wrong in a file that is not as rv writes it; "" for a sound one, or none."""
    problems = _read(cluster).problems
    if not problems:
        return ""
    path = acceptance_file("avoid", cluster, ".json")
    more = f"; and {len(problems) - _MOST_TOLD} more" if len(problems) > _MOST_TOLD else ""
    what = f"{'; '.join(problems[:_MOST_TOLD])}{more}"
    return f"{path} cannot be read: no node is avoided for what is wrong in it: {what}"


def require_readable(cluster: str) -> None:
    """Raise `RvError(CONFIG)` for a file that is not as rv writes it, and say what is wrong."""
    if problem := problem_of(cluster):
        raise RvError(ErrorKind.CONFIG, problem, hint="mend it, or move it away")


def broken_copy(cluster: str) -> Path | None:
    """Give the file that could not be read when it was replaced, where there is one."""
    path = acceptance_file("avoid", cluster, ".json").with_suffix(".broken")
    return path if path.exists() else None


def _write(cluster: str, entries: Iterable[AvoidedNode], repaired: Mapping[str, float]) -> None:
    from rv.files import write_atomically  # who plans only reads

    document = {"nodes": list(map(asdict, entries)), "repaired": repaired}
    path = acceptance_file("avoid", cluster, ".json")
    try:
        if _read(cluster).problems:
            _keep_broken(path)
        write_atomically(path, json.dumps(document, indent=1))
    except OSError as error:
        raise _not_kept(error, path) from error


def _keep_broken(path: Path) -> None:
    """Keep a file that may be mended: nothing of it is lost.

    It is copied, so that what is sound in it still counts where the new file cannot be written.
    """
    from rv.files import write_atomically  # who plans only reads

    broken = path.with_suffix(".broken")
    try:
        write_atomically(broken, path.read_bytes())
    except (PermissionError, IsADirectoryError):
        path.rename(broken)  # nothing of it counts: nobody can read it


def _read(cluster: str) -> _Memory:
    path = acceptance_file("avoid", cluster, ".json")
    try:
        if not path.exists():
            return _Memory(problems=("it is a link to nothing",) if path.is_symlink() else ())
        from rv.files import read_regular  # most who plan have no such file

        document = json.loads(read_regular(path, _MOST_BYTES).decode("utf-8"))
    except OSError as error:
        return _Memory(problems=(error.strerror or str(error),))
    except (ValueError, RecursionError) as error:
        return _Memory(problems=(f"it is no JSON: {error}",))
    if not isinstance(document, dict):
        return _Memory(problems=("it is no object",))
    entries, wrong_entries = _read_entries(document.get("nodes") if document else [])
    repaired, wrong_repairs = _read_repairs(document.get("repaired", {}))
    return _Memory(entries=entries, repaired=repaired, problems=(*wrong_entries, *wrong_repairs))


def _read_entries(items: Any) -> tuple[list[AvoidedNode], list[str]]:
    """Read the entries that are sound, and say what is wrong in the others."""
    if not isinstance(items, list):
        return [], ["nodes is no list"]
    entries, problems = list[AvoidedNode](), list[str]()
    for number, item in enumerate(items):
        try:
            entries.append(_read_entry(item))
        except ValueError as error:
            problems.append(f"nodes[{number}]: {error}")
    return entries, problems


def _read_repairs(times: Any) -> tuple[dict[str, float], list[str]]:
    """Read the times of repairs that are sound, and say what is wrong in the others."""
    if not isinstance(times, dict):
        return {}, ["repaired is no object"]
    repaired, problems = dict[str, float](), list[str]()
    for node, time in times.items():
        try:
            repaired[printable(node)] = _time(time, printable(node))
        except ValueError as error:
            problems.append(f"repaired: {error}")
    return repaired, problems


def _read_entry(item: Any) -> AvoidedNode:
    """Read one entry of the file; raises `ValueError` for what rv does not write."""
    if not isinstance(item, dict):
        raise ValueError("it is no object")
    node = _text(item.get("node"), "node")
    if not node:
        raise ValueError("node is empty")
    failed = _list(item.get("failed", []), "failed")
    return AvoidedNode(
        node=node,
        since=_time(item.get("since", 0.0), "since"),
        until=_time(item.get("until"), "until"),
        run=_text(item.get("run", ""), "run"),
        evidence=_texts(item.get("evidence", []), "evidence"),
        uuids=_texts(item.get("uuids", []), "uuids"),
        failed=tuple(_read_failed(each) for each in failed),
        over_at=_time(item.get("over_at", 0.0), "over_at"),
        was_quick=_flag(item.get("was_quick", False), "was_quick"),
        is_injected=_flag(item.get("is_injected", False), "is_injected"),
    )


def _read_failed(item: Any) -> FailedTest:
    if not isinstance(item, dict):
        raise ValueError("one of failed is no object")
    return FailedTest(
        payload=_text(item.get("payload"), "payload of failed"),
        test=_text(item.get("test"), "test of failed"),
        uuids=_texts(item.get("uuids"), "uuids of failed"),
        is_of_speed=_flag(item.get("is_of_speed", False), "is_of_speed of failed"),
    )


def _time(value: Any, name: str) -> float:
    """Read a time, which other programs write as a whole number too."""
    if type(value) in {int, float} and abs(value) <= sys.float_info.max:  # so NaN is none
        return float(value)
    raise ValueError(f"{name} is no time")


def _text(value: Any, name: str) -> str:
    if isinstance(value, str):
        return printable(value)
    raise ValueError(f"{name} is no text")


def _flag(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"{name} is neither true nor false")


def _list(value: Any, name: str) -> list[Any]:
    if isinstance(value, list):
        return value
    raise ValueError(f"{name} is no list")


def _texts(value: Any, name: str) -> tuple[str, ...]:
    return tuple(_text(each, f"one of {name}") for each in _list(value, name))


def _as_of(entry: AvoidedNode, now_s: float) -> AvoidedNode:
    """Count no time that a clock wrote that was ahead."""
    return replace(
        entry,
        since=min(max(entry.since, 0.0), now_s),
        until=min(entry.until, now_s + MOST_DAYS * DAY_S),
        over_at=min(max(entry.over_at, 0.0), now_s),
    )
