"""The accounting database: MariaDB behind a private socket, started from a saved copy.

Making it takes seconds (system tables, slurmdbd's schema, and 0.4 s for each thing sacctmgr adds);
copying one made before takes a tenth of one. Copies are kept in the user's cache folder, for
exactly the same MariaDB, Slurm, user and accounting contents.
"""

import contextlib
import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.sandbox import daemons, ports, processes
from rv.sandbox.profile import Profile
from rv.sandbox.records import Record
from rv.sandbox.tools import path_of

FORMAT: Final = "1"


def template_path(profile: Profile, user: str) -> Path:
    """Where the saved database of this profile is, or would be."""
    import platformdirs

    key = "\n".join((FORMAT, user, *map(_version, ("mariadbd", "slurmdbd"))))
    digest = hashlib.sha256(f"{key}\n{profile.accounting_digest}".encode()).hexdigest()[:16]
    return platformdirs.user_cache_path("rv") / "sandbox" / f"{profile.cluster}-{digest}"


def _version(program: str) -> str:
    """What stands for a program's version; asking it would cost a process."""
    path = Path(path_of(program)).resolve()
    found = path.stat()
    return f"{path}:{found.st_size}:{found.st_mtime_ns}"


def restore(template: Path, record: Record) -> bool:
    """Start from a saved database; False when there is none that can be used."""
    if not template.is_dir():
        return False
    return _copy(template, record.layout.database)


def save(template: Path, record: Record) -> None:
    """Keep the (stopped) database for the next time; not being able to costs only time."""
    fresh = template.with_name(f".{template.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        template.parent.mkdir(parents=True, exist_ok=True)
        if _copy(record.layout.database, fresh):
            fresh.rename(template)
    shutil.rmtree(fresh, ignore_errors=True)


def _copy(source: Path, target: Path) -> bool:
    argv = ["cp", "-a", "--sparse=always", str(source), str(target)]
    done = processes.run(argv, env=processes.environment({}))
    if done.returncode:
        shutil.rmtree(target, ignore_errors=True)
    return done.returncode == 0


def create(record: Record) -> None:
    """Make an empty database directory."""
    layout = record.layout
    layout.database.mkdir(mode=0o700, exist_ok=True)
    argv = [
        path_of("mariadb-install-db"),
        "--no-defaults",
        *(["--user=root"] if os.getuid() == 0 else []),
        f"--datadir={layout.database}",
        "--skip-test-db",
        "--auth-root-authentication-method=normal",
        *daemons.mariadb_options(record),
    ]
    done = processes.run(argv, env=daemons.environment(record), timeout=60)
    if done.returncode:
        raise RvError(
            ErrorKind.SANDBOX,
            f"mariadb-install-db failed in {layout.database}: {done.complaint}",
            hint="is the disk full? rv sandbox up --directory puts the sandbox elsewhere",
        )


def start(record: Record) -> None:
    """Start MariaDB and wait until it answers."""
    daemons.start(record, daemons.MARIADBD)
    socket = str(record.layout.database_socket)
    daemons.wait_for(record, daemons.MARIADBD, lambda: ports.answering(socket))
