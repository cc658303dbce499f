"""Logging in: keys, passphrases, an agent, passwords and second factors, over both transports."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ssh.logging_in import environment, one_line, run, start
from tests.ssh.second_factor import CODE, as_root, ask_second_factor
from tests.ssh.server import SshServer
from tests.ssh.terminal import Terminal

Start = Callable[..., Terminal]
ASKED = "(root@127.0.0.1) Password:"


@pytest.fixture(params=["openssh", "paramiko"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each of the two, and neither is told from the other."""
    return str(request.param)


@pytest.fixture
def at_terminal(server: SshServer, kind: str) -> Iterator[Start]:
    """Log in at a terminal, which is closed with the test."""
    opened: list[Terminal] = []

    def begin(**options: str) -> Terminal:
        if not server.port:
            server.start()
        opened.append(start(server, kind, **options))
        return opened[-1]

    yield begin
    for terminal in opened:
        terminal.close()


def lock_key(server: SshServer) -> None:
    """Give the user's key a passphrase."""
    server.start()
    words = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret word", "-f"]
    subprocess.run([*words, str(server.path / "user_key")], check=True)


def test_a_passphrase_is_asked_for(server: SshServer, at_terminal: Start) -> None:
    """Again where it was wrong."""
    lock_key(server)
    terminal = at_terminal()
    terminal.shows("Enter passphrase for key")
    terminal.types("wrong")
    terminal.shows("Enter passphrase for key", times=2)
    terminal.types("secret word")
    assert terminal.ends() == 0
    assert "logged in as" in terminal.said
    assert "secret word" not in terminal.said


def test_a_passphrase_that_is_wrong_three_times(server: SshServer, at_terminal: Start) -> None:
    """One line, and the key is not offered."""
    lock_key(server)
    terminal = at_terminal()
    for times in (1, 2, 3):
        terminal.shows("Enter passphrase for key", times=times)
        terminal.types("wrong")
    assert terminal.ends() == 125
    assert "Permission denied (publickey" in one_line(terminal.said)


def test_without_a_terminal_nothing_is_asked(server: SshServer, kind: str) -> None:
    """It fails at once, and says why."""
    lock_key(server)
    done = run(server, kind)
    assert done.returncode == 125
    assert "Permission denied (publickey" in one_line(done.stdout)
    assert done.stderr == ""


@pytest.mark.parametrize("only", ["yes", "no"])
def test_an_agent_has_the_key(server: SshServer, kind: str, only: str) -> None:
    """Where the user names its public part alone, no other is offered."""
    server.settings = ["MaxAuthTries 3"]
    server.start()
    server.configure_client(f"IdentitiesOnly {only}")
    said = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    agent = dict(part.split("=") for part in said.replace("\n", "").split(";") if "=" in part)
    try:
        keys = [server.path / f"other{number}" for number in range(4 if only == "yes" else 1)]
        for key in keys:
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        for key in (*keys, server.path / "user_key"):
            subprocess.run(["ssh-add", "-q", key], env=os.environ | agent, check=True)
            key.unlink()
        done = run(server, kind, SSH_AUTH_SOCK=agent["SSH_AUTH_SOCK"])
        assert done.stdout.startswith("logged in as"), done.stdout
    finally:
        os.kill(int(agent["SSH_AGENT_PID"]), signal.SIGTERM)


@as_root
def test_a_second_factor_after_the_key(server: SshServer, at_terminal: Start) -> None:
    """Asked again where it was wrong; what is typed is not shown."""
    asked = ask_second_factor(server, "publickey,keyboard-interactive")
    terminal = at_terminal()
    for times, code in enumerate(["wrong", CODE], 1):
        terminal.shows(ASKED, times=times)
        terminal.types(code)
    assert terminal.ends() == 0
    assert "logged in as root" in terminal.said
    assert asked.read_text().split() == ["wrong", CODE]
    assert "wrong" not in terminal.said


@as_root
def test_a_second_factor_that_is_wrong_three_times(server: SshServer, at_terminal: Start) -> None:
    """One line, and what to try."""
    asked = ask_second_factor(server, "publickey,keyboard-interactive")
    terminal = at_terminal()
    for times in (1, 2, 3):
        terminal.shows(ASKED, times=times)
        terminal.types(f"wrong{times}")
    assert terminal.ends() == 125
    assert "Permission denied (keyboard-interactive)" in one_line(terminal.said)
    assert asked.read_text().split() == ["wrong1", "wrong2", "wrong3"]


@as_root
def test_a_password(server: SshServer, at_terminal: Start) -> None:
    """Where no key is accepted."""
    asked = ask_second_factor(server, "password")
    banner = server.path.parent / "banner"
    banner.write_text("Users of\x1b[2J this\nsite only\n")
    server.settings.append(f"Banner {banner}")
    terminal = at_terminal()
    terminal.shows("root@127.0.0.1's password:")
    terminal.types(CODE)
    assert terminal.ends() == 0
    assert "logged in as root" in terminal.said
    assert "\x1b[2J" not in terminal.said
    assert asked.read_text().split() == [CODE]


@as_root
def test_a_second_factor_without_a_terminal(server: SshServer, kind: str) -> None:
    """None is asked for, and nobody is counted as wrong."""
    asked = ask_second_factor(server, "publickey,keyboard-interactive")
    server.start()
    done = run(server, kind)
    assert done.returncode == 125
    line = one_line(done.stdout)
    assert "Permission denied (keyboard-interactive)" in line
    assert "there is no terminal" in line
    assert not asked.exists()


def test_a_server_that_asks_several_questions(server: SshServer, at_terminal: Start) -> None:
    """Each with or without what is typed, as the server says; of its text what is printable."""
    server.start()
    server.stop()
    (server.path / "asked").touch()
    command = [sys.executable, str(Path(__file__).with_name("asking_server.py")), str(server.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        server.port = int(process.stdout.readline())
        server.configure_client()
        server.trust()
        terminal = at_terminal()
        terminal.shows("Account code:")
        terminal.types("physics")
        terminal.shows("Password:")
        terminal.types("geheim ü")
        terminal.shows("One-time code:")
        terminal.types(CODE)
        assert terminal.ends() == 0, terminal.said
        process.terminate()
    assert (server.path / "asked").read_text().split("\n") == ["physics|geheim ü", CODE, ""]
    assert "physics" in terminal.said
    assert "geheim" not in terminal.said
    assert "\x1b[31m" not in terminal.said


def test_ctrl_c_at_a_question(server: SshServer, at_terminal: Start) -> None:
    """It ends rv, and the terminal shows what is typed again."""
    lock_key(server)
    terminal = at_terminal()
    before = terminal.settings()
    terminal.shows("Enter passphrase for key")
    terminal.presses(b"\x03")
    terminal.types("")
    assert terminal.ends() in (125, 130)
    assert terminal.settings() == before


@as_root
def test_ctrl_c_at_a_second_factor(server: SshServer, at_terminal: Start) -> None:
    """The same, though the server waits for the answer."""
    ask_second_factor(server, "publickey,keyboard-interactive")
    terminal = at_terminal()
    before = terminal.settings()
    terminal.shows(ASKED)
    terminal.presses(b"\x03")
    assert terminal.ends() == 130
    assert terminal.settings() == before
    assert "Traceback" not in terminal.said


def test_the_environment_of_the_tests_has_no_agent(server: SshServer) -> None:
    """Or they would pass for another reason."""
    assert "SSH_AUTH_SOCK" not in environment(server)
