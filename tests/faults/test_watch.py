"""What `rv ps -w` shows while races wait, start and end: on a terminal, in a pipe, and to its end."""

import re
import subprocess
import sys

from tests.faults.terminal import Tmux
from tests.faults.world import World, eventually


def drawn_once(tmux: Tmux, columns: int) -> str:
    """The window, once headline and head stand there once, in columns for this width."""

    def screen() -> str:
        shown = tmux.visible()
        is_once = shown.count("Ctrl-C ends") == shown.count("COMMAND") == 1
        fits = max(map(len, shown.splitlines()), default=0) <= columns
        return shown if is_once and fits and ("WHY" in shown) == (columns > 100) else ""

    return str(eventually(screen))


def test_races_are_redrawn_in_their_place(world: World) -> None:
    """They wait, start and end in one table, through a resize; Ctrl-C leaves it, with 130."""
    release = world.fill()
    world.ok("run", "-d", "--time", "5m", "--name", "first", "sleep 2; exit 3")
    tmux = Tmux(world, "ps", "-w", term="screen")
    try:
        tmux.shows("1 waiting, 0 running")
        for columns, lines in ((64, 20), (150, 30)):
            tmux.resize(columns, lines)
            drawn_once(tmux, columns)
        world.ok("run", "-d", "--time", "5m", "true")
        tmux.shows("2 waiting")  # it is seen as soon as it is launched
        release()
        tmux.shows("0 waiting, 0 running")
        screen = drawn_once(tmux, 150)
        assert re.search(r"^\w{8}  first +FAILED +3 ", screen, re.M), screen
        assert re.search(r"^\w{8}  - +COMPLETED ", screen, re.M), screen
        tmux.presses("C-c")
        tmux.types("echo code $?")
        tmux.shows("code 130")
        assert "COMPLETED" in drawn_once(tmux, 150)
    finally:
        tmux.close()


def test_a_pipe_gets_a_line_a_change_and_ends_the_watch_when_it_closes(world: World) -> None:
    """Nothing is written, and nobody asks Slurm, once nobody reads."""
    world.ok("run", "-d", "--time", "5m", "echo it ran")
    world.settled("COMPLETED")
    watch = [sys.executable, "-m", "rv", "ps", "-w"]
    process = subprocess.Popen(watch, env=world.client_env, cwd=world.work, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
    world.last.callback(process.wait)
    world.last.callback(process.kill)
    assert process.stdout
    line = process.stdout.readline()
    assert re.match(r"\d\d:\d\d:\d\d \w{8} COMPLETED: 1x \w+.* 1x1, on .*, echo it ran\n", line)
    process.stdout.close()
    assert process.wait(30) == 0
