"""Start one daemon of a sandbox, know when it answers, and say why it did not."""

import os
import re
from collections.abc import Callable
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.sandbox import loopback, ports, processes, records
from rv.sandbox.processes import Process, path_of
from rv.sandbox.records import Record

PATIENCE_S: Final = 30.0
MUNGED: Final = "munged"
MARIADBD: Final = "mariadbd"
SLURMDBD: Final = "slurmdbd"
SLURMCTLD: Final = records.CONTROLLER
# From the measurements: half the memory of the defaults, the same start time.
SMALL_MARIADB: Final = (
    "--innodb-buffer-pool-size=8M",
    "--innodb-log-file-size=4M",
    "--innodb-log-buffer-size=1M",
    "--performance-schema=off",
    "--key-buffer-size=64K",
    "--aria-pagecache-buffer-size=128K",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--skip-name-resolve",
    "--max-connections=30",
    "--innodb-use-native-aio=0",
    "--table-open-cache=200",
    "--innodb-read-io-threads=1",
    "--innodb-write-io-threads=1",
    "--innodb-lock-wait-timeout=900",
    "--innodb-fast-shutdown=1",
    # On from MariaDB 11.6: slurmdbd does not expect its errors. Older ones do not have it.
    "--loose-innodb-snapshot-isolation=OFF",
)


class DaemonError(RvError):
    """A daemon ended before it answered, or did not answer in time."""


def environment(record: Record) -> dict[str, str]:
    """The environment of this sandbox's daemons and of the commands put to them."""
    layout = record.layout
    return processes.environment(
        {
            "SLURM_CONF": str(layout.slurm_conf),
            "MYSQL_UNIX_PORT": str(layout.database_socket),
            processes.MARKER: record.identity,
        }
    )


def command(record: Record, role: str) -> list[str]:
    """The command line of a role."""
    layout = record.layout
    if role.startswith("slurmd."):
        node = role.removeprefix("slurmd.")
        return [*loopback.prefix(), path_of("slurmd"), "-D", "-N", node]
    if role == MUNGED:
        return [
            path_of(role),
            "--foreground",
            "--force",
            f"--key-file={layout.munge / 'key'}",
            f"--socket={layout.munge_socket}",
            f"--pid-file={layout.munge / 'pid'}",
            f"--log-file={layout.munge / 'log'}",
            f"--seed-file={layout.munge / 'seed'}",
            "--num-threads=4",
        ]
    if role == MARIADBD:
        return [
            path_of(role),
            "--no-defaults",
            *(["--user=root"] if os.getuid() == 0 else []),
            f"--datadir={layout.database}",
            f"--socket={layout.database_socket}",
            f"--pid-file={layout.state / 'mariadbd.pid'}",
            f"--init-file={layout.database_sql}",
            "--skip-networking",
            *mariadb_options(record),
        ]
    return [*loopback.prefix(), path_of(role), "-D"]


def mariadb_options(record: Record) -> tuple[str, ...]:
    """Small, and with a scratch folder of its own.

    A starting MariaDB removes every temporary table it finds in its scratch folder: in a shared
    one that ends the queries of another sandbox that starts at the same moment.
    """
    return (*SMALL_MARIADB, f"--tmpdir={record.layout.scratch}")


def start(record: Record, role: str) -> None:
    """Start a daemon and write it down."""
    layout = record.layout
    env = environment(record) | {"SLURM_CONF": str(layout.daemons_conf)}
    process = processes.spawn(command(record, role), env=env, log=layout.logs / role)
    records.note(record.layout, role, process)


def live(record: Record, role: str) -> bool:
    """Whether the recorded process of a role runs."""
    process = records.process_of(record.layout, role)
    return process is not None and process.live


def stop(record: Record, role: str, *, grace_s: float = 0) -> None:
    """Stop a daemon, not its child processes."""
    process = records.process_of(record.layout, role)
    if process:
        processes.end([process], grace_s=grace_s)
    records.erase(record.layout, role)


def all_processes(record: Record) -> tuple[Process, ...]:
    """Everything that runs of a sandbox.

    The daemon of a step has no environment from Slurm 23.11 on, and so no marker: it is found by
    its socket in the spool.
    """
    steps = [ports.listener(str(path)) for path in record.layout.spool.glob("*/*_*.*")]
    owners = [uid for uid in map(processes.uid_of, record.users) if uid is not None]
    return processes.marked(record.identity, owners=owners, seeds=filter(None, steps))


def wait_for(record: Record, role: str, ready: Callable[[], bool]) -> None:
    """Wait until a daemon answers. Raises `DaemonError` where it ended, or is too slow."""

    def settled() -> bool:
        return ready() or not live(record, role)

    answered = processes.wait_until(settled, timeout_s=PATIENCE_S)
    if answered and live(record, role):
        return
    what = "ended at once" if answered else f"did not answer in {PATIENCE_S:.0f} s"
    raise DaemonError(
        ErrorKind.SANDBOX,
        f"{role} {what}: {last_complaint(record, role)}",
        hint=f"rv sandbox down --name {record.name}, then up again",
    )


def last_complaint(record: Record, role: str) -> str:
    """What a daemon's log says about its end: the last complaint, and the one that led to it."""
    try:
        log = (record.layout.logs / role).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "no log"
    lines = [re.sub(r"^\S*\d{2}:\d{2}:\d{2}\S*\s*", "", line) for line in log.splitlines() if line]
    telling = [line for line in lines if re.search(r"fatal|\berror\b", line, re.IGNORECASE)]
    return "; ".join(line.strip() for line in telling[-2:] or lines[-1:]) or "its log is empty"
