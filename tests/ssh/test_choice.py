"""Which ssh is used: the user's own where its connections may be shared, else rv's."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rv.errors import ErrorKind, RvError
from rv.transport.openssh import OpenSsh
from rv.transport.paramiko_connection import Paramiko
from rv.transport.ssh_choice import choose_ssh
from tests.ssh.conftest import Laptop
from tests.ssh.logging_in import environment, one_line, run
from tests.ssh.server import HOST, SshServer


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with no configuration yet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", OpenSsh),
        ("ControlMaster auto\nControlPath ~/.ssh/%C\n", OpenSsh),
        ("Host other\n  ControlMaster no\n", OpenSsh),
        ("ControlMaster no\n", Paramiko),
        ("Host cl*\n  ControlMaster=no\nHost *\n  ControlMaster auto\n", Paramiko),
        ("Include more\n", Paramiko),
    ],
)
def test_what_the_configuration_allows(home: Path, text: str, kind: type) -> None:
    """`ssh -G` cannot say: it answers `controlmaster false` for a file without a word of it."""
    (home / ".ssh" / "config").write_text(text)
    (home / ".ssh" / "more").write_text("Host cluster\n  ControlMaster no\n")
    assert type(choose_ssh(HOST, "auto")) is kind
    assert type(choose_ssh(HOST, "openssh")) is OpenSsh
    assert type(choose_ssh(HOST, "paramiko")) is Paramiko


def test_ssh_cannot_tell_no_from_nothing(tmp_path: Path) -> None:
    """Which is why rv reads the files: this fails when that is no longer so."""
    answers = []
    for text in ("ControlMaster no\n", "Port 22\n"):
        file = tmp_path / "config"
        file.write_text(text)
        asked = ["ssh", "-F", str(file), "-G", "--", HOST]
        answers.append(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    assert answers[0] == answers[1]


def test_where_no_ssh_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """rv connects itself; who asks for ssh alone is told."""
    monkeypatch.setenv("PATH", str(home))
    assert type(choose_ssh(HOST, "auto")) is Paramiko
    with pytest.raises(RvError, match="there is no ssh here") as caught:
        choose_ssh(HOST, "openssh")
    assert caught.value.kind is ErrorKind.UNREACHABLE


def test_another_kind(home: Path) -> None:
    """It is named, with those that there are."""
    with pytest.raises(RvError, match="no ssh 'putty' is known") as caught:
        choose_ssh(HOST, "putty")
    assert caught.value.kind is ErrorKind.CONFIG


def test_who_forbids_sharing_gets_none(server: SshServer) -> None:
    """Not from rv either, where ssh alone is asked for."""
    server.start()
    server.configure_client("ControlMaster no")
    for _ in range(2):
        assert run(server, "openssh").returncode == 0
    assert choose_ssh(HOST, "openssh").description == "openssh, as your ssh configuration says"
    assert (server.path / "sshd.log").read_text().count("Accepted publickey") == 2
    assert not list(Path(environment(server)["XDG_RUNTIME_DIR"]).glob("rv/*"))


def test_what_the_configuration_has_for_people(server: SshServer) -> None:
    """A command for each login, and ports: rv runs its own, and takes none of them."""
    server.start()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server.configure_client("RemoteCommand echo hello", f"LocalForward {port} 127.0.0.1:1")
    assert run(server, "openssh").returncode == 0
    with socket.create_server(("127.0.0.1", port)):
        assert run(server, "openssh").returncode == 0


@pytest.mark.parametrize("times", [1, 2])
def test_a_shared_connection_that_was_ending(server: SshServer, times: int) -> None:
    """ssh fails without a word, and is started once more; what fails again is an error.

    That a connection of its own can be made is asked between, and so it can.
    """
    server.start()
    ssh = server.path / "bin" / "ssh"
    text = ssh.read_text()
    left = server.path / "left"
    left.write_text("x" * times)
    ssh.write_text(
        text.replace(
            "exec",
            f'case "$*" in "-G "* | *ControlPath=none*) ;; *) if [ -s {left} ]; then truncate -s -1 {left}; exit 255; fi ;; '
            "esac\nexec",
        )
    )
    rv = ["python", "-m", "rv", "status", "--cluster", f"ssh:{HOST}"]
    env = {**environment(server), "XDG_CACHE_HOME": str(server.path / "cache")}
    done = subprocess.run(rv, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert left.read_text() == ""
    lost = "the connection was lost: ssh ended without a word" in done.stderr
    assert lost == (times == 2), done.stderr
    assert "Traceback" not in done.stderr


def test_a_machine_without_ssh(laptop: Laptop) -> None:
    """Nothing of rv's misses it."""
    environment = {**laptop.environment, "RV_SSH": "auto", "PATH": str(laptop.home)}
    done = subprocess.run(
        [sys.executable, "-m", "rv", "ps"], env=environment, cwd=laptop.home,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "no races\n"), done.stderr


def test_an_error_has_one_line(server: SshServer) -> None:
    """The one that a newcomer sees first."""
    server.start()
    server.stop()
    for kind in ("openssh", "paramiko"):
        done = run(server, kind)
        assert "Connection refused" in one_line(done.stdout)
        assert done.stderr == ""
