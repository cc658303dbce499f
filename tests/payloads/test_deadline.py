"""The watch over a payload's time and signals, in a process of its own."""

import os
import subprocess
import sys

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
