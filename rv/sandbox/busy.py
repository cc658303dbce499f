"""Keep a sandbox busy, so that there is something to wait for."""

from datetime import timedelta
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.sandbox import daemons, processes, records
from rv.sandbox.records import Record
from rv.sandbox.tools import path_of

ROLE: Final = "loader"
JOB_NAME: Final = "rv-load"


def start(
    record: Record, *, share: float, shortest: timedelta, longest: timedelta, seed: int
) -> None:
    """Start the loader in the background, in place of one that runs already."""
    if not 0 < share <= 1:
        raise RvError(
            ErrorKind.SANDBOX,
            f"a share of {share:g} of the GPUs",
            hint="between 0 and 1, as in 0.8",
        )
    if not timedelta(0) < shortest <= longest:
        raise RvError(
            ErrorKind.SANDBOX,
            f"jobs of {shortest} to {longest}",
            hint="--min is above 0 and at most --max",
        )
    stop(record)
    process = processes.spawn_python(
        "rv.sandbox.loader",
        str(share),
        str(shortest.total_seconds()),
        str(longest.total_seconds()),
        str(seed),
        env=daemons.environment(record),
        log=record.layout.logs / ROLE,
    )
    records.note(record.layout, ROLE, process)


def stop(record: Record) -> bool:
    """End the loader and its jobs; False when none was on record."""
    if records.process_of(record.layout, ROLE) is None:
        return False
    daemons.stop(record, ROLE)
    argv = [path_of("scancel"), "--me", f"--name={JOB_NAME}"]
    done = processes.run(argv, env=daemons.environment(record))
    if done.returncode:
        raise RvError(
            ErrorKind.SANDBOX,
            f"the load's jobs could not be cancelled: {done.complaint}",
            hint=f"SLURM_CONF={record.layout.slurm_conf} scancel --me --name={JOB_NAME}",
        )
    return True
