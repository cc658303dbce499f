"""A real sshd on loopback, for the user who runs the tests, and an `ssh` that knows it."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from rv.sandbox import ports

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or "/usr/sbin/sshd"
HOST = "cluster"


@dataclass(kw_only=True)
class SshServer:
    """One sshd below `path`, with keys of its own; `settings` are further lines of its file."""

    path: Path
    settings: list[str] = field(default_factory=list)
    port: int = 0
    client_homes: list[Path] = field(default_factory=list)
    """Homes besides `home` whose ssh configuration knows it."""

    alias: str = HOST
    pam: bool = False
    binds: Mapping[str, Path] = field(default_factory=dict)
    """Files and folders of the system that it sees others in the place of; only root can do that."""

    def start(self) -> None:
        """Start it, and make the files of its client."""
        self.path.mkdir(parents=True, exist_ok=True)
        for name in ("host_key", "user_key"):
            if not (self.path / name).exists():
                self._call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path / name)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        with ports.reserved(1) as self.port:
            self._listen()

    def _listen(self) -> None:
        """Listen on the port, which nobody else gets meanwhile."""
        (self.path / "sshd_config").write_text("\n".join([*self._server_lines(), ""]))
        self.configure_client()
        self.trust()
        program = self.path / "bin" / "ssh"
        program.parent.mkdir(exist_ok=True)
        ssh = shutil.which("ssh")
        program.write_text(f'#!/bin/sh\nexec {ssh} -F "{self.path}/ssh_config" "$@"\n')
        program.chmod(0o755)
        self._call(*self._command())
        self._wait()

    def configure_client(self, *lines: str) -> None:
        """Write the configuration of both clients: ssh's, and the one in the home of rv's own; `lines` come first, and win."""
        first, *others = self._client_lines()
        text = "\n".join([first, *(f"  {line}" for line in lines), *others, ""])
        homes = (self.home, *self.client_homes)
        for file in (self.path / "ssh_config", *(home / ".ssh" / "config" for home in homes)):
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.write_text(text)

    @property
    def home(self) -> Path:
        """The home of who uses it, on the client's side."""
        return self.path / "user"

    def stop(self) -> None:
        """End it and its sessions; a shared connection ends with them."""
        for pid in self.sessions():
            subprocess.run(["kill", "-9", str(pid)], check=False)
        pid_file = self.path / "sshd.pid"
        if pid_file.exists():
            pid = pid_file.read_text().strip()
            subprocess.run(["kill", pid], check=False)
            pid_file.unlink(missing_ok=True)
            deadline = time.monotonic() + 5
            while self._listens() and time.monotonic() < deadline:
                time.sleep(0.01)

    def sessions(self) -> list[int]:
        """The processes of its connections: not what they run, which notices by itself."""
        pid_file = self.path / "sshd.pid"
        if not pid_file.exists():
            return []
        server = int(pid_file.read_text())
        known = {each.pid: each.info for each in psutil.process_iter(["ppid", "name"])}
        sessions = [pid for pid, of in known.items() if of["ppid"] == server]
        below = [pid for pid, of in known.items() if of["ppid"] in sessions]
        return sessions + [pid for pid in below if known[pid]["name"].startswith("sshd")]

    def cut(self) -> None:
        """Break its connections, as a network does that went away."""
        for pid in self.sessions():
            subprocess.run(["kill", "-9", str(pid)], check=False)

    def trust(self, key: str = "host_key") -> None:
        """Write the key that the client knows of this server."""
        public = (self.path / f"{key}.pub").read_text().split()[:2]
        line = f"[127.0.0.1]:{self.port} {' '.join(public)}\n"
        (self.path / "known_hosts").write_text(line)

    @property
    def search_path(self) -> str:
        """PATH with that client first."""
        return f"{self.path / 'bin'}:{os.environ['PATH']}"

    def _command(self) -> list[object]:
        start = [SSHD, "-f", self.path / "sshd_config", "-E", self.path / "sshd.log"]
        if not self.binds:
            return start
        mounts = [f"mount --bind {ours} {theirs}" for theirs, ours in self.binds.items()]
        script = " && ".join([*mounts, 'exec "$@"'])
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *start]

    def _server_lines(self) -> list[str]:
        return [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.path}/host_key",
            f"PidFile {self.path}/sshd.pid",
            f"AuthorizedKeysFile {self.path}/user_key.pub",
            f"PasswordAuthentication {'yes' if self.pam else 'no'}",
            f"KbdInteractiveAuthentication {'yes' if self.pam else 'no'}",
            "StrictModes no",
            f"UsePAM {'yes' if self.pam else 'no'}",
            "PermitRootLogin yes",
            *self.settings,
        ]

    def _client_lines(self) -> list[str]:
        return [
            f"Host {self.alias}",
            "  HostName 127.0.0.1",
            f"  Port {self.port}",
            f"  IdentityFile {self.path}/user_key",
            "  IdentitiesOnly yes",
            f"  UserKnownHostsFile {self.path}/known_hosts",
        ]

    def _wait(self) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if self._listens() and self._is_written():
                return
            time.sleep(0.02)
        raise AssertionError((self.path / "sshd.log").read_text())

    def _is_written(self) -> bool:
        """Whether the file by which it is stopped names it; sshd makes it empty first."""
        pid_file = self.path / "sshd.pid"
        return pid_file.exists() and pid_file.read_text().endswith("\n")

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @staticmethod
    def _call(*words: object) -> None:
        subprocess.run([str(word) for word in words], check=True)
