"""From the frames of a probe to a snapshot. Pure: no clock, no files, no processes."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.snapshot import Association, ClusterConfig, Partition, Snapshot
from rv.slurm import words
from rv.slurm.accounting import ACCOUNTS, parse_accounts, parse_associations, parse_qos
from rv.slurm.frames import Frame
from rv.slurm.nodes import parse_nodes
from rv.slurm.partitions import parse_partitions
from rv.slurm.queued import parse_queued
from rv.slurm.reservations import parse_reservations
from rv.slurm.settings import parse_clock, parse_config
from rv.slurm.text import last_line

_NEEDED: Final = ("config", "nodes", "partitions", "queue")
_NOTHING: Final = Frame(exit_code=1, stdout="", stderr="was not asked")
_NO_SLURM: Final = 127
_DENIED: Final = re.compile(r"access/permission denied", re.IGNORECASE)


def build_snapshot(frames: Mapping[str, Frame], sentinel: str) -> Snapshot:
    """Return what the frames say; raises `RvError(UNREACHABLE)` where Slurm did not answer."""
    _require_slurm(frames)
    config = parse_config(frames["config"].stdout)
    taken_at = parse_clock(frames["config"].stdout) or words.time(_text(frames, "clock"))
    if taken_at is None:
        raise _silent("it did not say what time it is")
    associations, notes = _accounts(frames, config.name)
    return Snapshot(
        taken_at=taken_at,
        user=_text(frames, "user").strip(),
        groups=_groups(_text(frames, "groups")),
        config=config,
        partitions=_with_defaults(parse_partitions(frames["partitions"].stdout), config),
        nodes=parse_nodes(frames["nodes"].stdout),
        jobs=parse_queued(frames["queue"].stdout, sentinel),
        reservations=parse_reservations(_text(frames, "reservations")),
        qos=parse_qos(_text(frames, "qos"), _text(frames, "qos_preemption")),
        associations=associations,
        accounts=parse_accounts(_text(frames, "accounts"), config.name),
        notes=(*_unread(frames, "reservations"), *notes),
    )


def _with_defaults(
    partitions: tuple[Partition, ...], config: ClusterConfig
) -> tuple[Partition, ...]:
    """Give partitions without a memory rule the cluster's: Slurm prints only their own."""
    per_cpu, per_node = config.max_memory_per_cpu_mib, config.max_memory_per_node_mib
    if not per_cpu and not per_node:
        return partitions
    return tuple(
        partition
        if partition.max_memory_per_cpu_mib or partition.max_memory_per_node_mib
        else replace(partition, max_memory_per_cpu_mib=per_cpu, max_memory_per_node_mib=per_node)
        for partition in partitions
    )


def no_slurm() -> RvError:
    """Return the error for a machine without Slurm's commands."""
    return RvError(
        ErrorKind.UNREACHABLE,
        "no Slurm commands on PATH",
        hint="rv sandbox up starts a cluster here; --cluster names one to reach",
    )


def _silent(why: str) -> RvError:
    return RvError(
        ErrorKind.UNREACHABLE,
        f"Slurm's controller does not answer: {why}",
        hint="try again in a minute; scontrol ping says whether it is there",
    )


def _hidden(name: str, why: str) -> RvError:
    return RvError(
        ErrorKind.REFUSED,
        f"Slurm does not show its {name} to you: {why}",
        hint="PrivateData hides them; --snapshot FILE plans on what somebody else saved",
    )


def _require_slurm(frames: Mapping[str, Frame]) -> None:
    for name in _NEEDED:
        frame = frames.get(name, _NOTHING)
        if frame.exit_code == _NO_SLURM:
            raise no_slurm()
        if not frame.is_good and _DENIED.search(frame.stderr):
            raise _hidden(name, _why(frame))
        if not frame.is_good:
            raise _silent(_why(frame))


def _why(frame: Frame) -> str:
    if frame.exit_code in {124, 137}:
        return "no answer in time"
    return last_line(frame.stderr) or f"exit code {frame.exit_code}"


def _text(frames: Mapping[str, Frame], name: str) -> str:
    frame = frames.get(name, _NOTHING)
    return frame.stdout if frame.is_good else ""


def _groups(text: str) -> frozenset[str]:
    """Read `id -Gnz`: names end with NUL, because directory services have names with spaces."""
    return frozenset(name for name in text.strip("\n").split("\0") if name)


def _accounts(
    frames: Mapping[str, Frame], cluster: str
) -> tuple[tuple[Association, ...] | None, tuple[str, ...]]:
    notes = _unread(frames, *ACCOUNTS)
    if not frames.get("associations", _NOTHING).is_good:
        return None, notes
    limits = _text(frames, "association_limits")
    return parse_associations(frames["associations"].stdout, limits, cluster), notes


def _unread(frames: Mapping[str, Frame], *names: str) -> tuple[str, ...]:
    bad = [name for name in names if not frames.get(name, _NOTHING).is_good]
    if not bad:
        return ()
    listed = ", ".join(name.replace("_", " ") for name in bad)
    return (f"could not read {listed}: {_why(frames.get(bad[0], _NOTHING))}",)
