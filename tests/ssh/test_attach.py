"""A shell or a command beside a race's, from a laptop; and commands on the login node."""

import sys
from collections.abc import Iterator

import pytest

from tests.ssh.conftest import Laptop
from tests.ssh.terminal import Terminal
from tests.ssh.test_launch import eventually, races


@pytest.fixture
def running(laptop: Laptop) -> Iterator[str]:
    """The id of a race that runs until the test is over."""
    line = "exec sleep 600"
    assert laptop.rv("run", "-d", "--gpu", "1", "--time", "10m", line).returncode == 0
    eventually(lambda: races(laptop)[0]["state"] == "RUNNING")
    yield str(races(laptop)[0]["race"])
    laptop.rv("stop")


def terminal(laptop: Laptop, *words: str, **variables: str) -> Terminal:
    """Start rv at a terminal that can do what usual ones can."""
    changes = [f"{name}={value}" for name, value in {"TERM": "xterm", **variables}.items()]
    argv = ["env", *changes, sys.executable, "-m", "rv", *words]
    return Terminal(argv, laptop.environment, str(laptop.home))


def test_a_command_runs_beside_the_race(laptop: Laptop, running: str) -> None:
    """On its node, in its folder, with its environment and its GPUs, and its code comes back."""
    line = (
        'echo "$SLURM_JOB_ID $PWD $ONLY_ON_THE_CLUSTER $CUDA_VISIBLE_DEVICES"; echo oh >&2; exit 3'
    )
    done = laptop.rv("attach", running, "--", "bash", "-c", line)
    job = races(laptop)[0]["winner"]
    assert isinstance(job, dict)
    words = done.stdout.split()
    assert words[:3] == [str(job["job_id"]), str(laptop.home.parent / "away"), "yes"], done.stderr
    assert len(words) == 4
    assert (done.returncode, "oh" in done.stderr) == (3, True)
    assert races(laptop)[0]["state"] == "RUNNING"


def test_a_shell_at_a_terminal(laptop: Laptop, running: str) -> None:
    """It says where it is, and leaves the race running."""
    shell = terminal(laptop, "attach", running, TMUX="/tmp/one,1,0")
    shell.shows("left; exit leaves the race running")
    shell.types("echo $((6 * 7)) on $SLURM_JOB_ID")
    shell.shows("42 on")
    shell.types("exit 5")
    assert shell.ends() == 5
    assert races(laptop)[0]["state"] == "RUNNING"


def test_a_shell_outlives_its_connection(laptop: Laptop, running: str) -> None:
    """The same command comes back to it."""
    first = terminal(laptop, "attach", running)
    first.shows("comes back to this shell")
    first.types("kept=still-here; echo be''gun")
    first.shows("begun")
    laptop.server.cut()
    first.ends()
    second = terminal(laptop, "attach", running)
    second.types("echo $kept; exit")
    second.shows("still-here")
    second.ends()


def test_any_shell_of_the_user_will_do(laptop: Laptop, running: str) -> None:
    """What keeps the shell alive, tmux, starts it by the user's own."""
    with (laptop.home.parent / "away" / ".bash_profile").open("a") as profile:
        profile.write("export SHELL=/bin/tcsh\n")
    shell = terminal(laptop, "attach", running)
    shell.shows("comes back to this shell")
    shell.types("echo be''gun")
    shell.shows("begun")
    shell.types("exit")
    shell.ends()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("attach", "--node", "7"), "has no node 7"),
        (("attach",), "a shell needs a terminal"),
        (("attach", "nothere"), "is no race here"),
    ],
)
def test_what_cannot_be_is_said(
    laptop: Laptop, running: str, words: tuple[str, ...], why: str
) -> None:
    """In a line, with a hint."""
    assert running
    done = laptop.rv(*words)
    assert (done.returncode, why in done.stderr, "hint" in done.stderr) == (2, True, True), done
    assert "Traceback" not in done.stderr


def test_a_race_that_is_over_or_waits(laptop: Laptop) -> None:
    """Has no node."""
    assert laptop.rv("run", "--gpu", "1", "--time", "5m", "true").returncode == 0
    done = laptop.rv("attach", "--", "true")
    assert (done.returncode, "is over: COMPLETED" in done.stderr) == (2, True), done.stderr


def test_a_command_on_the_login_node(laptop: Laptop) -> None:
    """In a login's environment; its code, both outputs, and its time."""
    done = laptop.rv("exec", "--", "echo $PWD $ONLY_ON_THE_CLUSTER; echo oh >&2; exit 4")
    assert done.stdout.split()[-1] == "yes", done.stderr
    assert (done.returncode, done.stderr) == (4, "oh\n")
    assert laptop.rv("exec", "--", "printf", "%s|", "a b", "c").stdout == "a b|c|"
    with laptop.start("exec", "--", "printf '\\377\\200'; exit 255") as process:
        assert process.stdout
        out = process.stdout.buffer.read()
    assert (out, process.returncode) == (b"\xff\x80", 255)
    done = laptop.rv("exec", "--timeout", "2s", "--", "sleep", "60")
    assert (done.returncode, "it was ended after 2 s" in done.stderr) == (124, True), done.stderr
    shell = terminal(laptop, "exec", "--", "read x; echo got $x; exit 6")
    shell.types("it")
    shell.shows("got it")
    assert shell.ends() == 6
