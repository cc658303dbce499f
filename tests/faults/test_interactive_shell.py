"""The shell of `rv up`: GPUs for who sits at it, and for nobody else."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.faults.terminal import Terminal, Tmux
from tests.faults.world import World, eventually

LEASE_S = 4
QUICK = (
    "-c",
    "import rv.workflow.interactive_shell as s, rv.__main__ as m; s._RENEW_S = 1; m.main()",
)
"""rv, which renews its lease every second."""


def open_shell(world: World, terminals: list[Terminal]) -> Terminal:
    """Type `rv up` and see the prompt of a shell in the allocation."""
    terminal = Terminal(world, "up", "-g", "2")
    terminals.append(terminal)
    terminal.shows("started on")
    terminal.types('echo "race=<$RV_RACE> job=<$SLURM_JOB_ID> gpus=<$CUDA_VISIBLE_DEVICES>"')
    (directory,) = world.races()
    terminal.shows(f"race=<{directory.name}>")
    return terminal


def test_a_shell_in_the_allocation(world: World, terminals: list[Terminal]) -> None:
    """It knows its race and its GPUs; on exit the allocation is released at once."""
    terminal = open_shell(world, terminals)
    terminal.shows("gpus=<0,1>")
    assert f"job=<{world.race()['winner']['job_id']}>" in terminal.said
    terminal.types("exit")
    assert terminal.wait() == 0
    world.wait_for_the_end_of_jobs(30)
    race = world.race()
    assert (race["state"], race["exit_code"]) == ("COMPLETED", 0)


def test_interrupt_belongs_to_the_shell(world: World, terminals: list[Terminal]) -> None:
    """Ctrl-C ends what runs in it, not the shell and not rv."""
    terminal = open_shell(world, terminals)
    terminal.types("sleep 300; echo no")
    eventually(lambda: _running("sleep 300"))
    os.write(terminal.handle, b"\x03")
    terminal.types("echo still $((40 + 2))")
    terminal.shows("still 42")
    terminal.types("exit 3")
    assert terminal.wait() == 3, "a shell's exit code is rv's"
    world.wait_for_the_end_of_jobs(30)


def _running(line: str) -> bool:
    """Whether a process with this command line is there."""
    wanted = line.replace(" ", "\0").encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().rstrip(b"\0") == wanted:
                return True
        except OSError:
            continue
    return False


def short_lease(world: World) -> None:
    """Some seconds instead of five minutes."""
    lease = str(LEASE_S)
    world.override("_hold.sh.j2", lambda text: text.replace("{{ lease_seconds }}", lease))


def test_the_allocation_of_a_dead_client_ends_with_its_lease(
    world: World, terminals: list[Terminal]
) -> None:
    """Killed before anybody sat at the shell: nobody renews, the job goes."""
    short_lease(world)
    world.wrap("srun", 'at; exec "$real" "$@"')
    terminal = Terminal(world, "up")
    terminals.append(terminal)
    world.reached("srun")
    terminal.kill()
    assert world.race()["state"] in ("RUNNING", "COMPLETED")
    eventually(lambda: not world.live_jobs(), 60)
    assert world.settled("COMPLETED")["exit_code"] == 0


def test_a_shell_waits_for_gpus_and_ctrl_c_gives_up(
    world: World, terminals: list[Terminal]
) -> None:
    """Before there is a winner Ctrl-C stops the race."""
    release = world.fill()
    terminal = Terminal(world, "up")
    terminals.append(terminal)
    terminal.shows("waiting")
    os.write(terminal.handle, b"\x03")
    assert terminal.wait() == 130
    assert world.live_jobs() == []
    release()
    assert world.race()["state"] == "CANCELLED"


# A terminal that goes away


def open_in_tmux(world: World) -> Tmux:
    """Type `rv up` in tmux, and let a program run in the shell."""
    tmux = Tmux(world, "up")
    tmux.shows("started on")
    tmux.types("echo in job=$SLURM_JOB_ID")
    tmux.shows(f"in job={world.race()['winner']['job_id']}")
    tmux.types("sleep 4321")
    eventually(lambda: _running("sleep 4321"))
    return tmux


@pytest.mark.parametrize("end", [Tmux.close, Tmux.kill], ids=["closed", "killed"])
def test_a_closed_terminal_gives_the_gpus_back(world: World, end: Callable[[Tmux], None]) -> None:
    """At once, and what ran in the shell is over too."""
    end(open_in_tmux(world))
    world.wait_for_the_end_of_jobs(30)
    assert not _running("sleep 4321")
    race = world.settled("COMPLETED")
    assert race["exit_code"] == 0, race["why"]


def test_a_terminal_that_is_closed_while_the_jobs_wait(world: World) -> None:
    """Nobody could use what they would get: none of them may start."""
    release = world.fill()
    tmux = Tmux(world, "up")
    tmux.shows("waiting")
    tmux.close()
    world.wait_for_the_end_of_jobs(30)
    release()
    assert world.settled("CANCELLED")["winner"] is None


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_to_rv_gives_the_gpus_back(
    world: World, terminals: list[Terminal], number: signal.Signals
) -> None:
    """The terminal is still there, and says so."""
    terminal = open_shell(world, terminals)
    os.kill(terminal.pid, number)
    assert terminal.wait() == 128 + number
    assert "the GPUs are released" in terminal.said
    assert "Traceback" not in terminal.said
    world.wait_for_the_end_of_jobs(30)


def test_rv_that_ignores_hang_ups_goes_on(world: World, terminals: list[Terminal]) -> None:
    """As under nohup: what was ignored from the beginning stays so."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        terminal = open_shell(world, terminals)
    finally:
        signal.signal(signal.SIGHUP, before)
    os.kill(terminal.pid, signal.SIGHUP)
    terminal.types("echo still $((40 + 2))")
    terminal.shows("still 42")
    terminal.types("exit")
    assert terminal.wait() == 0
    world.wait_for_the_end_of_jobs(30)


def test_a_login_node_that_crashes_under_an_open_shell(
    world: World, terminals: list[Terminal]
) -> None:
    """The shell on the node goes on, but rv renews its lease no more: the job ends."""
    short_lease(world)
    terminal = Terminal(world, "up", program=QUICK)
    terminals.append(terminal)
    terminal.shows("started on")
    terminal.types("echo here $((40 + 2))")
    terminal.shows("here 42")
    deadline = time.monotonic() + 3 * LEASE_S
    while time.monotonic() < deadline:
        assert len(world.live_jobs()) == 1, "ended although rv renews its lease"
        time.sleep(0.5)
    for process in psutil.Process(terminal.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it had just ended
            process.kill()
    terminal.kill()
    world.wait_for_the_end_of_jobs(30)
    assert world.settled("COMPLETED")["exit_code"] == 0
