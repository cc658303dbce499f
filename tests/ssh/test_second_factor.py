"""How often a person at a terminal is asked for a second factor: counted where PAM asks."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rv import sandbox
from tests.ssh.conftest import Laptop
from tests.ssh.second_factor import CODE, as_root, ask_second_factor
from tests.ssh.server import SshServer
from tests.ssh.terminal import Terminal


@pytest.fixture
def asked(server: SshServer) -> Path:
    """A server that asks, before it is started; the file has a line each time it did."""
    return ask_second_factor(server, "publickey,keyboard-interactive")


@as_root
@pytest.mark.parametrize(("kind", "times"), [("openssh", 1), ("paramiko", 3)])
def test_three_commands_in_a_row(
    asked: Path, laptop: Laptop, small: sandbox.Sandbox, kind: str, times: int
) -> None:
    """Once, where the user's ssh shares its connection; a connection of rv's ends with each command."""
    here = replace(laptop, ssh=kind)
    commands = (
        (["run", "--gpu", "1", "--time", "5m", "echo it ran"], "it ran"),
        (["ps"], "COMPLETED"),
        (["logs"], "it ran"),
    )
    for number, (words, shown) in enumerate(commands, 1):
        argv = [sys.executable, "-m", "rv", *words]
        terminal = Terminal(argv, here.environment, str(here.home))
        if number <= times:
            terminal.shows("Password:")
            terminal.types(CODE)
        assert terminal.ends() == 0, terminal.said
        assert shown in terminal.said
        terminal.close()
    assert asked.read_text().split() == [CODE] * times


@as_root
@pytest.mark.parametrize("kind", ["openssh", "paramiko"])
def test_one_that_is_wrong_is_not_asked_for_anew(asked: Path, laptop: Laptop, kind: str) -> None:
    """Whatever the command would have asked next: three tries, and one line."""
    here = replace(laptop, ssh=kind)
    argv = [sys.executable, "-m", "rv", "ps"]
    terminal = Terminal(argv, here.environment, str(here.home))
    for times in (1, 2, 3):
        terminal.shows("Password:", times=times)
        terminal.types(f"wrong{times}")
    assert terminal.ends() == 125
    terminal.close()
    assert asked.read_text().split() == ["wrong1", "wrong2", "wrong3"]
