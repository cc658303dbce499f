"""A job of Python's as its client sees it, of a race that is played: waits, results and links."""

import asyncio
import math
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rv.api import handle, job
from rv.api.errors import FailedJobError, UncompletedJobError
from rv.api.executor import _for_many
from rv.api.handle import Handle
from rv.api.job import give_race, new_job
from rv.api.options import launch_options
from rv.api.parameters import as_options
from rv.api.pickles import CallHeader, ResultHeader, dumps, this_python
from rv.models.race import RaceState, RaceStatus
from rv.transport import ScriptResult
from tests.unit.race.test_directory import race


class LateDisk:
    """A transport on which a file is seen after so many looks."""

    def __init__(self, looks: int, data: bytes = b"") -> None:
        self.looks, self.data = looks, data

    def run(self, _script: str, *, timeout_s: float) -> ScriptResult:
        """Look for it."""
        del timeout_s
        self.looks -= 1
        code = 1 if self.looks >= 0 else 0
        return ScriptResult(returncode=code, stdout="", stderr="", timed_out=False)

    def read(self, _path: str, *, limit: int = -1) -> bytes:
        """Read it."""
        del limit
        return self.data


@pytest.fixture
def naps(monkeypatch) -> list[float]:
    """The naps of a client whose clock goes on by them alone."""
    taken: list[float] = []
    clock = SimpleNamespace(time=lambda: 1000.0 + sum(taken), sleep=taken.append)
    monkeypatch.setattr(job, "time", clock)
    return taken


def ended(disk: Any, state: RaceState, code: int | None, tasks: int = 1) -> job.Job[Any]:
    """Return the job of a race that has ended so."""
    cluster: Any = SimpleNamespace(login=object(), transport=disk)
    own = Handle(race(), cluster, "")
    own._end = RaceStatus(race=race(), state=state, exit_code=code, ended_at=1000.0)
    own.read = lambda *_args, **_more: "its last words"  # type: ignore[method-assign]
    made = new_job(Path("/folder/%j"))
    give_race(made, own, header(tasks))
    return made


def header(tasks: int) -> CallHeader:
    """Of a call of so many tasks."""
    return CallHeader(tasks_per_node=tasks, nodes=1, path=(), python=this_python())


RAISED = dumps(ResultHeader(traceback="ZeroDivisionError: of the node"), ZeroDivisionError())


def test_what_a_function_raised_may_come_late(naps):
    """Over a network's file system, as a value may."""
    late = ended(LateDisk(3, RAISED), RaceState.FAILED, 1)
    with pytest.raises(FailedJobError, match="of the node") as caught:
        late.result()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert len(naps) == 3


@pytest.mark.parametrize(
    ("state", "code", "most_s"),
    [
        (RaceState.FAILED, 1, 5),
        (RaceState.FAILED, 137, 0),
        (RaceState.FAILED, None, 0),
        (RaceState.CANCELLED, 1, 0),
        (RaceState.TIMEOUT, None, 0),
        (RaceState.COMPLETED, 0, 30),
    ],
)
def test_nothing_is_waited_for_that_cannot_come(naps, state, code, most_s):
    """A call that was killed has left none."""
    with pytest.raises(UncompletedJobError, match=r"its last words|left no result"):
        ended(LateDisk(99), state, code).result()
    assert sum(naps) == most_s


def test_each_task_has_its_links(tmp_path):
    """To its result and to its node's output; the call is that of all."""
    directory = tmp_path / "race"
    record = race(directory=str(directory))
    made = new_job(tmp_path / "%j")
    give_race(made, Handle(record, SimpleNamespace(login=None), ""), header(3))  # type: ignore[arg-type]
    for task in range(3):
        paths = made.task(task).paths
        assert paths.submitted_pickle.readlink() == directory / "call/submitted.pkl"
        assert paths.result_pickle.readlink() == directory / f"results/{task}.pkl"
        assert paths.stdout.readlink() == directory / "output/node0.out"
        assert paths.stderr.readlink() == directory / "output/node0.err"


@pytest.mark.parametrize(
    ("timeout", "limit"),
    [
        (None, None),
        (math.inf, None),
        (np.float64("inf"), None),
        (np.float32(2.5), timedelta(seconds=2.5)),
        (np.int64(3), timedelta(seconds=3)),
        (timedelta(minutes=1), timedelta(minutes=1)),
        (0, timedelta(0)),
    ],
)
def test_a_timeout_is_any_number(monkeypatch, timeout, limit):
    """Infinity is none; numpy's numbers are numbers."""
    limits = []
    played = RaceStatus(race=race(), state=RaceState.COMPLETED)

    def wait(*args: Any) -> tuple[RaceStatus]:
        limits.append(args[-1])
        return (played,)

    monkeypatch.setattr(handle, "wait_for_races", wait)
    cluster: Any = None
    Handle(race(), cluster, "").wait(timeout)
    assert limits == [limit]
    assert limit is None or type(limits[0].total_seconds()) is float


def test_asyncio_takes_the_same_timeouts(monkeypatch):
    """Its own clock would take numpy's numbers for something else."""
    taken = []
    done: Future[RaceStatus] = Future()
    done.set_result(RaceStatus(race=race(), state=RaceState.COMPLETED))

    async def wait_for(future: Any, seconds: Any) -> Any:
        taken.append(seconds)
        return await future

    monkeypatch.setattr(handle.asyncio, "wait_for", wait_for)
    cluster: Any = None
    own = Handle(race(), cluster, "")
    own.future = lambda: done  # type: ignore[method-assign]
    for timeout in (math.inf, np.float32(2.5), timedelta(seconds=1)):
        asyncio.run(own.wait_async(timeout))
    assert [(each, type(each)) for each in taken] == [
        (None, type(None)),
        (2.5, float),
        (1.0, float),
    ]


@pytest.mark.parametrize(
    ("calls", "parallelism", "most"),
    [(1, None, 12), (1, 1, 12), (1, 256, 12), (2, 256, 6), (2, 2, 6), (3, 2, 1), (20, None, 1)],
)
def test_an_array_below_its_limit_is_raced(tmp_path, monkeypatch, calls, parallelism, most):
    """Each job of one above waits for an earlier one, which must be one job then."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("RV_SITE_CONFIG", str(tmp_path / "none"))
    given = {} if parallelism is None else {"slurm_array_parallelism": parallelism}
    options, shape = as_options(given)
    assert _for_many(launch_options(options), calls, shape).max_submissions == most
