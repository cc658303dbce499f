"""A real Slurm cluster on this machine: the embedded default, and what the tests run on.

from rv import sandbox
box = sandbox.up(profile="small")
# SLURM_CONF=box.slurm_conf sinfo
sandbox.down(box.name)
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.sandbox import records
from rv.sandbox.records import Record

if TYPE_CHECKING:
    from rv.sandbox.profile import Profile


__all__ = [
    "DaemonStatus",
    "Sandbox",
    "SandboxStatus",
    "down",
    "find",
    "list_all",
    "load",
    "set_fault",
    "start_daemon",
    "start_node",
    "status",
    "stop_daemon",
    "stop_load",
    "stop_node",
    "up",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sandbox:
    """A cluster on this machine; point SLURM_CONF at `slurm_conf` to use it."""

    name: str
    directory: Path
    slurm_conf: Path
    cluster_name: str
    profile: str
    live: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class DaemonStatus:
    """One daemon; `pid` is None when it does not run."""

    name: str
    pid: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxStatus:
    """What runs of a sandbox, and how to use it by hand."""

    sandbox: Sandbox
    nodes_up: int
    nodes_total: int
    daemons: tuple[DaemonStatus, ...]
    faults: tuple[tuple[str, str], ...]
    export: str


def up(
    name: str = "default",
    profile: "str | Path | Profile | None" = "small",
    *,
    directory: Path | None = None,
    users: tuple[str, ...] = (),
    progress: Callable[[str], None] | None = None,
) -> Sandbox:
    """Bring a sandbox up and wait until its nodes are; one that is up is left alone.

    `profile` is a name, a file or a Profile; None means the one it has, or small. `users` are
    local users who may submit besides the caller (in root's sandboxes).
    """
    from rv.sandbox import lifecycle

    chosen = str(profile) if isinstance(profile, Path) else profile
    report = progress or (lambda _line: None)
    record = lifecycle.up(name, chosen, directory=directory, users=users, progress=report)
    return _sandbox(record)


def down(name: str = "default") -> bool:
    """End a sandbox with all its processes and files; False when there was none."""
    from rv.sandbox import lifecycle

    return lifecycle.down(name)


def find(name: str | None = None) -> Sandbox | None:
    """The live sandbox of that name, or the most recently brought up one; no process is started."""
    if name is not None:
        record = records.read(name)
        return _sandbox(record) if record and record.live else None
    return next((_sandbox(record) for record in records.read_all() if record.live), None)


def list_all() -> tuple[Sandbox, ...]:
    """Every sandbox on record, the most recent first."""
    return tuple(_sandbox(record) for record in records.read_all())


def status(name: str = "default") -> SandboxStatus:
    """What runs of it."""
    from rv.sandbox import boot, nvidia_smi

    record = _record(name)
    processes = records.processes(record.layout)
    pids = {role: process.pid for role, process in processes.items() if process.live}
    roles = boot.roles(record) if record.layout.nodes.exists() else []
    nodes = {role: role.removeprefix("slurmd.") for role in roles if role.startswith("slurmd.")}
    states = boot.node_states(record) if record.live else {}
    up_nodes = [
        role for role, node in nodes.items() if role in pids and boot.is_up(states.get(node, ""))
    ]
    return SandboxStatus(
        sandbox=_sandbox(record),
        nodes_up=len(up_nodes),
        nodes_total=len(nodes),
        daemons=_daemons(roles, pids),
        faults=tuple(nvidia_smi.faults(record.layout).items()),
        export=f"export SLURM_CONF={record.layout.slurm_conf}",
    )


def _daemons(roles: Sequence[str], pids: Mapping[str, int]) -> tuple[DaemonStatus, ...]:
    """Say of each daemon that is no node whether it runs."""
    names = [role for role in roles if not role.startswith("slurmd.")]
    return tuple(DaemonStatus(name=name, pid=pids.get(name)) for name in names)


def set_fault(sandbox: Sandbox, node: str, fault: str | None) -> None:
    """Make a node's nvidia-smi lie at once; None makes it honest again."""
    from rv.sandbox import nvidia_smi

    try:
        kind = None if fault is None else nvidia_smi.Fault(fault)
    except ValueError as error:
        kinds = ", ".join(each.value for each in nvidia_smi.Fault)
        raise RvError(ErrorKind.SANDBOX, f"no fault {fault!r}", hint=f"faults: {kinds}") from error
    nvidia_smi.set_fault(_record(sandbox.name).layout, node, kind)


def stop_node(sandbox: Sandbox, node: str) -> None:
    """Kill a node's slurmd and leave its jobs running: a node that lost touch."""
    _stop(sandbox, f"slurmd.{node}")


def start_node(sandbox: Sandbox, node: str) -> None:
    """Start a node's slurmd again and wait until Slurm sees it."""
    _start(sandbox, f"slurmd.{node}")


def stop_daemon(sandbox: Sandbox, daemon: str) -> None:
    """Kill slurmdbd, slurmctld, mariadbd or munged."""
    _stop(sandbox, daemon)


def start_daemon(sandbox: Sandbox, daemon: str) -> None:
    """Start such a daemon again and wait until it answers."""
    _start(sandbox, daemon)


def load(
    sandbox: Sandbox, share: float, min_length: timedelta, max_length: timedelta, seed: int = 1
) -> None:
    """Keep this share of the GPUs busy with sleeping jobs, in the background, until stopped.

    Where limits (a QOS of few GPUs a user) forbid it in one partition, the others get more.
    """
    from rv.sandbox import loader

    record = _record(sandbox.name)
    loader.start(record, share=share, shortest=min_length, longest=max_length, seed=seed)


def stop_load(sandbox: Sandbox) -> bool:
    """End the load and cancel its jobs; False when there was none."""
    from rv.sandbox import loader

    return loader.stop(_record(sandbox.name))


def _stop(sandbox: Sandbox, role: str) -> None:
    from rv.sandbox import daemons

    daemons.stop(_known_role(sandbox, role), role)


def _start(sandbox: Sandbox, role: str) -> None:
    from rv.sandbox import boot, daemons

    record = _known_role(sandbox, role)
    if not daemons.live(record, role):
        boot.restart(record, [role])


def _known_role(sandbox: Sandbox, role: str) -> Record:
    from rv.sandbox import boot

    record = _record(sandbox.name)
    roles = boot.roles(record)
    if role not in roles:
        raise RvError(
            ErrorKind.SANDBOX,
            f"no {role} in sandbox {sandbox.name}",
            hint=f"it has {', '.join(roles)}",
        )
    return record


def _record(name: str) -> Record:
    record = records.read(name)
    if record is None:
        names = ", ".join(each.name for each in records.read_all()) or "none"
        raise RvError(
            ErrorKind.SANDBOX,
            f"no sandbox {name!r}",
            hint=f"rv sandbox up starts one; there are: {names}",
        )
    return record


def _sandbox(record: Record) -> Sandbox:
    return Sandbox(
        name=record.name,
        directory=Path(record.directory),
        slurm_conf=record.layout.slurm_conf,
        cluster_name=record.cluster_name,
        profile=record.profile,
        live=record.live,
    )
