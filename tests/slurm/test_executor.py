"""Functions and commands from Python, on a real Slurm: submitit's examples, and what goes wrong.

The examples are those of submitit's README, docs/examples.md and docs/checkpointing.md, and the
idioms those of its tests, with one line changed: the import.
"""

import asyncio
import concurrent.futures
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from operator import truediv
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import rv
import rv as submitit

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the nodes need no pytest


@pytest.fixture(autouse=True)
def races(on_small, tmp_path, monkeypatch) -> Path:
    """A folder of the test's own for its races; the client's folder is another."""
    monkeypatch.setenv("RV_RACE_ROOT", str(tmp_path / "races"))
    monkeypatch.setenv("RV_SITE_CONFIG", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "races"


@pytest.fixture
def executor(tmp_path) -> submitit.AutoExecutor:
    """submitit's own way to make one."""
    made = submitit.AutoExecutor(folder=tmp_path / "log_test" / "%j")
    made.update_parameters(timeout_min=4, slurm_partition="gpu", cpus_per_task=1, mem_gb=1)
    return made


def add(a: int, b: int) -> int:
    """Add, and say so."""
    print(f"adding {a} and {b}")
    return a + b


def test_the_readmes_example(executor):
    """Submit, look, wait, read; pick the job up again by its id, or from a pickle."""
    job = executor.submit(add, 5, 7)
    assert job.result() == 12
    assert job.results() == [12]
    assert job.exception() is None
    assert (job.state, job.done(), job.num_tasks, job.task_id) == ("COMPLETED", True, 1, 0)
    assert job.stdout() == "adding 5 and 7\n"
    assert job.task(0) is job
    assert job.paths.folder.name == job.job_id
    assert job.paths.stdout.read_text() == "adding 5 and 7\n"
    assert job.paths.result_pickle.stat().st_mode & 0o777 == 0o600
    assert job.paths.submitted_pickle.stat().st_mode & 0o777 == 0o600
    assert job.submission().args == (5, 7)
    again = submitit.Job(executor.folder, job.job_id)
    assert again.result() == pickle.loads(pickle.dumps(job)).result() == 12
    assert submitit.Race(job.job_id).state is submitit.RaceState.COMPLETED


def note_times(_: int) -> tuple[float, float]:
    """Say when it ran."""
    began = time.time()
    time.sleep(0.3)
    return began, time.time()


def test_an_array_runs_so_many_at_a_time(executor):
    """Slurm itself sees to it: no client is needed."""
    executor.update_parameters(slurm_array_parallelism=2)
    times = [job.result() for job in executor.map_array(note_times, range(5))]
    for began, _ in times:
        assert sum(other <= began < end for other, end in times) <= 2


def test_an_array_is_planned_once(executor, tmp_path, monkeypatch):
    """Twenty jobs: Slurm is asked what it is as often as for one, and each is a job of its own."""
    calls = tmp_path / "calls"
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("scontrol", "squeue", "sacctmgr"):
        real = subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout
        note = f'[ -n "$SLURM_JOB_ID" ] || echo {name} >>{calls}'  # not what jobs ask
        (folder / name).write_text(f'#!/bin/sh\n{note}\nexec {real.strip()} "$@"\n')
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # with no earlier answer
    jobs = executor.map_array(add, range(20), range(20))
    assert len(calls.read_text().split()) <= 12
    assert [job.result() for job in jobs] == list(range(0, 40, 2))
    assert len({job.job_id for job in jobs}) == 20


def test_a_batch_is_submitted_at_its_end(executor, races):
    """Inside of it a job is an empty shell; an error drops all of it."""
    with executor.batch():
        jobs = [executor.submit(add, k, 1) for k in range(3)]
        with pytest.raises(submitit.RvError, match="not submitted before"):
            jobs[0].job_id  # noqa: B018
        with pytest.raises(submitit.RvError, match="inside a batch"):
            executor.update_parameters(timeout_min=1)
        assert not races.exists()
    assert [job.result() for job in jobs] == [1, 2, 3]
    before = len(list(races.glob("[!.]*")))
    with pytest.raises(ZeroDivisionError), executor.batch():  # noqa: PT012
        executor.submit(add, 1, 1)
        executor.submit(add, 1, len(jobs) // 0)
    assert len(list(races.glob("[!.]*"))) == before
    with pytest.warns(RuntimeWarning, match="nothing was submitted"), executor.batch():
        pass


def test_jobs_are_futures_and_awaitables(executor):
    """concurrent.futures, submitit's as_completed and asyncio wait for them, all by one thread."""
    with executor.batch():
        jobs = [executor.submit(add, k, 0) for k in range(4)]
        wrong = executor.submit(truediv, 1, 0)
    done, _ = concurrent.futures.wait([job.future() for job in jobs], timeout=60)
    assert sorted(future.result() for future in done) == [0, 1, 2, 3]
    assert "ZeroDivisionError" in str(wrong.future().exception(timeout=60))
    assert set(submitit.helpers.as_completed(jobs, timeout=60)) == set(jobs)

    async def all_of_them() -> list[int]:
        slow = executor.submit(time.sleep, 1)
        assert await slow.awaitable().result(0.1) is None  # submitit's poll_interval, no timeout
        return await asyncio.gather(*(job.awaitable().result() for job in jobs))

    assert asyncio.run(all_of_them()) == [0, 1, 2, 3]
    assert sum(thread.name == "rv-watcher" for thread in threading.enumerate()) <= 1


class Refuses:
    """A value that raises where it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return truediv, (1, 0)


class OddError(Exception):
    """An exception that cannot be pickled."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.lock = threading.Lock()


class TwoNamesError(Exception):
    """An exception that can be pickled and not be read."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(one + other)


def raise_two_names() -> None:
    """Raise it."""
    raise TwoNamesError("a", "b")


def raise_odd() -> None:
    """Raise it."""
    raise OddError("odd indeed")


def test_what_goes_wrong_is_told_with_its_traceback(executor, monkeypatch):
    """Of the function, of its result, of its end."""
    monkeypatch.setattr("rv.api.job._LATE_S", 2.0)
    monkeypatch.setattr("rv.api.job._SOON_S", 0.0, raising=False)
    calls = {
        "ZeroDivisionError: division by zero": lambda: 1 / 0,
        "OddError: odd indeed": raise_odd,
        "TwoNamesError: ab": raise_two_names,
        "the result cannot be pickled": threading.Lock,
        "cannot be read here: ZeroDivisionError": Refuses,
        "SystemExit: 3": lambda: sys.exit(3),
        "ended with code 0 and left no result": lambda: os._exit(0),
        "ended as FAILED with code 137": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "": lambda: b"x" * (30 << 20),
    }
    jobs = executor.submit_array(list(calls.values()))
    for says, job in zip(calls, jobs, strict=True):
        if says:
            with pytest.raises(submitit.UncompletedJobError, match=says) as caught:
                job.result(60)
            assert caught.value.kind is rv.ErrorKind.JOB
            assert says in str(job.exception())
        else:
            assert len(job.result(60)) == 30 << 20
    assert isinstance(jobs[0].exception().__cause__, ZeroDivisionError)
    assert "cannot be read" not in str(jobs[2].exception())
    assert "division by zero" in jobs[0].stderr()


def fail_until(there: Path) -> str:
    """Fail where a file is missing."""
    return there.read_text()


def rerun(job: rv.Job[Any]) -> rv.Job[Any]:
    """Do what a person does, and return the job of the new race."""
    argv = [sys.executable, "-m", "rv", "rerun", job.job_id, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    return rv.Job("logs", json.loads(done.stdout)["race"])


def test_a_job_is_raced_again(executor, tmp_path):
    """As often as one likes, from the command line."""
    there = tmp_path / "there"
    job = executor.submit(fail_until, there)
    assert str(there) in str(job.exception(60))
    assert str(there) in str(rerun(job).exception(60))
    there.write_text("it")
    assert rerun(job).result(60) == "it"


def test_a_stopped_chain_is_raced_on_from_the_call_that_it_saved(executor, eventually):
    """As any chain from its last checkpoint: no count is lost or repeated."""
    job = executor.submit(Steps(Counts()))
    eventually(lambda: "count 3" in (job.stdout() or ""))
    job._interrupt(timeout=True)
    eventually(lambda: Path(job.race.directory, "checkpoints/submitted.pkl").exists())
    job.cancel()
    job.wait(60)
    again = rerun(job)
    count, jobs = again.result(60)
    assert (count, len(jobs)) == (20, 2)
    assert again.submission().function.counts.count == 0
    assert "count 3\n" not in again.stdout()


def test_a_call_that_cannot_be_pickled_is_refused(executor, races):
    """Before anything is submitted."""
    lock = threading.Lock()
    with pytest.raises(submitit.RvError, match="cannot be pickled: TypeError"):
        executor.submit(lambda: lock)
    with pytest.raises(submitit.RvError, match="cannot be pickled"):
        executor.map_array(add, [1, lock], [2, 3])
    assert not races.exists()
    (races.parent / "file").write_text("")
    with pytest.raises(submitit.RvError, match="cannot be made"):
        submitit.Executor(races.parent / "file" / "%j").submit(add, 1, 2)
    assert not races.exists()


def test_a_result_of_another_user_is_not_read(executor):
    """Nor through a link: whoever writes a pickle decides what is done here."""
    job = executor.submit(add, 1, 2)
    job.wait()
    own = Path(job.race.directory, "results", "0.pkl")
    elsewhere = own.with_name("mine")
    own.rename(elsewhere)
    own.symlink_to(elsewhere)
    assert job._handle.read_own("results/0.pkl") is None
    own.unlink()
    elsewhere.rename(own)
    assert job.result() == 3
    if os.geteuid() == 0:
        os.chown(own, 65534, 65534)
        assert job._handle.read_own("results/0.pkl") is None


def test_a_race_whose_files_are_gone_says_so(executor, monkeypatch):
    """By rv's own errors, whatever is asked; nothing waits for what cannot come."""
    monkeypatch.setattr("rv.api.job._LATE_S", 0.0)
    monkeypatch.setattr("rv.api.job._SOON_S", 0.0, raising=False)
    job = executor.submit(add, 1, 2)
    job.wait()
    Path(job.race.directory, "call/submitted.pkl").write_bytes(b"{}")
    with pytest.raises(submitit.UncompletedJobError, match="damaged"):
        job.submission()
    shutil.rmtree(job.race.directory)
    assert (job.state, job.done()) == ("COMPLETED", True)
    for ask in (job.result, lambda: job.future().result(5)):
        with pytest.raises(submitit.UncompletedJobError, match="left no result"):
            ask()
    job.cancel()
    with pytest.raises(submitit.RvError, match="is no race here"):
        pickle.loads(pickle.dumps(job))


def test_more_than_one_may_submit_are_refused_before_anything_is(
    executor, races, tmp_path, monkeypatch
):
    """With how many would go; as many do, though Slurm would let each race have several jobs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # of what the limits were
    modify = ["sacctmgr", "-i", "modify", "qos", "normal", "set"]
    subprocess.run([*modify, "MaxSubmitJobsPerUser=4"], check=True, capture_output=True)
    try:
        with pytest.raises(submitit.RvError, match="leaves room for 4") as caught:
            executor.map_array(add, range(5), range(5))
        assert caught.value.kind is rv.ErrorKind.LIMIT
        assert not races.exists()
        executor.update_parameters(fanout="each", max_submissions=4, gpus=1)
        jobs = executor.map_array(add, range(4), range(4))
        assert [job.result(60) for job in jobs] == [0, 2, 4, 6]
    finally:
        subprocess.run([*modify, "MaxSubmitJobsPerUser=-1"], check=True, capture_output=True)


class Counts(submitit.helpers.Checkpointable):
    """Counts as far as it is told, and knows in which jobs it did."""

    def __init__(self) -> None:
        self.count = 0
        self.jobs: list[str] = []

    def __call__(self, last: int, step_s: float) -> tuple[int, list[str]]:
        self.jobs.append(submitit.JobEnvironment().raw_job_id)
        while self.count < last:
            self.count += 1
            print(f"count {self.count}", flush=True)
            time.sleep(step_s)
        return self.count, self.jobs


class StopsThere(Counts):
    """Does not want to go on."""

    def checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Return nothing."""


def test_an_interrupted_callable_goes_on_from_its_checkpoint(executor, eventually):
    """At the end of its time, in another job, with its own state; no count is lost or repeated."""
    job, ends = executor.submit_array([Steps(Counts()), Steps(StopsThere())])
    for each in (job, ends):
        eventually(lambda each=each: "count 3" in (each.stdout() or ""))
        each._interrupt(timeout=True)
    count, jobs = job.result(60)
    assert (count, len(jobs), len(set(jobs))) == (20, 2, 2)
    assert job.stdout().split("\n")[:-1] == [f"count {each}" for each in range(1, 21)]
    with pytest.raises(submitit.UncompletedJobError, match="None"):
        ends.result(60)


class Steps:
    """A callable of no arguments with a checkpoint of its own making, as submitit spells it."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts

    def __call__(self) -> tuple[int, list[str]]:
        return self.counts(20, 0.3)

    def __submitit_checkpoint__(self) -> submitit.DelayedSubmission | None:
        goes_on = self.counts.checkpoint(20, 0.3)
        return goes_on and submitit.helpers.DelayedSubmission(Steps(self.counts))


def who_am_i() -> tuple[int, int, int, int]:
    """The task's numbers; the first of them fails."""
    here = submitit.JobEnvironment()
    print(f"task {here.global_rank}")
    assert len(here.hostnames) == here.num_nodes == 2
    return here.global_rank, here.num_tasks, here.node, here.local_rank


def fail_in_the_second() -> int:
    """One task of several fails."""
    rank = submitit.JobEnvironment().global_rank
    return 1 // (1 - rank)


def test_several_tasks_on_several_nodes(executor):
    """Each result is a task's; of several errors the first counts."""
    executor.update_parameters(tasks_per_node=2, nodes=2, gpus_per_node=1)
    job, wrong = executor.submit_array([who_am_i, fail_in_the_second])
    assert job.results(60) == [(0, 4, 0, 0), (1, 4, 0, 1), (2, 4, 1, 0), (3, 4, 1, 1)]
    assert job.task(2).result() == (2, 4, 1, 0)
    assert (job.task_id, job.task(2).task_id) == (None, 2)
    assert job.task(2).task(0).task_id == 2
    assert sorted(job.stdout().split("\n")[:-1]) == [f"task {rank}" for rank in range(4)]
    with pytest.raises(submitit.RvError, match="4 tasks"):
        job.result()
    with pytest.raises(submitit.FailedJobError, match="task 1"):
        wrong.results(60)
    assert wrong.task(0).result() == 1


def test_a_cancelled_job_and_a_timeout(executor):
    """The waiting ends, the job does not; cancelled it has no result, and says so."""
    job = executor.submit(time.sleep, 300)
    with pytest.raises(TimeoutError):
        job.result(timeout=0.1)
    assert not job.done()
    job.cancel()
    with pytest.raises(submitit.UncompletedJobError, match="CANCELLED"):
        job.result(60)
    assert job.state == "CANCELLED"
    assert not isinstance(job.exception(), submitit.FailedJobError)


def test_threads_and_forks_submit_too(executor):
    """Eight threads at once, and a child process while a watcher's thread runs here."""
    sleeper = executor.submit(time.sleep, 1)
    future = sleeper.future()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda k: executor.submit(add, k, k), range(8)))
        assert list(pool.map(lambda job: job.result(60), jobs)) == list(range(0, 16, 2))
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if executor.submit(add, 1, 1).future().result(60) == 2 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert future.result(60) is None


def test_commands_are_planned_launched_and_read():
    """A plan submits nothing; a race's output is its result, and its failure has its last lines."""
    planned = rv.plan(gpus=1, types=["a100"], time="10m")
    assert {strategy.gpu for strategy in planned.strategies} == {"a100-80"}
    with pytest.raises(rv.RvError) as infeasible:
        rv.plan(gpus=999)
    assert infeasible.value.kind is rv.ErrorKind.INFEASIBLE
    race = rv.launch("echo out; echo err >&2", gpus=1, time="5m", name="mine", env={"A": "b"})
    assert race.result(60) == "out\n"
    assert (race.state, race.exit_code, race.name, race.logs("err")) == (
        "COMPLETED",
        0,
        "mine",
        "err\n",
    )
    assert rv.Race("mine").id == race.id
    failed = rv.launch(["bash", "-c", "echo last words >&2; exit 3"])
    with pytest.raises(rv.FailedJobError, match=r"with code 3(.|\n)*last words"):
        failed.result(60)
    assert failed.exit_code == 3
    with pytest.raises(rv.RvError, match="is no race here"):
        rv.Race("none-of-that-name")
    with pytest.raises(rv.RvError, match="is no call"):
        rv.Job("logs", failed.id).result()


def test_asyncio_launches_and_waits():
    """The loop goes on meanwhile; a wait that is cancelled leaves the race."""

    async def program() -> tuple[list[str], rv.RaceState]:
        races = await asyncio.gather(*(rv.launch_async(f"sleep 0.5; echo {k}") for k in range(2)))
        out = await asyncio.gather(*(race.result_async(60) for race in races))
        unheard = asyncio.create_task(rv.launch_async("sleep 300", name="unheard"))
        await asyncio.sleep(0)  # it has begun, and cannot have ended
        unheard.cancel()
        with pytest.raises(asyncio.CancelledError):
            await unheard
        assert rv.Race("unheard").wait(60) is rv.RaceState.CANCELLED
        sleeper = await rv.launch_async("sleep 300")
        with pytest.raises(TimeoutError):
            await sleeper.wait_async(0.2)
        sleeper.cancel()
        return out, await sleeper.wait_async(60)

    assert asyncio.run(program()) == (["0\n", "1\n"], "CANCELLED")


def test_what_is_written_is_followed():
    """As it comes, and to its end; a character that came in two parts is whole."""
    half = r"printf 'a\303'; sleep 1.2; printf '\251b\n'"
    assert "".join(rv.launch(half, gpus=0).follow("out")) == "a\u00e9b\n"


def test_a_client_may_die_or_be_interrupted(eventually, tmp_path):
    """Ctrl-C ends the waiting alone; whoever comes next finds the race by its id."""
    program = "import rv; race = rv.launch('sleep 2; echo there'); print(race.id, flush=True); race.wait()"
    for number in (signal.SIGINT, signal.SIGKILL):
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as client:
            race_id = client.stdout.readline().strip()
            client.send_signal(number)
            _, err = client.communicate(timeout=30)
        assert client.returncode == -number or "KeyboardInterrupt" in err
        assert rv.Race(race_id).result(60) == "there\n"


def test_nothing_is_printed(executor, capfd):
    """By a launch, a failure and a wait."""
    job = executor.submit(truediv, 1, 0)
    job.exception()
    rv.launch("false").wait()
    assert capfd.readouterr() == ("", "")


HYDRA = """
import os
import hydra

@hydra.main(version_base=None, config_path=None, config_name=None)
def main(config):
    assert os.environ["SLURM_JOB_ID"]
    print("lr is", config.lr)
    return config.lr * 2

if __name__ == "__main__":
    main()
"""


def test_hydras_sweep_goes_through_rv_by_one_option(tmp_path, races):
    """`hydra/launcher=rv`; each job is a race, in the folder that Hydra gives it."""
    (tmp_path / "app.py").write_text(HYDRA)
    argv = [sys.executable, "app.py", "-m", "hydra/launcher=rv", "+lr=1,2", "hydra.sweep.dir=out"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = [path.read_text() for path in races.glob("*/output/node0.out")]
    assert sorted(outputs) == ["lr is 1\n", "lr is 2\n"]
    overrides = [(tmp_path / "out" / n / ".hydra/overrides.yaml").read_text() for n in "01"]
    assert overrides == ["- +lr=1\n", "- +lr=2\n"]


def test_the_example_runs(tmp_path):
    """From a folder of the user's own."""
    program = Path(__file__).parents[2] / "examples" / "python_api.py"
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "ways to get 1 GPU" in done.stdout
    assert sorted(done.stdout.split("\n")[-5:-1]) == ["0", "1", "4", "9"]
