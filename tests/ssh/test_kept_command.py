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


def end_of(kept: Path) -> str:
    """The last word of a command that is kept: no other ends like it."""
    return kept.read_bytes().split()[-1].decode()


def test_the_kept_command_is_the_only_connection(laptop: Laptop, kept: Path, calls: Calls) -> None:
    """What it brings is the news."""
    assert laptop.rv("run", "-d", "--gpu", "1", "--name", "fresh", "sleep 60").returncode == 0
    calls.taken()
    end, before = end_of(kept), kept.read_bytes()
    done = laptop.rv("ps")

    assert "fresh" in done.stdout, done.stderr
    assert [words[-1] for words in calls.words() if CONNECTED in words] == [end]
    assert kept.read_bytes().split(b"\0\0")[2:] != before.split(b"\0\0")[2:]  # its marks are new
    assert kept.stat().st_mode & 0o777 == 0o600


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    "changed", [".ssh/config", ".ssh/more/new", ".config/rv/config.yaml", "rv.yaml"]
)
def test_nothing_is_started_where_a_file_has_changed(
    laptop: Laptop, kept: Path, calls: Calls, changed: str
) -> None:
    """Another cluster may be meant, or reached otherwise; also by a file that was not there."""
    (laptop.home / ".ssh" / "more").mkdir()
    config = laptop.home / ".ssh" / "config"
    write(config, f"Include more/*\n{config.read_text()}")
    assert laptop.rv("ps").returncode == 0
    assert calls.taken() == [ASKED, CONNECTED]
    text = {"config": f"{config.read_text()}\n", "new": "\n"}
    write(laptop.home / changed, text.get(Path(changed).name, "defaults: {}\n"))
    done = laptop.rv("ps")

    assert done.returncode == 0, done.stderr
    assert calls.taken() == [ASKED, CONNECTED]


@pytest.mark.parametrize("words", [("ps", f"--cluster=ssh:{HOST}"), ("ps", "--help")])
def test_a_cluster_that_is_named_has_no_part_in_it(
    laptop: Laptop, kept: Path, calls: Calls, words: tuple[str, ...]
) -> None:
    """The next one that is not named is the usual one: nothing is started, and nothing kept."""
    before = kept.read_bytes()
    done = laptop.rv(*words)

    assert done.returncode == 0, done.stderr
    assert calls.taken() == ([] if "--help" in words else [ASKED, CONNECTED])
    assert kept.read_bytes() == before


def test_in_another_folder_another_may_be_meant(laptop: Laptop, kept: Path, calls: Calls) -> None:
    """By a file of that project's."""
    folder = laptop.home / "project"
    folder.mkdir()
    done = laptop.rv("ps", folder=folder)

    assert done.returncode == 0, done.stderr
    assert calls.taken() == [ASKED, CONNECTED]


def test_what_was_kept_for_another_host_answers_nothing(
    laptop: Laptop, kept: Path, calls: Calls
) -> None:
    """Only the same command, word for word, is used; the other is ended, its marks not used again."""
    config = laptop.server.path / "ssh_config"
    config.write_text(f"Host elsewhere\n  ProxyCommand sleep 1234\n{config.read_text()}")
    host = f"\0{HOST}\0".encode()
    assert kept.read_bytes().count(host) == 1
    kept.write_bytes(kept.read_bytes().replace(host, b"\0elsewhere\0"))
    end = end_of(kept)
    done = laptop.rv("ps")

    assert (done.returncode, done.stdout) == (0, "no races\n"), done.stderr
    connected = [words for words in calls.words() if CONNECTED in words]
    assert [words[-1] != end for words in connected if HOST in words] == [True]
    left = subprocess.run(["pgrep", "-f", "ssh .*elsewhere"], check=False, capture_output=True)
    assert not left.stdout


def damage(kept: Path, how: str) -> None:
    """Change the file, with what it was kept under left as it was."""
    files, then, marks, command = kept.read_bytes().split(b"\0\0")
    words = marks.split(b"\0")
    changed = {
        "empty": b"",
        "short": b"\0\0".join([files, then, marks]),
        "one mark less": b"\0\0".join([files, then, b"\0".join(words[1:]), command]),
        "a mark of none": b"\0\0".join([files, then, b"\0".join([b"\xff", *words[1:]]), command]),
        "a mark that runs": b"\0\0".join(
            [files, then, b"\0".join([b"$(id)", *words[1:]]), command]
        ),
        "too long": b"\0\0".join([files, then, marks, command + b" " * (256 << 10)]),
    }
    if how in changed:
        kept.write_bytes(changed[how])
        return
    if how == "open to others":
        kept.chmod(0o644)
        return
    kept.unlink()
    if how == "fifo":
        os.mkfifo(kept)
    elif how == "link":
        kept.with_name("other").write_bytes(b"\0\0".join([files, then, marks, command]))
        kept.symlink_to(kept.with_name("other"))


@pytest.mark.parametrize(
    "how",
    [
        "empty", "short", "one mark less", "a mark of none", "a mark that runs", "too long",
        "open to others", "fifo", "link",
    ],
)  # fmt: skip
def test_a_damaged_file_is_as_none(laptop: Laptop, kept: Path, calls: Calls, how: str) -> None:
    """It is replaced."""
    end = end_of(kept)
    damage(kept, how)
    done = laptop.rv("ps")

    assert (done.returncode, done.stdout) == (0, "no races\n"), done.stderr
    assert any(words[-1] != end for words in calls.words() if CONNECTED in words)
    assert kept.is_file()
    assert not kept.is_symlink()
    assert not list(kept.parent.glob(".ps*"))
    end = end_of(kept)
    assert laptop.rv("ps").returncode == 0
    assert [words[-1] for words in calls.words() if CONNECTED in words] == [end]


def test_nothing_is_kept_where_others_could_change_it(
    laptop: Laptop, kept: Path, calls: Calls
) -> None:
    """Whoever could would name a program that this user runs."""
    kept.parent.chmod(0o777)
    done = laptop.rv("ps")

    assert done.returncode == 0, done.stderr
    assert calls.taken() == [ASKED, CONNECTED]


def test_what_only_ssh_can_read_is_no_error(laptop: Laptop, calls: Calls) -> None:
    """Then none is kept."""
    config = laptop.home / ".ssh" / "config"
    config.write_text(f"Include more/* # it's mine\n{config.read_text()}")
    for _ in range(2):
        done = laptop.rv("ps")
        assert (done.returncode, done.stdout) == (0, "no races\n"), done.stderr
        assert calls.taken() == [ASKED, CONNECTED]


def test_two_at_once_use_it_once(laptop: Laptop, kept: Path, calls: Calls) -> None:
    """Its marks are known to one answer alone."""
    both = [laptop.start("ps") for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "no races\n"), err
    commands = [tuple(words) for words in calls.words() if CONNECTED in words]
    assert len(set(commands)) == len(commands) == len(both)
