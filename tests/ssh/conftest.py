"""A login node on loopback, and rv's transport to it."""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rv import sandbox
from rv.slurm.environment import SCRUBBED_FORM
from rv.transport import Transport
from rv.transport.openssh import OpenSsh
from rv.transport.paramiko_connection import Paramiko
from rv.transport.remote import RemoteTransport
from rv.transport.remote_shell import RemoteShell, Stream
from rv.transport.ssh_choice import Ssh
from tests.slurm.conftest import sandbox_home, small
from tests.ssh.server import HOST, SshServer

__all__ = ["sandbox_home", "small"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: a socket's may have 104 characters."""
    path = Path(tempfile.mkdtemp(prefix="rvs", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshServer]:
    """A server that is not started yet; connections are shared in a folder of the test's own."""
    made = SshServer(path=folder / "s")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    folder.chmod(0o700)
    yield made
    made.stop()


class UsedLater:
    """An ssh that is made when it is first used: a test writes its configuration before that."""

    def __init__(self, make: Callable[[], Ssh]) -> None:
        self._make = functools.cache(make)

    def connect(self, command: str) -> Stream:
        return self._make().connect(command)

    def terminal(self, line: str) -> int:
        return self._make().terminal(line)

    def open_stream(self, line: str) -> Stream:
        return self._make().open_stream(line)


@pytest.fixture
def connect_by(
    server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Transport]]:
    """Make transports to the server by openssh or paramiko, which end with the test."""
    monkeypatch.setenv("HOME", str(server.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    ends: list[Callable[[], None]] = []

    def make(kind: str) -> Transport:
        if not server.port:
            server.start()
        program = str(server.path / "bin" / "ssh")

        def client() -> Ssh:
            if kind == "openssh":
                return OpenSsh(HOST, program)
            made = Paramiko(HOST)
            ends.append(made.close)
            return made

        ssh = UsedLater(client)
        shell = RemoteShell(ssh.connect, SCRUBBED_FORM)
        ends.append(shell.close)
        return RemoteTransport(shell, ssh, patience_s=3.0)

    yield make
    for end in ends:
        end()


@pytest.fixture(params=["openssh", "paramiko"])
def connect(
    request: pytest.FixtureRequest, connect_by: Callable[[str], Transport]
) -> Callable[[], Transport]:
    """Make transports by each of them."""
    return lambda: connect_by(request.param)


@dataclass(frozen=True, kw_only=True)
class Laptop:
    """A machine with rv and ssh, and nothing of the cluster's: folders and environment its own."""

    server: SshServer
    home: Path
    ssh: str = "openssh"
    """Which of rv's transports it uses."""

    @property
    def environment(self) -> dict[str, str]:
        """What rv is called with there."""
        foreign = ("SLURM", "SBATCH", "RV_", "XDG_", "SSH_")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        return {
            **kept,
            "HOME": str(self.home),
            "PATH": self.server.search_path,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "RV_CLUSTER": f"ssh:{HOST}",
            "RV_SSH": self.ssh,
            "XDG_RUNTIME_DIR": str(self.home),
            "ONLY_ON_THE_LAPTOP": "yes",
        }

    def start(
        self, *words: str, folder: Path | None = None, stderr: int = subprocess.PIPE
    ) -> "subprocess.Popen[str]":
        """Start rv in a process group of its own, as a shell does."""
        return subprocess.Popen(
            [sys.executable, "-m", "rv", *words],
            cwd=folder or self.home, env=self.environment, text=True, process_group=0,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
        )  # fmt: skip

    def rv(self, *words: str, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run rv to its end, in the home or another folder."""
        with self.start(*words, folder=folder) as process:
            out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def laptop(server: SshServer, folder: Path, small: sandbox.Sandbox) -> Laptop:
    """A laptop, and `small` behind a login node whose home is another directory."""
    away, home = folder / "away", folder / "home"
    for path in (away, home):
        path.mkdir(mode=0o700)
    server.settings += [
        f"SetEnv SLURM_CONF={small.slurm_conf} HOME={away} ONLY_ON_THE_CLUSTER=yes LANG=C.UTF-8"
    ]
    (away / ".bash_profile").write_text(f"PATH={away}/bin:$PATH\n")
    server.client_homes.append(home)
    server.start()
    return Laptop(server=server, home=home)
