"""A program there on a terminal here, over both transports."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rv.sandbox.processes import started_at
from tests.ssh.logging_in import environment
from tests.ssh.server import HOST, SshServer
from tests.ssh.terminal import Terminal

PROGRAM = """
import sys
from rv.errors import RvError
from rv.transport.ssh_choice import choose_ssh
print("before")
try:
    print("code", choose_ssh(*sys.argv[1:3]).terminal(sys.argv[3]))
except RvError as error:
    print(f"error[{error.kind}]: {error.message}")
"""
Start = Callable[[str], Terminal]


@pytest.fixture(params=["openssh", "paramiko"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each of the two, and neither is told from the other."""
    return str(request.param)


@pytest.fixture
def start(server: SshServer, kind: str) -> Iterator[Start]:
    """Run a bash line there on a terminal."""
    opened: list[Terminal] = []

    def begin(line: str) -> Terminal:
        if not server.port:
            server.start()
        argv = [sys.executable, "-c", PROGRAM, HOST, kind, line]
        opened.append(Terminal(argv, environment(server)))
        return opened[-1]

    yield begin
    for terminal in opened:
        terminal.close()


def test_what_was_typed_before_is_not_lost(start: Start) -> None:
    """As who knows what comes types ahead while rv still connects."""
    terminal = start("read -r x; echo got $x")
    terminal.presses(b"ahead\r")
    terminal.shows("got ahead")
    assert terminal.ends() == 0


def test_its_exit_code_and_the_terminal_as_it_was(start: Start) -> None:
    """Keys go there as they are typed, Ctrl-C too; quotes and newlines are no matter."""
    terminal = start("trap 'echo \"it is\"' INT; tty\necho ready; read -r x; echo got $x; exit 7")
    before = terminal.settings()
    terminal.shows("ready")
    assert "/dev/pts/" in terminal.said
    assert terminal.settings() != before
    terminal.presses(b"\x03")
    terminal.shows("it is")
    terminal.presses(b"a line\r")
    terminal.shows("got a line")
    assert terminal.ends() == 0
    assert "code 7" in terminal.said
    assert terminal.settings() == before


def test_its_size(start: Start) -> None:
    """At the start, and when it changes."""
    terminal = start("while :; do stty size; sleep 0.1; done")
    terminal.resize(90, 30)
    terminal.shows("30 90")
    terminal.resize(101, 41)
    terminal.shows("41 101")
    for lines in range(20, 60):
        terminal.resize(100, lines)
    terminal.shows("59 100")


def test_much_output(start: Start) -> None:
    """All of it comes."""
    terminal = start("seq 200000; echo end")
    terminal.shows("end")
    assert terminal.ends() == 0
    assert "199999\r\n200000\r\nend" in terminal.said
    assert "code 0" in terminal.said


def test_a_connection_that_breaks(server: SshServer, start: Start) -> None:
    """It is over with 255, and the terminal is as it was."""
    terminal = start("echo ready; sleep 600")
    before = terminal.settings()
    terminal.shows("ready")
    server.cut()
    assert terminal.ends() == 0
    assert "code 255" in terminal.said
    assert terminal.settings() == before


def test_the_end_of_rv_s_own_process(start: Start) -> None:
    """SIGTERM leaves the terminal as it was."""
    terminal = start("echo ready; sleep 600")
    before = terminal.settings()
    terminal.shows("ready")
    terminal.signal(signal.SIGTERM)
    terminal.ends()
    terminal.read()
    assert terminal.settings() == before


def test_its_program_is_over_with_the_connection(server: SshServer, start: Start) -> None:
    """Nothing of it is left there."""
    terminal = start(f"echo $$ >{server.path}/pid; echo ready; exec sleep 600")
    terminal.shows("ready")
    terminal.signal(signal.SIGKILL)
    terminal.ends()
    pid = int((server.path / "pid").read_text())
    deadline = time.monotonic() + 60
    while started_at(pid):
        assert time.monotonic() < deadline, Path(f"/proc/{pid}/status").read_text()
        time.sleep(0.1)
