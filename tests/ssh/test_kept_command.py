"""`rv ps` starts the command that the last one kept, before it has read what it is for."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from rv import sandbox
from tests.ssh.conftest import Laptop
from tests.ssh.server import HOST

ASKED, CONNECTED = "-G", "-T"


@dataclass(frozen=True, kw_only=True)
class Calls:
    """What rv started ssh with, in order, each with its words."""

    log: Path

    def taken(self) -> list[str]:
        """Return which kind each call since the last look was."""
        calls = self.words()
        return [kind for call in calls for kind in (ASKED, CONNECTED) if kind in call]

    def words(self) -> list[list[str]]:
        """Return the words of each call since the last look."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [line.split() for line in lines]


@pytest.fixture
def calls(laptop: Laptop) -> Calls:
    """Have the laptop's ssh write down what it is started with."""
    log = laptop.home / "calls"
    ssh = shutil.which("ssh")
    program = laptop.server.path / "bin" / "ssh"
    config = laptop.server.path / "ssh_config"
    program.write_text(f'#!/bin/sh\necho "$@" >>{log}\nexec {ssh} -F {config} "$@"\n')
    return Calls(log=log)


@pytest.fixture
def kept(laptop: Laptop, small: sandbox.Sandbox, calls: Calls) -> Path:
    """The file of a command that a first `rv ps` kept."""
    done = laptop.rv("ps")
    assert (done.returncode, done.stdout) == (0, "no races\n"), done.stderr
    assert calls.taken() == [ASKED, CONNECTED]
    return laptop.home / "rv" / "ps"


def test_the_kept_command_is_the_first_thing_started(
    laptop: Laptop, kept: Path, calls: Calls
) -> None:
    """And the only connection; what it brings is the news."""
    assert laptop.rv("run", "-d", "--gpu", "1", "--name", "fresh", "sleep 60").returncode == 0
    calls.taken()
    before = kept.read_bytes()
    done = laptop.rv("ps")

    assert "fresh" in done.stdout, done.stderr
    assert calls.taken() == [CONNECTED, ASKED]
    assert kept.read_bytes().split(b"\0\0")[2:] != before.split(b"\0\0")[2:]  # its marks are new
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("changed", ["cluster", "ssh", "folder", "file", "help"])
def test_nothing_is_started_where_another_may_be_meant(
    laptop: Laptop, kept: Path, calls: Calls, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named otherwise, or by files that have changed."""
    words, folder = ["ps"], laptop.home
    if changed == "cluster":
        words.append(f"--cluster=ssh:{HOST}")
    elif changed == "ssh":
        with (laptop.home / ".ssh" / "config").open("a") as file:
            file.write("Host other\n")
    elif changed == "folder":
        folder = laptop.home / "project"
        folder.mkdir()
    elif changed == "file":
        config = laptop.home / ".config" / "rv" / "config.yaml"
        config.parent.mkdir(parents=True)
        config.write_text("defaults: {}\n")
    else:
        words.append("--help")
    done = laptop.rv(*words, folder=folder)

    assert done.returncode == 0, done.stderr
    assert calls.taken() == ([] if changed == "help" else [ASKED, CONNECTED])


def test_what_was_kept_for_another_host_answers_nothing(
    laptop: Laptop, kept: Path, calls: Calls
) -> None:
    """Only the same command, word for word, is used; what else was started is ended."""
    host = f"\0{HOST}\0".encode()
    assert kept.read_bytes().count(host) == 1
    kept.write_bytes(kept.read_bytes().replace(host, b"\0elsewhere\0"))
    done = laptop.rv("ps")

    assert (done.returncode, done.stdout) == (0, "no races\n"), done.stderr
    ran = calls.words()
    assert ["elsewhere" in words for words in ran] == [True, False, False]
    assert [CONNECTED in words for words in ran] == [True, False, True]
    left = subprocess.run(["pgrep", "-f", "ssh .*elsewhere"], check=False, capture_output=True)
    assert not left.stdout


@pytest.mark.parametrize("text", [b"", b"\0", b"a\0\0b\0\0c\0\0d", os.urandom(300)])
def test_a_damaged_file_is_as_none(laptop: Laptop, kept: Path, calls: Calls, text: bytes) -> None:
    """It is replaced."""
    kept.write_bytes(text)
    done = laptop.rv("ps")

    assert (done.returncode, done.stdout) == (0, "no races\n"), done.stderr
    assert calls.taken() == [ASKED, CONNECTED]
    assert kept.read_bytes() != text


def test_nothing_is_kept_where_others_could_change_it(
    laptop: Laptop, kept: Path, calls: Calls
) -> None:
    """Whoever could would name a program that this user runs."""
    kept.parent.chmod(0o777)
    done = laptop.rv("ps")

    assert done.returncode == 0, done.stderr
    assert calls.taken()[0] == ASKED


def test_two_at_once_use_it_once(laptop: Laptop, kept: Path, calls: Calls) -> None:
    """Its marks are known to one answer alone."""
    both = [laptop.start("ps") for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "no races\n"), err
    commands = [words[-200:] for words in calls.words() if CONNECTED in words]
    assert len({tuple(words) for words in commands}) == len(commands) == len(both)
