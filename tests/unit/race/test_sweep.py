"""The state of a sweep: what workers wrote, and what Slurm says of those that wrote no end."""

from datetime import timedelta

import pytest

from rv.models.job import JobRecord, JobState
from rv.models.race import Entry, Race, RaceState, StateFiles
from rv.models.sweep import Sweep, TaskRuns, TaskState, count
from rv.race.sources import Sources
from rv.race.status import resolve
from rv.race.sweep import ends_of, silent_workers
from rv.race.task_runs import _Reader

WORKER, OTHER = "7.0.ab12", "8.1.cd34"


def race(tasks: int, carried: int = 0) -> Race:
    return Race(
        race_id="abc", directory="/r/abc", cluster="c", name="", command="x", payload="",
        is_shell=False, submitted_at=1000.0, min_job_age=timedelta(seconds=300),
        message_timeout=timedelta(seconds=10), entries=(Entry(number=1, name="rv-abc-1", strategy="s"),),
        waves=((1,),), sweep=Sweep(tasks=tasks, carried=carried),
    )  # fmt: skip


def runs(text: str, other: str = "", **ended: str) -> TaskRuns:
    reader = _Reader()
    reader._add(WORKER, text)
    reader._add(OTHER, other)
    names = {"worker": WORKER, "other": OTHER}
    return TaskRuns(runs=reader.runs, ended_workers={names[k]: v for k, v in ended.items()})


def job(job_id: int, state: JobState, restarts: int = 0, source: str = "squeue") -> JobRecord:
    return JobRecord(job_id=job_id, name="rv-abc-1", state=state, source=source, restarts=restarts)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("", TaskState.WAITING),
        ("start 1 10 .", TaskState.RUNNING),
        ("start 1 10.5 .\n\nend 1 0 - 11.5 .", TaskState.COMPLETED),
        ("start 1 10 .\nend 1 3 - 11 .", TaskState.FAILED),
        ("start 1 10 .\nend 1 143 TERM 11 .", TaskState.LOST),
        ("start 1 10 .\nend 1 0 TERM 11 .", TaskState.LOST),
        ("start 1 10 .\nend 1 0 - 1", TaskState.RUNNING),
        ("start 1 10 .\nend 1 0end 1 0 - 11 .\nend 1 0 - 12 .", TaskState.COMPLETED),
        ("start 1", TaskState.WAITING),
        ("end 1 0 - 11 .", TaskState.COMPLETED),
        ("start 999999999999 1 .\nend x\n\0", TaskState.WAITING),
    ],
)
def test_the_state_of_a_task(text: str, state: TaskState) -> None:
    assert runs(text).state(1) is state


def test_a_worker_that_is_over_loses_what_it_ran_until_it_writes_better() -> None:
    assert runs("start 1 10 .", worker="job 7 TIMEOUT").state(1) is TaskState.LOST
    late = runs("start 1 10 .\nend 1 0 - 20 .", worker="job 7 NODE_FAIL")
    assert late.state(1) is TaskState.COMPLETED
    assert runs("start 1 10 .").unexplained() == {WORKER}
    assert late.unexplained() == frozenset()


@pytest.mark.parametrize(
    ("record", "end"),
    [
        (None, ""),
        (job(7, JobState.RUNNING), ""),
        (job(7, JobState.PENDING), ""),
        (job(7, JobState.PENDING, restarts=1), "job 7 was restarted by Slurm"),
        (job(7, JobState.RUNNING, restarts=1), "job 7 was restarted by Slurm"),
        (job(7, JobState.NODE_FAIL), "job 7 NODE_FAIL"),
        (job(7, JobState.TIMEOUT, source="sacct"), "job 7 TIMEOUT"),
        (job(7, JobState.RUNNING, source="sacct"), ""),
        (job(8, JobState.FAILED), ""),
    ],
)
def test_a_worker_is_over_by_slurms_word_alone(record: JobRecord | None, end: str) -> None:
    records = [record] if record else []
    assert ends_of([WORKER], race(1), records) == ({WORKER: end} if end else {})


def test_an_answer_older_than_a_restart_says_nothing_of_it() -> None:
    """Worker 8.1 is the second run of its job; the queue still shows how the first ended."""
    assert ends_of([OTHER], race(1), [job(8, JobState.NODE_FAIL)]) == {}
    silent = silent_workers(runs("start 1 1 .", "start 2 1 ."), [job(7, JobState.RUNNING)])
    assert silent == (OTHER,)


def state(tasks: TaskRuns, *records: JobRecord, stopped: bool = False, of: int = 2) -> RaceState:
    files = StateFiles(tasks=tasks, stopped=stopped, job_ids=((1, (6,)),), sent=((1, 1000.0),))
    files = StateFiles(**{f: getattr(files, f) for f in files.__slots__} | {"unclaimed_since": 1.0})
    sources = Sources(records=records, now_s=2000.0, queue_answered=True)
    return resolve(race(of), files, sources).state


DONE = "start 1 10 .\nend 1 0 - 11 .\nstart 2 11 .\nend 2 {} - 12 ."


def test_the_state_of_a_sweep() -> None:
    ended, running = job(6, JobState.COMPLETED), job(7, JobState.RUNNING)
    assert state(runs("")) is RaceState.UNKNOWN
    assert state(runs(""), job(6, JobState.PENDING)) is RaceState.PENDING
    assert state(runs("start 1 10 ."), running) is RaceState.RUNNING
    assert state(runs(DONE.format(0))) is RaceState.COMPLETED
    assert state(runs(DONE.format(3)), running) is RaceState.FAILED
    assert state(runs("start 1 10 ."), ended) is RaceState.UNKNOWN
    assert state(runs("start 1 10 .", worker="x"), ended) is RaceState.FAILED
    assert state(runs("start 1 10 .", worker="x"), ended, stopped=True) is RaceState.CANCELLED
    assert state(runs("start 1 1 .\nend 1 0 - 2 ."), job(6, JobState.CANCELLED)) is RaceState.FAILED


def test_counts() -> None:
    counts = count(race(9, carried=5).sweep or Sweep(tasks=0), runs(DONE.format(3), "start 3 1 ."))
    assert (counts.done, counts.failed, counts.running, counts.waiting) == (1, 1, 1, 6)
    assert not counts.is_settled
    assert counts.carried == 5
