"""What a terminal shows while a race waits: one table, drawn again in its place."""

import re
from collections.abc import Callable, Iterator

import pytest

from tests.faults.terminal import Tmux
from tests.faults.world import World, eventually

COMMAND = ("--time", "5m", "--run", "echo it ran")


Type = Callable[..., Tmux]


@pytest.fixture
def type_in_tmux(world: World) -> Iterator[Type]:
    """Type `rv` in a window that is closed with the test."""
    windows: list[Tmux] = []

    def open_window(*words: str) -> Tmux:
        windows.append(Tmux(world, *words, term="screen"))
        return windows[-1]

    yield open_window
    for window in windows:
        window.close()


def drawn_once(tmux: Tmux) -> str:
    """The window, in which the headline stands once, and nothing of an earlier drawing."""
    screen = tmux.visible()
    assert len(re.findall(r"jobs? waiting", screen)) == 1, screen
    assert screen.count("LAYOUT") == 1, screen
    return screen


def test_a_race_that_waits_is_one_table_until_it_starts(world: World, type_in_tmux: Type) -> None:
    """It counts in its place through a resize, then the command's output follows in that place."""
    release = world.fill()
    tmux = type_in_tmux("up", *COMMAND)
    tmux.shows("Ctrl-C cancels, d detaches")
    eventually(lambda: clock(tmux) >= "00:02")
    drawn_once(tmux)
    for columns, lines in ((60, 20), (150, 30)):
        before = clock(tmux)
        tmux.resize(columns, lines)
        eventually(lambda seen=before: clock(tmux) > seen)
        drawn_once(tmux)
    tmux.shows("next in line for nodes that are busy")
    drawn_once(tmux)
    release()
    tmux.shows("COMPLETED, exit code 0")
    screen = tmux.visible()
    assert "LAYOUT" not in screen
    assert re.search(r"^started on .*\nit ran\n", screen, re.M), screen
    tmux.types("echo echo is $((40 + 2))")  # the keyboard is the shell's again
    tmux.shows("# echo echo is $((40 + 2))")
    tmux.shows("echo is 42")


def test_the_key_d_leaves_the_race_to_slurm(world: World, type_in_tmux: Type) -> None:
    """All of its jobs are sent first; the exit code says that the command has not run yet."""
    release = world.fill()
    tmux = type_in_tmux("up", *COMMAND)
    tmux.shows("d detaches")
    tmux.presses("x")
    tmux.presses("d")
    tmux.shows("detached: rv logs -f")
    assert "LAYOUT" not in tmux.visible()
    tmux.types("echo code $?")
    tmux.shows("code 130")
    release()
    assert world.settled("COMPLETED")["exit_code"] == 0


def test_control_c_cancels_and_gives_the_keyboard_back(world: World, type_in_tmux: Type) -> None:
    """Nothing of the drawing is left, and what is typed next is seen."""
    release = world.fill()
    tmux = type_in_tmux("up", *COMMAND)
    tmux.shows("Ctrl-C cancels")
    tmux.presses("C-c")
    tmux.shows("is cancelled")
    tmux.types("echo code $?")
    tmux.shows("# echo code $?")
    tmux.shows("code 130")
    assert "LAYOUT" not in tmux.visible()
    release()
    assert world.settled("CANCELLED")["winner"] is None


def clock(tmux: Tmux) -> str:
    """How long the race has waited, as the headline says."""
    shown = re.findall(r"\d\d:\d\d(?=  \d+ jobs? waiting)", tmux.visible())
    return shown[-1] if shown else ""
