"""A login node before a test's cluster: its clients run as on a laptop, and reach it over ssh.

With RV_FAULTS_OVER=openssh or paramiko those of tests/slurm and tests/faults do.
"""

import os
import shlex
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.ssh.proxy import Proxy
from tests.ssh.server import HOST, SshServer

_THERE: Final = ("SLURM", "SBATCH", "SQUEUE", "SACCT", "SCANCEL", "SINFO", "RV_RACE_ROOT", "PATH")
"""What the variables begin with that are the login node's, and not the laptop's."""

_HERE: Final = ("XDG_", "PYTHON", "RV_", "SSH_")
"""The same of those that are the laptop's alone; what else a test sets is set on both."""

_OWN: Final = {
    "HOME",
    "TERM",
    "COLUMNS",
    "LINES",
    "SHELL",
    "SHELLOPTS",
    "BASHOPTS",
    "PWD",
    "SHLVL",
    "_",
}
"""What a shell sets itself."""


OVER: Final = os.environ.get("RV_FAULTS_OVER", "")
"""The ssh over which clients reach the clusters: openssh or paramiko; none on the login node."""


class LoginNode:
    """An sshd whose logins have their home in `home`; `ssh` is the transport that clients use.

    They are of the user who runs the tests, or of another one, whose home it is.
    """

    def __init__(self, path: Path, home: Path, ssh: str, user: str = "") -> None:
        self._ssh = ssh
        self._user = user
        self._proxies: list[Proxy] = []
        self._variables = path / "login_environment"
        self._runtime = Path(tempfile.mkdtemp(prefix="rvf", dir="/tmp"))
        self._laptop = path / "laptop"
        self._laptop.mkdir(parents=True)
        (home / ".bash_profile").write_text(f". {shlex.quote(str(self._variables))}\n")
        self._server = SshServer(path=path / "sshd", client_homes=[self._laptop])
        self._server.settings = [f"SetEnv HOME={home}", "MaxStartups 100"]
        if user:
            self._server.binds = {"/etc/passwd": _users_with_shells(path / "passwd")}
        self._server.start()
        if user:
            self._server.configure_client(f"User {user}")
            self._give()

    def _give(self) -> None:
        """Let the laptop's files be its user's."""
        key = self._server.path / "user_key"
        for file in (key, self._runtime, self._laptop, *self._laptop.rglob("*")):
            shutil.chown(file, self._user)

    def environment(
        self, env: Mapping[str, str], home: Path, enter: Sequence[str] = ()
    ) -> dict[str, str]:
        """Give the login node its part of an environment, and return the laptop's.

        Logins there have their home in `home`; what they run is run by `enter` where that is given.
        """
        there = {key: value for key, value in env.items() if _is_there(key, value)}
        lines = [f"export {key}={shlex.quote(value)}" for key, value in there.items()]
        lines += [f"export HOME={shlex.quote(str(home))}", "cd"]
        if enter:
            inside = shlex.join([*enter, "/bin/bash", "--login", "-c"])
            lines.append(f'[ "${{INSIDE-}}" ] || INSIDE=yes exec {inside} "$BASH_EXECUTION_STRING"')
        self._tell(lines)
        here = {key: value for key, value in env.items() if not key.startswith((*_THERE, "SSH_"))}
        return here | {
            "HOME": str(self._laptop),
            "PATH": self._server.search_path,
            "RV_CLUSTER": f"ssh:{HOST}",
            "RV_SSH": self._ssh,
            "XDG_RUNTIME_DIR": str(self._runtime),
        }

    def _tell(self, lines: Sequence[str]) -> None:
        """Write the profile of all logins, in one step: one may be reading it."""
        text = "\n".join([*lines, ""])
        if self._variables.exists() and self._variables.read_text() == text:
            return
        new = self._variables.with_name(f"{self._variables.name}.{threading.get_ident()}")
        new.write_text(text)
        new.replace(self._variables)

    def put_behind(self, proxy: Callable[[int], Proxy]) -> Proxy:
        """Let clients connect to a proxy, which is made for the server's port."""
        made = proxy(self._server.port)
        self._proxies.append(made)
        alias = f"HostKeyAlias [127.0.0.1]:{self._server.port}"
        self._server.configure_client(f"Port {made.port}", alias)
        return made

    def stop(self) -> None:
        """End it, with all connections."""
        for proxy in self._proxies:
            proxy.close()
        self._server.stop()
        shutil.rmtree(self._runtime, ignore_errors=True)


def _is_there(key: str, value: str) -> bool:
    """Whether the login node has this variable too."""
    is_set_by_the_test = os.environ.get(key) != value and key.isidentifier()
    return key.startswith(_THERE) or (
        is_set_by_the_test and not key.startswith(_HERE) and key not in _OWN
    )


def _users_with_shells(path: Path) -> Path:
    """Write the users of this machine, all of whom may log in."""
    lines = Path("/etc/passwd").read_text().splitlines()
    path.write_text("".join(f"{line.rpartition(':')[0]}:/bin/bash\n" for line in lines))
    return path
