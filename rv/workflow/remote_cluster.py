"""A cluster behind a login node that rv reaches by ssh."""

import shutil
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.slurm.cache import SnapshotCache
from rv.slurm.environment import SCRUBBED_FORM
from rv.slurm.values import last_line
from rv.transport.openssh import OpenSsh
from rv.transport.remote import RemoteTransport
from rv.transport.remote_shell import RemoteShell
from rv.workflow.cluster import Cluster, LoginNode

_ASKING_S: Final = 30.0
# What launching there needs: the environment of a login shell, and where things are.
_ABOUT: Final = """\
state=${XDG_STATE_HOME:-$HOME/.local/state}
printf '%s\\0' "$(command -v sbatch)" "${RV_RACE_ROOT:-$state/rv/races}"
env -0
"""


def remote_cluster(host: str, ssh: str = "auto") -> Cluster:  # noqa: ARG001 - one way for now
    """Connect to a login node, as `ssh HOST` would, and ask what launching there needs.

    `ssh` is how: "auto", "openssh" or "paramiko".

    Raises `RvError(UNREACHABLE)` where it cannot be reached, or has no Slurm.
    """
    import platformdirs

    program = shutil.which("ssh")
    if program is None:
        raise RvError(
            ErrorKind.UNREACHABLE, "there is no ssh here", hint="install an OpenSSH client"
        )
    client = OpenSsh(host, program)
    shell = RemoteShell(client.connect, SCRUBBED_FORM)
    code, out, err = shell.run(_ABOUT, timeout_s=_ASKING_S)
    sbatch, root, *pairs = [*out.decode("utf-8", "surrogateescape").split("\0"), "", ""]
    if code or not root:
        why = last_line(err.decode("utf-8", "replace")) or "the login shell there gave no answer"
        raise RvError(ErrorKind.UNREACHABLE, f"{why}, on {host}", hint=f"try: ssh {host}")
    if not sbatch:
        raise RvError(
            ErrorKind.UNREACHABLE,
            f"no Slurm commands on PATH, on {host}",
            hint="load the site's slurm module in ~/.bash_profile there, or name a login node",
        )
    environ = _login_environment(pairs)
    return Cluster(
        key=f"ssh:{host}",
        label=f"Slurm behind {host}",
        transport=RemoteTransport(shell, client.terminal),
        cache=SnapshotCache(directory=platformdirs.user_cache_path("rv"), key=f"ssh:{host}"),
        race_root=str(PurePosixPath(root)),
        slurm_path=str(PurePosixPath(sbatch).parent),
        login=LoginNode(
            environ=environ, home=environ.get("HOME", "/"), connection=client.description
        ),
    )


def _login_environment(pairs: Iterable[str]) -> dict[str, str]:
    """Return the variables of a login there, with its own locale instead of the scripts'."""
    environ = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    locale = environ.pop("RV_LC_ALL", "")
    environ.pop("LC_ALL", None)
    return environ | ({"LC_ALL": locale} if locale else {})
