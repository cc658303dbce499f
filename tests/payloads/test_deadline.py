"""The watch over a payload's time and signals, in a process of its own."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.payloads.starting import PAYLOADS

SLOW_FORK = "os.register_at_fork(after_in_child=lambda: time.sleep(0.5))"
"""What others do in a child that is just forked, before the watch's own handlers run there."""

WATCHED = f"""
import os, signal, time
{SLOW_FORK}
from _harness import deadline
deadline.GRACE = 0.1
ended = []
for _ in range(int(os.environ["WATCHES"])):
    stop = deadline.watch(60, lambda why, code: ended.append(why))
"""


def run(code: str, watches: int) -> str:
    """Run code below a watch; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED + code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PAYLOADS), "WATCHES": str(watches)},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("watches", [1, 2], ids=["watched once", "again"])
def test_a_signal_to_a_child_just_forked_is_the_childs(watches: int) -> None:
    """A pool ends its workers as soon as it has its answers: one may be that young."""
    code = """
child = os.fork()
if not child:
    time.sleep(30)
    os._exit(0)
os.kill(child, signal.SIGTERM)
_, status = os.waitpid(child, 0)
time.sleep(0.5)
print(os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM, ended)
"""
    assert run(code, watches) == "True []\n"


@pytest.mark.parametrize("watches", [1, 2], ids=["watched once", "again"])
def test_after_a_fork_signals_are_heard_as_before(watches: int) -> None:
    """By the main thread first, then by the watch."""
    code = """
child = os.fork()
if not child:
    os._exit(0)
os.waitpid(child, 0)
try:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)
except KeyboardInterrupt:
    until = time.monotonic() + 20
    while not ended and time.monotonic() < until:
        time.sleep(0.05)
    print("interrupted", *set(ended))
"""
    assert run(code, watches) == "interrupted stopped by SIGTERM\n"


RANK_0_OF_2 = """
import ctypes, os, signal, sys, threading, time
from _harness.main import Payload, run

def body(session):
    {body}

run(Payload("mine", "A test.", body), ["--timeout", "600", "--report-dir", sys.argv[1]])
"""
TERM_IN_2_S = "threading.Timer(2, os.kill, (os.getpid(), signal.SIGTERM)).start()"


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        (f"{TERM_IN_2_S}; time.sleep(500)", {"interrupted", "rank_missing"}),
        (TERM_IN_2_S, {"rank_missing"}),
        (
            f"{TERM_IN_2_S}; signal.set_wakeup_fd(-1); signal.signal(signal.SIGTERM, print)",
            {"rank_missing"},
        ),
    ],
    ids=["in the work", "after it", "after work with its own handler"],
)
def test_the_first_rank_ends_soon_after_sigterm(tmp_path: Path, body: str, codes: set[str]) -> None:
    """Whatever rank it waits for: Slurm and torchrun kill it after 30 s, and all that was found."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PAYLOADS)}
    env |= {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    subprocess.run(
        [sys.executable, "-c", RANK_0_OF_2.replace("{body}", body), str(tmp_path)],
        env=env, timeout=180,
    )  # fmt: skip

    document = json.loads((tmp_path / "mine_result.json").read_text())
    assert {test["code"] for test in document["tests"]} - {None} == codes


def test_a_rank_that_needs_its_grace_is_waited_for(tmp_path: Path) -> None:
    """Rank 0 stands in Python when both are told to end, and rank 1 in C, where nothing hears it."""
    in_python = "time.sleep(500)"
    in_c = (
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); ctypes.CDLL(None).sleep(500)"
    )
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PAYLOADS)}
    env |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    begun = [tmp_path / f"begun.{rank}" for rank in range(2)]
    started = [
        subprocess.Popen(
            [
                sys.executable, "-c",
                RANK_0_OF_2.replace("{body}", f"open({str(begun[rank])!r}, 'w').close(); {work}"),
                str(tmp_path),
            ],
            env=env | {"RANK": str(rank)},
        )
        for rank, work in enumerate((in_python, in_c))
    ]  # fmt: skip
    deadline = time.monotonic() + 180
    while not all(path.exists() for path in begun) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    for each in started:
        each.terminate()
        time.sleep(0.5)  # whoever sends it takes its time, too
    assert [each.wait(180) for each in started] == [143, 143]
    document = json.loads((tmp_path / "mine_result.json").read_text())
    assert {test["code"] for test in document["tests"]} == {"interrupted"}


LATE = """
import os, signal

class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGUSR1):
        kill(pid, number)

late = Late()  # Python forgets it when its handlers are gone
"""


def ended_late(folder: Path, program: str, **env: str) -> int:
    """Run a program that gets SIGUSR1 while Python ends; its exit code."""
    (folder / "late.py").write_text(LATE)
    env |= {"PATH": os.environ["PATH"], "PYTHONPATH": f"{PAYLOADS}:{folder}"}
    command = [sys.executable, "-c", f"import late\n{program}"]
    return subprocess.run(command, env=env, cwd=folder, timeout=60).returncode


def test_a_signal_that_comes_while_python_ends_does_not_kill_a_payload(tmp_path: Path) -> None:
    """Another rank, told to save before this one, may have ended the work of both."""
    payload = """
from _harness.main import Payload, run

run(Payload("mine", "A test.", lambda session: session.report.add("mine", "PASS")), [])
"""
    assert ended_late(tmp_path, payload) == 0


def test_nor_the_example_of_a_run_that_can_be_interrupted(tmp_path: Path) -> None:
    program = Path(__file__).parents[2] / "examples" / "resume.py"
    example = f"""
import runpy, sys

sys.argv = ["resume.py", "0"]
runpy.run_path({str(program)!r}, run_name="__main__")
"""
    assert ended_late(tmp_path, example, RV_CHECKPOINT_DIR=str(tmp_path)) == 0
