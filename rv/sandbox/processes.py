"""The only door of the sandbox to processes: start, find, end, and ask commands.

A process is known by its pid *and* its start time, because pids are recycled; and, for the moments
in which a killed `up` had no time to write that down, by `RV_SANDBOX=<id>` in its environment.
Jobs carry the same marker (the task prolog exports it), so leftovers of jobs are found too.
"""

import contextlib
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError

MARKER: Final = "RV_SANDBOX"
# Debian keeps daemons where an ordinary user's PATH does not look.
DAEMON_PATH: Final = "/usr/local/sbin:/usr/sbin:/sbin"
LAUNCH: Final = 'umask 022; cd / && exec "$@"'


PACKAGES: Final = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "sinfo": "slurm-client",
    "scontrol": "slurm-client",
    "munged": "munge",
}
ACCOUNTING_PACKAGES: Final = {
    "slurmdbd": "slurmdbd",
    "sacctmgr": "slurm-client",
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    "my_print_defaults": "mariadb-client-core",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """A process that cannot be mistaken for a later one with the same pid."""

    pid: int
    started: int

    @property
    def live(self) -> bool:
        """Whether it still runs; a zombie does not."""
        return started_at(self.pid) == self.started


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed:
    """What a command answered."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def complaint(self) -> str:
        """The last line that says "error", else the last of its errors, or of its output."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        errors = [line for line in lines if "error" in line.lower()]
        return (errors or lines or [f"exit code {self.returncode}"])[-1]


def boot_id() -> str:
    """Name this boot of the machine: start times mean nothing across boots."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def started_at(pid: int) -> int | None:
    """The start time of a running process in clock ticks since boot; None when there is none.

    psutil's start times move with the machine's clock, so they cannot be written down and compared.
    """
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # our own dead child would stay a zombie
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def search_path(path: str | None = None) -> str:
    """PATH, followed by the folders of daemons."""
    return f"{os.environ.get('PATH', os.defpath) if path is None else path}:{DAEMON_PATH}"


def program(name: str, path: str | None = None) -> str | None:
    """The path of a program, or None."""
    import shutil  # most commands only look whether a sandbox is up

    return shutil.which(name, path=search_path(path))


def require(*, accounting: bool, path: str | None = None) -> None:
    """Refuse to start without the packages; name all that are missing at once."""
    packages_of = PACKAGES | (ACCOUNTING_PACKAGES if accounting else {})
    missing = [name for name in packages_of if program(name, path) is None]
    if missing:
        packages = list(dict.fromkeys(packages_of[name] for name in missing))
        raise RvError(
            ErrorKind.SANDBOX,
            f"the sandbox needs {', '.join(missing)}, not found on PATH",
            hint=install_command(packages),
        )


def install_command(packages: list[str]) -> str:
    """What to type, as this user."""
    sudo = "" if os.getuid() == 0 else "sudo "
    return f"{sudo}apt-get install -y --no-install-recommends {' '.join(packages)}"


def path_of(name: str) -> str:
    """The full path of a program that `require` has seen."""
    return program(name) or name


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of every sandbox process: none of the caller's Slurm or MariaDB settings."""
    foreign = ("SLURM", "SBATCH_", "SALLOC_", "SQUEUE_", "SINFO_", "SACCT", "SCONTROL_", "MYSQL_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return kept | {"PATH": search_path(), "LC_ALL": "C"} | dict(extra)


def spawn(argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> Process:
    """Start a daemon in a session of its own, with `log` for its output.

    posix_spawn rather than Popen: nothing is to wait for it, and Popen objects warn about that.
    A caller killed between fork and exec leaves a child that still holds the caller's file lock
    until it has the marker in its environment, so the next `up` always sees it.
    """
    opened = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = (
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), opened, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    )
    shell = ["/bin/sh", "-c", LAUNCH, "sh", *argv]
    try:
        pid = os.posix_spawn("/bin/sh", shell, dict(env), file_actions=actions, setsid=True)
    except OSError as error:
        raise RvError(
            ErrorKind.SANDBOX,
            f"cannot start {argv[0]}: {error.strerror}",
            hint="is it installed, and may you run it?",
        ) from error
    return Process(pid=pid, started=started_at(pid) or 0)


def spawn_python(module: str, *args: str, env: Mapping[str, str], log: Path) -> Process:
    """Start a module of rv in the background, by the interpreter that runs now."""
    package_root = str(Path(__file__).parents[2])
    search = os.pathsep.join(filter(None, (package_root, os.environ.get("PYTHONPATH"))))
    return spawn(
        [sys.executable, "-m", module, *args], env=dict(env) | {"PYTHONPATH": search}, log=log
    )


def run(
    argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float = 30, stdin: str = ""
) -> Completed:
    """Run a command to its end; a hanging one is an error like any other."""
    try:
        done = subprocess.run(
            argv,
            env=dict(env),
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Completed(returncode=124, stdout="", stderr=f"no answer in {timeout_s:.0f} s")
    except OSError as error:
        return Completed(returncode=127, stdout="", stderr=f"{argv[0]}: {error.strerror}")
    return Completed(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)


def wait_until(ready: Callable[[], bool], *, timeout_s: float, pause_s: float = 0.01) -> bool:
    """Poll until `ready`; False when `timeout_s` seconds did not bring it."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True


def send(process: Process, number: signal.Signals) -> bool:
    """Signal exactly this process: a pidfd cannot come to mean another one."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not process.live:
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def end(processes: Iterable[Process], *, grace_s: float = 0) -> None:
    """End processes: TERM first where they get `grace_s` seconds, then KILL, and wait."""
    ending = [process for process in processes if process.pid != os.getpid()]
    if grace_s:
        ending = [process for process in ending if send(process, signal.SIGTERM)]
        wait_until(lambda: not any(p.live for p in ending), timeout_s=grace_s)
    ending = [process for process in ending if send(process, signal.SIGKILL)]
    wait_until(lambda: not any(p.live for p in ending), timeout_s=10)


def uid_of(user: str) -> int | None:
    """The number of a local user; None where there is none of that name."""
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(user).pw_uid
    return None


def marked(
    identity: str, *, owners: Collection[int] = (), seeds: Iterable[int] = ()
) -> tuple[Process, ...]:
    """Every process of this sandbox: a seed, one with its marker, and those below them.

    Anybody can set the marker: it counts for processes of this user and of the `owners`.
    """
    import psutil

    children: dict[int, list[int]] = {}
    waiting = list(seeds)
    for process in psutil.process_iter(["environ", "ppid", "uids"]):
        children.setdefault(process.info["ppid"], []).append(process.pid)
        environ = process.info["environ"] or {}  # None where we may not look
        if environ.get(MARKER) == identity and process.info["uids"].real in {os.getuid(), *owners}:
            waiting.append(process.pid)
    ours = _with_descendants(waiting, children)
    starts = ((pid, started_at(pid)) for pid in sorted(ours))
    return tuple(Process(pid=pid, started=start) for pid, start in starts if start is not None)


def _with_descendants(seeds: list[int], children: Mapping[int, list[int]]) -> set[int]:
    """Return processes and all below them, but for this one."""
    pids: set[int] = set()
    waiting = list(seeds)
    while waiting:
        pid = waiting.pop()
        if pid != os.getpid() and pid not in pids:
            pids.add(pid)
            waiting += children.get(pid, [])
    return pids
