"""Which requests travel in the command that starts the shell, in a bash on this machine."""

import base64
import gzip
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rv.transport.remote_shell import RemoteShell

SECRET = b"a value of the user's"


@dataclass
class LocalStream:
    """A command that runs here, as a login shell there would run it."""

    command: str
    written: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", self.command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def write(self, data: bytes) -> None:
        self.written.append(data)
        assert self._process.stdin
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def read_line(self) -> bytes:
        assert self._process.stdout
        return self._process.stdout.readline()

    def read(self, size: int) -> bytes:
        assert self._process.stdout
        return self._process.stdout.read(size)

    def close_write(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()

    def close(self) -> None:
        self._process.communicate()

    @property
    def carried(self) -> bytes:
        """What travelled in the command."""
        words = self.command.rpartition("' ")[2]
        return gzip.decompress(base64.b64decode(words.replace(" ", "")))


@pytest.fixture
def streams() -> list[LocalStream]:
    return []


@pytest.fixture
def shell(
    streams: list[LocalStream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RemoteShell]:
    monkeypatch.setenv("HOME", str(tmp_path))

    def connect(command: str) -> LocalStream:
        streams.append(LocalStream(command))
        return streams[-1]

    made = RemoteShell(connect, "SLURM_.*")
    yield made
    made.close()


def test_what_has_no_input_costs_no_trip_of_its_own(
    shell: RemoteShell, streams: list[LocalStream]
) -> None:
    """It is not written to a program that the server has yet to start."""
    questions = [shell.ask(f"echo {number}; exit {number}", timeout_s=20) for number in range(3)]
    answers = [shell.wait(question) for question in questions]
    assert answers == [(number, b"%d\n" % number, b"") for number in range(3)]
    assert streams[0].written == []


def test_input_never_stands_in_a_command(shell: RemoteShell, streams: list[LocalStream]) -> None:
    """Everybody on a machine sees what its processes were started with."""
    first = shell.ask("echo first", timeout_s=20)
    second = shell.ask("cat", SECRET, timeout_s=20)
    third = shell.ask("echo third", timeout_s=20)
    assert shell.wait(third)[1] == b"third\n"
    assert (shell.wait(first)[1], shell.wait(second)[1]) == (b"first\n", SECRET)
    assert b"echo first" in streams[0].carried
    assert SECRET not in streams[0].carried


def test_a_long_script_is_written(shell: RemoteShell, streams: list[LocalStream]) -> None:
    """A command has a length that it may have."""
    code, out, _ = shell.run(f": {'x' * 200_000}\necho done", timeout_s=20)
    assert (code, out) == (0, b"done\n")
    assert len(streams[0].command) < 32_000
    assert len(streams[0].written) == 1


def test_a_profile_sees_no_arguments(shell: RemoteShell, tmp_path: Path) -> None:
    """Some pass their own on to what they source."""
    (tmp_path / ".bash_profile").write_text('export SEEN="$#"\n')
    assert shell.run('echo "$SEEN"', timeout_s=20)[1] == b"0\n"
