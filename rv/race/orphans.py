"""Cancel jobs that wait for a race whose directory was deleted: they could only fail."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from rv.models.job import JobRecord
from rv.race.cancel import cancel_ids
from rv.race.gone import waiting
from rv.race.observe import Observation
from rv.render.quote import shell
from rv.transport import Transport


def release(seen: Observation, transport: Transport) -> None:
    """Cancel what is left of a race beside its winner."""
    left = waiting(seen.records, seen.marks)
    if left and _is_deleted(seen.status.race.directory, transport):
        cancel_ids(left, transport)


def reap_orphans(root: str, records: Sequence[JobRecord], transport: Transport) -> None:
    """Cancel what waits for races below `root` that were deleted while nobody looked.

    Races of another root, of which nothing is known here, are let alone.
    """
    pending = {record.name for record in records if record.state.is_pending}
    known = set(transport.directories(root)) if pending else set()
    names = {name for name in pending if _race_id(name) not in known}
    if not names:
        return
    ask = (
        f"squeue --me -a -h -t PD --name={shell(','.join(sorted(names)))} -o '%A %j %Z' </dev/null"
    )
    for line in transport.run(ask, timeout=30).stdout.splitlines():
        job_id, name, directory = (*line.split(" ", 2), "", "")[:3]
        is_below = name in names and directory == f"{root}/{_race_id(name)}"
        if is_below and job_id.isdigit() and _is_deleted(directory, transport):
            cancel_ids([int(job_id)], transport)


def _race_id(job_name: str) -> str:
    return job_name.removeprefix("rv-").partition("-")[0]


def _is_deleted(directory: str, transport: Transport) -> bool:
    """Whether it is gone for certain, and not only its disk away for a while.

    The folder above it, being there and the user's own, proves the disk: what shows where a disk is
    not mounted is root's.
    """
    path = PurePosixPath(directory)
    look = f"cd {shell(path.parent)} && [ -O . ] && ls -a >/dev/null && [ ! -e {shell(path.name)} ]"
    return transport.run(look, timeout=30).returncode == 0
