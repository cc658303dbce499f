"""The order in which a cluster starts, and starts again."""

import os
import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.sandbox import accounting, daemons, loopback, nvidia_smi, ports, processes, slurmconf
from rv.sandbox.layout import Layout, reachable
from rv.sandbox.profile import Profile
from rv.sandbox.records import Record

UP_STATES: Final = ("idle", "mix", "alloc", "resv", "comp", "plnd", "drain", "drng", "maint")


def boot(record: Record, profile: Profile, user: str, progress: Callable[[str], None]) -> None:
    """Start a cluster from nothing."""
    processes.require(accounting=profile.accounting)
    layout = record.layout
    _make(layout)
    if os.getuid() == 0 and not reachable(layout.directory):
        progress(f"{layout.directory} is closed to other users: only root can use this sandbox")
    if not loopback.is_sure():
        progress("this machine's name is no loopback address: Slurm listens on all its addresses")
    with ports.reserved(slurmconf.port_count(profile)) as base:
        _configure(record, profile, base, user)
        daemons.start(record, daemons.MUNGED)
        if profile.accounting:
            _account(record, profile, base, user, progress)
        progress(f"starting slurmctld and {len(profile.running_nodes)} slurmd")
        _start_slurm(record, profile.running_nodes, base)


def _make(layout: Layout) -> None:
    """Create the folders; a short one lies where anybody can write: it must be new, hence ours."""
    try:
        if layout.directory not in layout.run.parents:
            layout.run.mkdir(mode=0o700)
        layout.make()
    except OSError as error:
        raise RvError(
            ErrorKind.SANDBOX,
            f"cannot write {error.filename}: {error.strerror}",
            hint="rv sandbox up --directory DIR puts it elsewhere",
        ) from error


def _configure(record: Record, profile: Profile, base: int, user: str) -> None:
    layout = record.layout
    address, only = loopback.address(), loopback.PARAMETERS if loopback.is_sure() else ""
    clients = slurmconf.slurm_conf(profile, layout, base=base, user=user, address=address)
    slurmdbd = slurmconf.slurmdbd_conf(
        layout, base=base, user=user, address=address, parameters=only
    )
    files = {
        layout.slurm_conf: (clients, 0o644),
        layout.daemons_conf: (slurmconf.daemons_conf(profile, layout, only), 0o644),
        layout.gres_conf: (slurmconf.gres_conf(profile, layout), 0o644),
        layout.slurmdbd_conf: (slurmdbd, 0o600),
        layout.database_sql: (slurmconf.DATABASE_SQL, 0o600),
    }
    if _lacks_cgroup_v1():
        version = processes.run(
            [processes.path_of("slurmctld"), "-V"], env=daemons.environment(record)
        )
        files[layout.cgroup_conf] = (slurmconf.cgroup_conf(layout, version.stdout), 0o644)
    for path, (text, mode) in files.items():
        path.touch(mode=mode)
        path.chmod(mode)
        path.write_text(text, encoding="utf-8")
    key = layout.munge / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    for number in range(slurmconf.fake_device_count(profile)):
        (layout.devices / f"gpu{number}").symlink_to("/dev/null")
    nvidia_smi.install(profile, layout, f"{processes.MARKER}={record.identity}")


def _lacks_cgroup_v1() -> bool:
    """Whether this machine has cgroup v2 alone, without the systemd that slurmd asks there."""
    is_unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    return is_unified and not Path("/run/systemd/system").exists()


def _account(
    record: Record, profile: Profile, base: int, user: str, progress: Callable[[str], None]
) -> None:
    """Bring accounting up, from a saved database where there is one."""
    template = accounting.database_template(profile, user)
    is_restored = accounting.restore_database(template, record)
    if not is_restored:
        progress("making the accounting database (once; the next start is faster)")
        accounting.create_database(record)
    accounting.start_database(record)
    _munge_answers(record)
    accounting.start_slurmdbd(record, base)
    if is_restored:
        return
    accounting.fill(record, profile, user)
    if profile.counts_gpus:
        _teach_gpus(record, profile, base)
    daemons.stop(record, daemons.SLURMDBD, grace_s=10)
    daemons.stop(record, daemons.MARIADBD, grace_s=20)
    accounting.save_database(template, record)
    accounting.start_database(record)
    accounting.start_slurmdbd(record, base)


def _munge_answers(record: Record) -> None:
    socket = str(record.layout.munge_socket)
    daemons.wait_for(record, daemons.MUNGED, lambda: ports.answering(socket))


def _teach_gpus(record: Record, profile: Profile, base: int) -> None:
    """Run a controller once, without the QOS it would miss, so that gres/gpu becomes known."""
    conf = record.layout.slurm_conf
    full = conf.read_text(encoding="utf-8")
    conf.write_text(re.sub(r" (QOS|AllowQos)=\S+", "", full), encoding="utf-8")
    _start_controller(record, base)
    accounting.wait_for_gpus(record)
    accounting.fill_gpu_limits(record, profile)
    daemons.stop(record, daemons.SLURMCTLD, grace_s=10)
    conf.write_text(full, encoding="utf-8")
    for path in record.layout.state.iterdir():
        path.unlink()


def _start_controller(record: Record, base: int) -> None:
    daemons.start(record, daemons.SLURMCTLD)
    port = slurmconf.slurmctld_port(base)
    daemons.wait_for(record, daemons.SLURMCTLD, lambda: ports.listening(loopback.address(), port))


def _start_slurm(record: Record, nodes: Sequence[str], base: int) -> None:
    _munge_answers(record)
    _start_controller(record, base)
    for node in nodes:
        daemons.start(record, f"slurmd.{node}")
    wait_for_nodes(record, nodes)


def wait_for_nodes(record: Record, nodes: Sequence[str]) -> None:
    """Wait until Slurm says that these nodes are up."""

    def all_up() -> bool:
        states = node_states(record)
        return all(is_up(states.get(node, "")) for node in nodes)

    if not processes.wait_until(all_up, timeout_s=daemons.PATIENCE_S, pause_s=0.03):
        states = node_states(record)
        late = next(node for node in nodes if not is_up(states.get(node, "")))
        words = daemons.last_complaint(record, f"slurmd.{late}")
        raise daemons.DaemonError(
            ErrorKind.SANDBOX,
            f"node {late} did not come up ({states.get(late, 'unknown')}): {words}",
            hint=f"rv sandbox down --name {record.name}, then up again",
        )


def node_states(record: Record) -> dict[str, str]:
    """Slurm's short word for each node's state; empty when the controller does not answer."""
    argv = [processes.path_of("sinfo"), "-a", "-h", "-N", "-o", "%N %t"]
    done = processes.run(argv, env=daemons.environment(record), timeout_s=15)
    rows = (line.split() for line in done.stdout.splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 2}


def is_up(state: str) -> bool:
    """Whether a node of this state answers (`*` means that it does not)."""
    return state.rstrip("-+$@^!") in UP_STATES


def roles(record: Record) -> list[str]:
    """Every daemon this sandbox has, in starting order."""
    has_database = record.layout.database.exists()
    nodes = sorted(path.name for path in record.layout.nodes.iterdir())
    first = [daemons.MUNGED, *([daemons.MARIADBD, daemons.SLURMDBD] if has_database else [])]
    return [*first, daemons.SLURMCTLD, *(f"slurmd.{node}" for node in nodes)]


def restart(record: Record, restarted: Sequence[str]) -> None:
    """Start daemons that ended, and wait until they answer."""
    base = base_port(record)
    for role in restarted:
        if role == daemons.MUNGED:
            daemons.start(record, role)
            _munge_answers(record)
        elif role == daemons.MARIADBD:
            accounting.start_database(record)
        elif role == daemons.SLURMDBD:
            accounting.start_slurmdbd(record, base)
        elif role == daemons.SLURMCTLD:
            _start_controller(record, base)
        else:
            daemons.start(record, role)
    nodes = [role.removeprefix("slurmd.") for role in restarted if role.startswith("slurmd.")]
    wait_for_nodes(record, nodes)


def base_port(record: Record) -> int:
    """The first port, as the configuration has it."""
    for line in record.layout.slurm_conf.read_text(encoding="utf-8").splitlines():
        if line.startswith("SlurmctldPort="):
            return int(line.partition("=")[2])
    raise RvError(
        ErrorKind.SANDBOX, f"no port in {record.layout.slurm_conf}", hint="rv sandbox down, then up"
    )


def add_users(record: Record, profile: Profile, users: Sequence[str]) -> None:
    """Let more local users submit."""
    if profile.accounting:
        accounting.add_users(record, profile, users)
