"""Where a sandbox keeps what: paths, and who may see them.

As root the cluster serves every local user, so what jobs and clients read (configuration, munge's
socket, spool, the fake nvidia-smi) is open to all while the database, the munge key, the state
and the logs are not. An ordinary user's sandbox is closed to everybody else.
"""

import errno
import hashlib
import os
from pathlib import Path
from typing import Final

# sun_path holds 108 bytes, the last one a NUL.
SOCKET_LIMIT: Final = 107
# slurmstepd's socket: SPOOL/NODE/NODE_JOBID.STEPID, both numbers up to ten digits.
STEP_DIGITS: Final = 22
ROOT_HOME: Final = Path("/var/lib/rv-sandbox")


class Layout:
    """The paths of one sandbox.

    Attributes:
        directory: everything, except what must have a short path.
        run: sockets and spool; inside `directory` unless that is too deep for a socket.
    """

    def __init__(self, *, directory: Path, run: Path) -> None:
        self.directory = directory
        self.run = run
        self.slurm_conf = directory / "slurm.conf"
        self.daemons_conf = directory / "daemons.conf"
        self.slurmdbd_conf = directory / "slurmdbd.conf"
        self.gres_conf = directory / "gres.conf"
        self.cgroup_conf = directory / "cgroup.conf"
        self.cgroup = directory / "cgroup"
        self.bin = directory / "bin"
        self.nodes = directory / "nodes"
        self.devices = directory / "dev"
        self.records = directory / "processes"
        self.logs = directory / "log"
        self.state = directory / "state"
        self.munge = directory / "munge"
        self.database = directory / "mysql"
        self.database_sql = directory / "database.sql"
        self.scratch = directory / "tmp"
        self.spool = run / "spool"
        self.munge_socket = run / "munge.sock"
        self.database_socket = run / "db" / "my.sock"

    def make(self) -> None:
        """Create the folders with their modes, whatever the umask."""
        opened = 0o755 if os.getuid() == 0 else 0o700
        for path in (
            self.directory,
            self.run,
            self.bin,
            self.nodes,
            self.devices,
            self.spool,
            self.cgroup,
        ):
            path.mkdir(parents=True, exist_ok=True)
            if path.is_symlink() or path.stat().st_uid != os.getuid():
                raise PermissionError(errno.EPERM, "it belongs to another user", str(path))
            path.chmod(opened)
        closed = (
            self.records,
            self.logs,
            self.state,
            self.munge,
            self.scratch,
            self.database_socket.parent,
        )
        for path in closed:
            path.mkdir(exist_ok=True)
            path.chmod(0o700)


def default_directory(state_root: Path, name: str) -> Path:
    """Under the state folder; for a root whose home is closed, where others can reach it."""
    if os.getuid() == 0 and not reachable(state_root):
        return ROOT_HOME / f"{name}-{short_digest(state_root)}"
    return state_root / name


def reachable(path: Path) -> bool:
    """Whether every local user can pass through this folder, or will once it is made."""
    existing = [folder for folder in (path, *path.parents) if folder.exists()]
    return all(folder.stat().st_mode & 0o001 for folder in existing)


def short_digest(path: Path) -> str:
    """Eight letters that stand for a path."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:8]


def run_directory(directory: Path, longest_node: int) -> Path:
    """Inside the sandbox when every socket path fits there, else a short one of its own."""
    inside = directory / "run"
    needed = len("/spool/") + 2 * longest_node + 1 + STEP_DIGITS
    if len(os.fsencode(inside)) + needed <= SOCKET_LIMIT:
        return inside
    return Path("/tmp") / f"rv-{os.getuid()}-{short_digest(directory)}"  # noqa: S108 - made 0700, owner checked
