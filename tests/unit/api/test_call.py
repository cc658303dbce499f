"""A call as a node makes it: `python -m rv.api.call` in a race's directory, without a Slurm."""

import concurrent.futures
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest

import rv
from rv.api.pickles import (
    GOES_ON,
    SUBMITTED,
    CallHeader,
    dumps,
    read_call_header,
    read_result_header,
    result_file,
    this_python,
    unpickled,
)

cloudpickle.register_pickle_by_value(sys.modules[__name__])
started: list[subprocess.Popen[str]] = []
PLAIN = CallHeader(tasks_per_node=1, nodes=1, path=(), python=this_python())


class Waits(rv.Checkpointable):
    """Says that it runs, and waits as often as it was not interrupted yet."""

    def __init__(self) -> None:
        self.is_told = False

    def __call__(self) -> str:
        """Wait to be told."""
        sys.stdout.write("runs\n")  # in one piece, which print is not: tasks share the pipe
        while not self.is_told:
            time.sleep(0.05)
        return "told"

    def checkpoint(self) -> rv.DelayedSubmission:
        """Be told."""
        self.is_told = True
        return rv.DelayedSubmission(self)


class Stubborn(Waits):
    """Is told in vain: a bare except swallows it, and the call returns."""

    def __call__(self) -> str:
        """Return what it would, were it not interrupted."""
        try:
            return super().__call__()
        except BaseException:
            return "returned all the same"


@pytest.fixture
def race(tmp_path: Path) -> Iterator[Path]:
    """A race's directory, with the folders that a call writes to."""
    for name in ("call", "checkpoints", "results"):
        (tmp_path / name).mkdir()
    yield tmp_path
    for process in started:
        with process:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    started.clear()


def start(race: Path, call: rv.DelayedSubmission | bytes, header: CallHeader = PLAIN):
    """Make a call, as the job script does."""
    if not (race / SUBMITTED).exists():
        data = call if isinstance(call, bytes) else dumps(header, call)
        (race / SUBMITTED).write_bytes(data)
    root = str(Path(rv.__file__).parents[1])
    env = {**os.environ, "RV_RACE_DIR": str(race), "RV_RACE": "r", "PYTHONPATH": root}
    argv = [sys.executable, "-u", "-m", "rv.api.call"]
    process = subprocess.Popen(
        argv,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    started.append(process)
    return process


def finish(process) -> tuple[int, str]:
    """Wait for its end; its code and its errors."""
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def next_word(race: Path) -> str:
    """What a chain is told."""
    return (race / "checkpoints" / ".rv-next").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_an_interrupted_call_goes_on(race, number):
    """Whichever signal it is; the file of the call as it was stays as it was."""
    process = start(race, rv.DelayedSubmission(Waits()))
    assert process.stdout.readline() == "runs\n"
    before = (race / SUBMITTED).read_bytes()
    process.send_signal(number)
    assert finish(process) == (0, "")
    assert next_word(race) == "again"
    assert not (race / result_file(0)).exists()
    assert finish(start(race, b"")) == (0, "")
    assert unpickled((race / result_file(0)).read_bytes()) == "told"
    assert (next_word(race), (race / SUBMITTED).read_bytes()) == ("done", before)
    assert (race / GOES_ON).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_all_tasks_of_a_node_save_before_the_command_ends(race, number):
    """A preemption's signal reaches the process that started them too: it is not to end first."""
    header = CallHeader(tasks_per_node=2, nodes=1, path=(), python=this_python())
    process = start(race, rv.DelayedSubmission(Waits()), header)
    assert [process.stdout.readline() for _ in range(2)] == ["runs\n"] * 2
    os.killpg(process.pid, number)
    assert finish(process) == (0, "")
    assert next_word(race) == "again"
    assert finish(start(race, b"")) == (0, "")
    assert [unpickled((race / result_file(rank)).read_bytes()) for rank in range(2)] == ["told"] * 2


def test_a_task_that_a_signal_ends_has_the_shells_code(race):
    """128 and the signal's number, as for one task."""
    header = CallHeader(tasks_per_node=2, nodes=1, path=(), python=this_python())
    process = start(race, rv.DelayedSubmission(signal.raise_signal, signal.SIGSEGV), header)
    assert finish(process)[0] == 128 + signal.SIGSEGV


def test_a_cancelled_call_saves_nothing(race):
    """`rv stop` leaves its mark first."""
    process = start(race, rv.DelayedSubmission(Waits()))
    assert process.stdout.readline() == "runs\n"
    (race / "stop").touch()
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 1
    assert not (race / GOES_ON).exists()


def test_a_call_that_returns_all_the_same_is_done(race):
    """Its result counts, and it is not called again."""
    process = start(race, rv.DelayedSubmission(Stubborn()))
    assert process.stdout.readline() == "runs\n"
    process.send_signal(signal.SIGUSR1)
    assert finish(process) == (0, "")
    assert unpickled((race / result_file(0)).read_bytes()) == "returned all the same"
    assert next_word(race) == "done"


def test_what_cannot_be_read_is_told_with_both_versions(race):
    """Another Python, or a module that is not there."""
    line = dumps(CallHeader(tasks_per_node=1, nodes=1, path=(), python="3.9"), None)
    code, err = finish(start(race, line.partition(b"\n")[0] + b"\ncnone_such\nx\n."))
    assert code == 1
    header = read_result_header((race / result_file(0)).read_bytes())
    assert "it was submitted by 3.9" in header.traceback
    assert "No module named 'none_such'" in err


def test_modules_of_the_client_are_found(race, tmp_path):
    """Where its own path leads: the folder of its script, say."""
    (tmp_path / "mods").mkdir()
    (tmp_path / "mods" / "only_there.py").write_text("def f():\n    return 'found'\n")
    header = CallHeader(
        tasks_per_node=1, nodes=1, path=(str(tmp_path / "mods"),), python=this_python()
    )
    call = dumps(header, None).partition(b"\n")[0] + b"\n"
    program = "import sys; sys.path.insert(0, sys.argv[1]); import only_there, rv, cloudpickle; "
    program += "sys.stdout.buffer.write(cloudpickle.dumps(rv.DelayedSubmission(only_there.f)))"
    argv = [sys.executable, "-c", program, str(tmp_path / "mods")]
    pickled = subprocess.run(argv, capture_output=True, check=True).stdout
    assert finish(start(race, call + pickled)) == (0, "")
    assert unpickled((race / result_file(0)).read_bytes()) == "found"


def test_a_header_that_is_none_is_refused():
    """Whatever lies there."""
    for data in (b"", b"no json\n", b"[]\n", b"{}\n", b"\x80\x04N."):
        with pytest.raises(rv.UncompletedJobError, match="no file of rv's"):
            read_call_header(data)


class Forks(rv.Checkpointable):
    """Counts rounds of a pool of forked processes, and who is asked for a checkpoint."""

    def __init__(self, asked: Path) -> None:
        self.asked, self.rounds = asked, 0

    def checkpoint(self) -> rv.DelayedSubmission:
        """Note the process."""
        with self.asked.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return rv.DelayedSubmission(self)

    def __call__(self) -> int:
        """Make pools whose processes have all begun, and end them."""
        forks = multiprocessing.get_context("fork")
        for _ in range(3):
            all_began = forks.Barrier(3)
            with forks.Pool(2, all_began.wait) as pool:
                all_began.wait()
                self.rounds += sum(pool.map(abs, [1]))
        return self.rounds


class Keeps(Forks):
    """Keeps its pool, and has counted before it says that it runs."""

    def __call__(self) -> int:
        """Wait to be interrupted."""
        pool = multiprocessing.get_context("fork").Pool(2)
        self.rounds = sum(pool.map(abs, [3]))
        sys.stdout.write("runs\n")
        while True:
            pool.map(time.sleep, [0.05] * 4)


class Chains(Forks):
    """Has a handler that calls the one before it: a forked process inherits it."""

    def __call__(self) -> int:
        """Set it, and do the same."""
        before = signal.getsignal(signal.SIGTERM)

        def call_it(*args) -> None:
            before(*args)

        signal.signal(signal.SIGTERM, call_it)
        return super().__call__()


class Threads(Forks):
    """Forks in a thread."""

    def __call__(self) -> int:
        """Do the same there."""
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            return threads.submit(super().__call__).result()


@pytest.mark.parametrize("kind", [Forks, Chains, Threads])
def test_the_end_of_forked_processes_saves_nothing(race, kind):
    """A pool ends its workers by SIGTERM, in any run."""
    assert finish(start(race, rv.DelayedSubmission(kind(race / "asked")))) == (0, "")
    assert unpickled((race / result_file(0)).read_bytes()) == 3
    assert not (race / "asked").exists()
    assert not (race / GOES_ON).exists()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_forked_processes_leave_the_checkpoint_to_who_forked_them(race, number):
    """What they have is of the fork; all of them hear the signal, and end with the call."""
    process = start(race, rv.DelayedSubmission(Keeps(race / "asked")))
    assert process.stdout.readline() == "runs\n"
    os.killpg(process.pid, number)
    assert finish(process) == (0, "")
    assert (race / "asked").read_text() == f"{process.pid}\n"
    assert unpickled((race / GOES_ON).read_bytes()).function.rounds == 3
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
