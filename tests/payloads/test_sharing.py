"""Who else is on a GPU: named where it can be, never called a fault of the GPU, never made up."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from _harness import timing
from _processes import processes
from _telemetry.fake import Fake
from _telemetry.sharing import Watch
from contract.nvidia import Smi
from contract.schema import explained

from rv.payloads.contract import codes
from tests.payloads.starting import Launcher

UUID = "5c1f0000-0000-0000-0000-000000000001"
SMI = f"""#!/bin/sh
case "$1" in
  --query-gpu=uuid,mig.mode.current) echo "GPU-{UUID}, $MODE" ;;
  --query-gpu=uuid,utilization*) echo "GPU-{UUID}, 97, 60, 300, 1740, $USED, 5, 16" ;;
  --query-compute-apps=*) printf "$PROCESSES" ;;
esac
"""


@pytest.fixture
def another() -> Iterator[int]:
    """A process that is not below this one's launch: this one's launch is itself."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def seen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *processes: tuple[int, float, str],
    used: float = 4,
    mode: str = "Disabled",
    watches: list[Watch] | None = None,
) -> list[tuple[str, str]]:
    """What a watch finds by an nvidia-smi that lists these processes."""
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(0o755)
    lines = (f"GPU-{UUID}, {pid}, {memory}, {name}\\n" for pid, memory, name in processes)
    monkeypatch.setenv("PROCESSES", "".join(lines))
    monkeypatch.setenv("USED", str(used))
    monkeypatch.setenv("MODE", mode)
    watch = Watch(Smi(str(program), [UUID]), {"cuda:0": UUID})
    watch.start()
    watch.stop()
    if watches is not None:
        watches.append(watch)
    return watch.findings("cuda:0")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under torchrun, whose agent is this process's parent: so children of it are the job's own."""
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


ME = (os.getpid(), 0, "python")


@pytest.mark.usefixtures("alone")
def test_another_process_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its user and memory, by the first word of its name."""
    stranger = (os.getppid(), 4000, "/usr/bin/py\x1b[2Jthon x, y")
    ((code, reason),) = seen(tmp_path, monkeypatch, ME, stranger, used=4600)
    user = Path(f"/proc/{os.getppid()}").owner()
    assert code == "gpu_busy"
    assert f"py?[2Jthon of {user} (process {os.getppid()}, 4000 MiB)" in reason


@pytest.mark.usefixtures("alone")
def test_own_processes_are_not_foreign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, another: int
) -> None:
    """Those below it, and under torchrun those of the other ranks."""
    assert seen(tmp_path, monkeypatch, ME, (another, 4000, "worker"), used=4600) == []
    monkeypatch.setenv("LOCAL_RANK", "0")
    launch = (os.getppid(), 4000, "another rank's, or the agent")
    assert seen(tmp_path, monkeypatch, ME, launch, used=4600) == []


def test_processes_of_the_same_slurm_job_are_not_foreign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A payload beside another program of the job; of another job it is."""
    program = "import subprocess, sys; p = subprocess.Popen(sys.argv[1:]); print(p.pid); p.wait()"
    reader = [sys.executable, "-c", "input()"]
    for job, expected in (("7", []), ("8", ["gpu_busy"])):
        with subprocess.Popen(
            ["setsid", sys.executable, "-uc", program, *reader],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "SLURM_JOB_ID": job},
        ) as parent:  # fmt: skip
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            monkeypatch.setenv("SLURM_JOB_ID", "7")
            monkeypatch.setattr("_processes.processes.parents", lambda _: [])
            found = seen(tmp_path, monkeypatch, ME, (pid, 4000, "server"), used=4600)
            parent.communicate("")
        assert [code for code, _ in found] == expected


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("used", "mode", "processes", "expected"),
    [
        (620, "Disabled", [], []),
        (4600, "Disabled", [(1, 30, "nvidia-cuda-mps-server"), (2, 4500, "python")], []),
        (4600, "Enabled", [(1, 4500, "python")], ["memory_held"]),
        (700, "Disabled", [(4194303, 600, "[Not Found]")], []),
        (4600, "Disabled", [(4194303, 4500, "[Not Found]")], ["memory_held"]),
    ],
    ids=["idle driver", "mps", "mig", "hidden and small", "hidden"],
)
def test_what_cannot_be_seen_shows_by_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: float, mode: str,
    processes: list[tuple[int, float, str]], expected: list[str],
) -> None:  # fmt: skip
    """An idle driver holds some hundred MiB; MPS shares a GPU on purpose."""
    found = seen(tmp_path, monkeypatch, *processes, used=used, mode=mode)
    assert [code for code, _ in found] == expected


@pytest.mark.usefixtures("alone")
def test_a_driver_that_hides_processes_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container: a list without this job's own process is none, and its numbers are others'."""
    monkeypatch.setattr("_processes.processes.has_first_numbers", lambda: False)
    stranger = (os.getppid(), 300, "python")
    watches: list[Watch] = []
    for found, told in (([], None), ([stranger], None), ([ME, stranger], "nvidia-smi")):
        assert len(seen(tmp_path, monkeypatch, *found, watches=watches)) == (told is not None)
        assert watches[-1].details("cuda:0")["asked"] == told


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("error", "pipe", "expected"),
    [(PermissionError, False, "gpu_busy"), (ProcessLookupError, False, ""), (PermissionError, True, "")],
    ids=["hidden", "ended", "mps"],
)  # fmt: skip
def test_whom_proc_hides_is_there_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, another: int, error: type[OSError],
    pipe: bool, expected: str,
) -> None:  # fmt: skip
    """Where it is mounted with hidepid; one that ended is nobody, and MPS has no name then either."""

    def kill(_pid: int, _signal: int) -> None:
        raise error

    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    if pipe:
        (tmp_path / "control").touch()
    whole = processes.proc_stat
    monkeypatch.setattr(processes, "proc_stat", lambda pid: None if pid == another else whole(pid))
    with monkeypatch.context() as patch:
        patch.setattr("os.kill", kill)
        found = seen(tmp_path, patch, ME, (another, 400, "[Not Found]"), used=900)
    assert [code for code, _ in found] == [expected] * bool(expected)
    assert all("a program of" in reason for _, reason in found)


def test_who_comes_during_the_work_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the first look and the last."""
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr("_telemetry.sharing.EVERY_S", 0.01)
    source = Fake(["cpu"], {"held": 0.0})
    watch = Watch(source, {"cpu": "cpu"})
    watch.start()
    assert watch.findings("cpu") == []
    source._faults["busy"] = 1.0
    end_s = time.monotonic() + 60
    while not watch.findings("cpu") and time.monotonic() < end_s:
        watch._thread.join(0.01)
    del source._faults["busy"]
    watch.stop()
    assert [code for code, _ in watch.findings("cpu")] == ["gpu_busy"]


class Clock:
    """A GPU's queue, by a clock of its own: kernels take their time, and another's in between."""

    def __init__(self, *, slice_s: float = 0.0, fed_after: int = 0) -> None:
        self.now_s, self.slice_s, self.begun = 0.0, slice_s, fed_after
        self.cuda, self.tries, self.marks = self, 0, 0

    def device(self, _: str) -> "Clock":
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def synchronize(self) -> None: ...

    def _sleep(self, cycles: int) -> None:
        self.tries += cycles >= timing.AHEAD
        self.work(cycles / 2e9)

    def work(self, seconds: float = 1e-4) -> None:
        """Run a kernel."""
        self.now_s += seconds

    def mark(self) -> float:
        """Give the time; another program has its slice after every twentieth kernel."""
        self.marks += 1
        if self.marks % 40 == 1:
            self.now_s += self.slice_s
        return self.now_s

    def Event(self, **_: object) -> "Event":  # noqa: N802 - torch's own
        return Event(self)


class Event:
    """A moment of that clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.at_s = clock, 0.0

    def record(self) -> None:
        self.at_s = self.clock.mark()

    def query(self) -> bool:
        return self.clock.tries <= self.clock.begun

    def elapsed_time(self, other: "Event") -> float:
        return (other.at_s - self.at_s) * 1e3


def test_short_kernels_show_the_time_that_another_takes() -> None:
    """Each of them is as fast as alone; all of them together are not."""
    assert timing.own_share(Clock(), "cuda:0") == pytest.approx(1.0)
    share = timing.own_share(Clock(slice_s=2e-3), "cuda:0")
    assert share is not None
    assert 0.4 < share < 0.6
    assert timing.own_share(None, "cpu") is None


def test_a_gpu_that_waits_for_this_process_is_not_called_shared() -> None:
    """What is queued too slowly is queued again behind a longer wait, and then left out."""
    slow = Clock(fed_after=2)
    assert timing.own_share(slow, "cuda:0") == pytest.approx(1.0)
    assert slow.tries == 3
    assert timing.own_share(Clock(fed_after=99), "cuda:0") is None


def test_what_is_done_between_the_rounds_is_no_part_of_their_time() -> None:
    """As where outputs are compared, and poisoned again."""
    gpu = Clock()
    rounds = 2 * timing.CHUNK + 1
    timed = timing.time_all(gpu, "cuda:0", gpu.work, rounds, lambda: gpu.work(5e-3))
    assert len(timed.each) == rounds
    assert timed.whole == pytest.approx(rounds * 1e-4)
    assert timed.share == pytest.approx(1.0)


def test_what_others_on_the_gpu_explain_is_no_hardware() -> None:
    """A slow speed of that device, or of all together, but never a wrong result."""

    def outcome(code: str, device: str | None) -> dict[str, object]:
        meaning = codes.meaning(code)
        about = {"class": meaning.fault, "action": meaning.action}
        return {"code": code, "device": device, "host": "a1", **about}

    tests = [
        outcome("gpu_busy", "cuda:1"),
        outcome("below_floor", "cuda:1"),
        outcome("peer_outlier", "cuda:0"),
        outcome("straggler", None),
        outcome("wrong_result", "cuda:1"),
    ]
    classes = [test["class"] for test in explained(tests)]
    assert classes == ["CONTENTION", "CONTENTION", "HARDWARE", "CONTENTION", "HARDWARE"]
    assert explained(tests[1:2]) == tests[1:2]


WORDS = ["--device", "cpu", "--quick", "--size", "64", "--dtypes", "fp32"]


def test_a_model_without_reference_is_a_warning(launch: Launcher, tmp_path: Path) -> None:
    """That its speed was not judged is said, and what to do."""
    done = launch("check", tmp_path, *WORDS, "--inject", "unknown-model")

    assert done.code == 0
    assert done.last == "[RESULT] WARN: no reference for a made-up GPU: speed not judged"
    assert done.test("speed")["code"] == "no_reference"


def test_others_are_a_warning_where_they_are_allowed(launch: Launcher, tmp_path: Path) -> None:
    """By rv's option, or the payload's own."""
    done = launch("check", tmp_path, *WORDS, "--inject", "busy", RV_ALLOW_BUSY_GPUS="1")
    assert (done.code, done.test("contention")["status"]) == (0, "WARN")
    done = launch("check", tmp_path, *WORDS, "--inject", "held", "--allow-busy-gpus")
    assert (done.code, done.test("contention")["status"]) == (0, "WARN")
