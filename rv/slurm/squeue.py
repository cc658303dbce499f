"""What squeue prints: everybody's jobs, the waiting ones with priorities, and the user's own."""

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rv.dataclass import dataclass
from rv.models.job import JobRecord, WaitingJob, job_state
from rv.models.race import NAME_PREFIX
from rv.slurm import values
from rv.slurm.cache import CachedAnswer, SnapshotCache
from rv.slurm.hostlist import Expander
from rv.slurm.job_record import job_record, own_job_name
from rv.slurm.printable import printable
from rv.slurm.script import has_succeeded, new_sentinel
from rv.slurm.squeue_scripts import COLUMNS, OWN_COLUMNS, squeue_own_script
from rv.transport import Transport
from rv.transport.private_directories import make_private
from rv.transport.query_retry import retry_query

if TYPE_CHECKING:
    from rv.models.snapshot import QueuedJob

_GPU_TYPE_PREFIX: Final = "gres/gpu:"
_JOB_ID: Final = re.compile(r"(?:(\d{1,10})/)?(\d{1,10})", re.ASCII)
_ARRAY_ID: Final = re.compile(r"(\d{1,10})(?:_.*)?", re.ASCII)
_TIMEOUT_S: Final = 25.0
_POLL_S: Final = 0.03


def parse_squeue(text: str, sentinel: str) -> "tuple[QueuedJob, ...]":
    """Read everybody's jobs; a line that does not start as a row is the rest of a job's name."""
    mark, count = f"{sentinel}|", len(COLUMNS)
    row = _row_reader()
    jobs = []
    for line in text.split("\n"):
        job_id, _, rest = line.partition(mark)
        columns = rest.split("|", count)
        if len(columns) > count and job_id[:1].isdigit():
            jobs.append(row(job_id, columns))
    return tuple(jobs)


def parse_squeue_waiting(text: str, sentinel: str) -> tuple[WaitingJob, ...] | None:
    """Read the waiting jobs; None where squeue failed or its output was cut off."""
    if not has_succeeded(text, sentinel):
        return None
    rows = (_waiting_job(line, sentinel) for line in text.split("\n"))
    return tuple(row for row in rows if row is not None)


def parse_squeue_own(text: str, sentinel: str) -> tuple[JobRecord, ...] | None:
    """Read the user's jobs that rv submitted; None where squeue failed or was cut off."""
    if not has_succeeded(text, sentinel):
        return None
    rows = (_own_job(line, sentinel) for line in text.split("\n"))
    return tuple(row for row in rows if row is not None and row.name.startswith(NAME_PREFIX))


def parse_work_folders(text: str) -> list[tuple[int, str, str]]:
    """Read id, name and working directory of each job; a line that is not whole is passed over."""
    rows = [line.split(" ", 2) for line in text.split("\n")]
    return [(int(row[0]), row[1], row[2]) for row in rows if len(row) == 3 and row[0].isdigit()]


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnJobs:
    """The user's own jobs in the queue, asked for once for all rv processes on this machine.

    `asking` waits until the answer of a question that was asked already is in the cache.
    """

    transport: Transport
    cache: SnapshotCache
    asking: Callable[[], None] | None = None

    def records(self, max_age: timedelta) -> tuple[JobRecord, ...] | None:
        """Return the records of rv's jobs, at most `max_age` old; None where squeue failed.

        A recent answer of another rv process serves too; processes that ask at once ask once.
        """
        if self.asking:
            self.asking()
        answer = self.cache.load("queue", max_age)
        if answer is None:
            with _one_at_a_time(self.cache.directory / "queue.lock"):
                answer = self.cache.load("queue", max_age) or retry_query(self._ask)
        return parse_squeue_own(answer.text, answer.sentinel) if answer else None

    def _ask(self) -> CachedAnswer | None:
        sentinel = new_sentinel()
        result = self.transport.run(squeue_own_script(sentinel), timeout_s=_TIMEOUT_S)
        return keep_own(result.stdout, sentinel, self.cache)


def keep_own(text: str, sentinel: str, cache: SnapshotCache) -> CachedAnswer | None:
    """Keep the answer of `squeue_own_script` for whoever asks next; None where squeue failed."""
    if parse_squeue_own(text, sentinel) is None:
        return None
    cache.store("queue", text, sentinel)
    return CachedAnswer(text=text, sentinel=sentinel, at_s=cache.clock())


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Hold a lock file; go on without it where there are no locks, or it stays taken."""
    with ExitStack() as stack:
        with suppress(OSError):  # TimeoutError is one
            make_private(path.parent)
            stack.enter_context(_locked(path))
        yield


# Loading filelock takes 46 ms of each rv ps, and flock is all that is needed of it here.
@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock file. Raises `OSError`, also where it stays taken or is a link."""
    until_s = time.monotonic() + _TIMEOUT_S
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while not _took(descriptor):
            if time.monotonic() > until_s:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds it", str(path))
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _took(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# A large cluster has 50,000 jobs: what is done for each of them is no more than a look-up.
def _row_reader() -> "Callable[[str, list[str]], QueuedJob]":
    """Return what makes a job of its id and the columns of squeue's row, in their order."""
    from rv.models.snapshot import QueuedJob  # questions about own jobs begin sooner without

    words, plain = values.Known(values.non_null), values.Known(str)
    states, counts = values.Known(job_state), values.Known(values.count)
    expand = Expander().expand
    time = values.time

    def row(job_id: str, columns: list[str]) -> QueuedJob:
        (
            user, account, qos, partition, state, start, end, nodes, planned, node_count, cpus,
            allocated, per_node, per_job, name,
        ) = columns  # fmt: skip
        held = _held(allocated, per_node, per_job, counts[node_count])
        return QueuedJob(
            job_id, words[user], plain[partition], states[state], words[account], words[qos],
            expand(nodes), expand(planned),
            None if start == "N/A" else time(start), None if end == "N/A" else time(end),
            counts[cpus], *held, printable(name.removesuffix("|")),
        )  # fmt: skip

    return row


# Most jobs hold what some other job holds.
@lru_cache(maxsize=4096)
def _held(allocated: str, per_node: str, per_job: str, nodes: int) -> tuple[int, int, str]:
    """Return a job's memory in MiB, its GPUs and their type, "" where it is not one.

    GPUs are counted by TRES, or by the request where the site does not account for GPUs.
    """
    tres = values.parse_tres(allocated)
    typed = [name for name, _ in tres if name.startswith(_GPU_TYPE_PREFIX)]
    a_node, node_types = values.parse_gpu_request(per_node)
    a_job, job_types = values.parse_gpu_request(per_job)
    gpus = values.gpus_in_tres(tres) or a_job or a_node * (nodes or 1)
    types = node_types | job_types or {name.removeprefix(_GPU_TYPE_PREFIX) for name in typed}
    return dict(tres).get("mem", 0), gpus, next(iter(types)) if len(types) == 1 else ""


def _waiting_job(line: str, sentinel: str) -> WaitingJob | None:
    job_id, _, rest = line.partition(f"{sentinel}|")
    columns = rest.split("|", 2)
    match = _ARRAY_ID.fullmatch(job_id)
    if match is None or len(columns) != 3:
        return None
    return WaitingJob(
        job_id=int(match[1]),
        priority=values.number(columns[0]) or 0,
        partitions=values.comma_list(columns[1]),
        reason=printable(columns[2].removesuffix("|")),
    )


def _own_job(line: str, sentinel: str) -> JobRecord | None:
    job_id, _, rest = line.partition(f"{sentinel}|")
    front, _, free = rest.partition(f"|{sentinel}|")
    command, mark, name = free.partition(f"|{sentinel}|")
    columns = front.split("|", len(OWN_COLUMNS) - 1)
    ids = _JOB_ID.fullmatch(job_id)
    if not mark or len(columns) != len(OWN_COLUMNS) or ids is None:
        return None
    value = dict(zip(OWN_COLUMNS, columns, strict=True))
    return job_record(
        source="squeue",
        job_id=int(ids[2]),
        array_id=int(ids[1] or 0),
        name=own_job_name(name.removesuffix("|"), command),
        value=value,
        times=(value["SubmitTime"], value["StartTime"], value["EndTime"]),
        restarts=value["RestartCnt"],
    )
