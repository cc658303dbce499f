"""The accounting of a sandbox: slurmdbd, its MariaDB behind a private socket, and what they hold.

Making the database takes seconds (system tables, slurmdbd's schema, and 0.4 s for each thing that
sacctmgr adds); copying one made before takes a tenth of one. Copies are kept in the user's cache
folder, for exactly the same MariaDB, Slurm, user and accounting contents.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.sandbox import daemons, loopback, ports, processes
from rv.sandbox.processes import path_of
from rv.sandbox.profile import Account, Pairs, Profile, Qos
from rv.sandbox.records import Record
from rv.sandbox.slurmconf import slurmdbd_port

# Its files are made in seconds on most machines, and in over a minute where others write too.
_DATABASE_S: Final = 300

FORMAT: Final = "1"
"""Counts the ways in which saved databases are made."""


def start_slurmdbd(record: Record, base: int) -> None:
    """Start slurmdbd and wait until it answers."""
    daemons.start(record, daemons.SLURMDBD)
    port = slurmdbd_port(base)
    daemons.wait_for(record, daemons.SLURMDBD, lambda: ports.listening(loopback.address(), port))


def fill(record: Record, profile: Profile, user: str) -> None:
    """Everything but the limits that count GPUs."""
    sacctmgr(record, [["add", "cluster", profile.cluster]])
    sacctmgr(record, [_add_qos(each) for each in profile.qos])
    plain = [account.name for account in profile.accounts if account == Account(name=account.name)]
    if plain:
        sacctmgr(record, [["add", "account", ",".join(plain)]])
    others = [account for account in profile.accounts if account.name not in plain]
    sacctmgr(record, [_add_account(each) for each in others])
    add_users(record, profile, (user, *profile.users))


def wait_for_gpus(record: Record) -> None:
    """Wait until the database counts GPUs: from 23.11 on a controller registers them late."""
    argv = [path_of("sacctmgr"), "-n", "-P", "show", "tres", "format=Type,Name"]

    def counted() -> bool:
        answer = processes.run(argv, env=daemons.environment(record))
        return "gres|gpu" in answer.stdout.splitlines()

    daemons.wait_for(record, daemons.SLURMCTLD, counted)


def fill_gpu_limits(record: Record, profile: Profile) -> None:
    """The limits that count GPUs: Slurm refuses or drops them until it knows `gres/gpu`."""
    counting = [qos for qos in profile.qos if qos.counts_gpus]
    sacctmgr(record, [["modify", "qos", q.name, "set", *_qos_settings(q)] for q in counting])
    limited = [account for account in profile.accounts if account.counts_gpus]
    sacctmgr(record, [["modify", "account", a.name, "set", *_settings(a)] for a in limited])


def add_users(record: Record, profile: Profile, users: Iterable[str]) -> None:
    """Let local users submit."""
    joined = [account.name for account in profile.accounts if account.joined]
    qos = ",".join(("normal", *profile.grants))
    for user in dict.fromkeys(users):
        check_user(user)
        limits = [f"account={','.join(joined)}", f"defaultaccount={joined[0]}"]
        granted = [f"qos={qos}", "defaultqos=normal"] if profile.grants else []
        sacctmgr(record, [["add", "user", user, *limits, *granted]])


def check_user(user: str) -> None:
    """Refuse a user that this machine does not have."""
    if processes.uid_of(user) is None:
        raise RvError(
            ErrorKind.SANDBOX, f"no user {user!r} on this machine", hint="see `getent passwd`"
        )


def _add_account(account: Account) -> list[str]:
    parent = [f"parent={account.parent}"] if account.parent else []
    limits = [] if account.counts_gpus else _settings(account)
    return ["add", "account", account.name, *parent, *limits]


def _settings(account: Account) -> list[str]:
    return [f"{key}={value}" for key, value in account.options]


def _add_qos(qos: Qos) -> list[str]:
    return ["add", "qos", qos.name, *([] if qos.counts_gpus else _qos_settings(qos))]


def _qos_settings(qos: Qos) -> Iterator[str]:
    tres = {
        "MaxTRESPerJob": qos.max_tres_per_job,
        "MaxTRESPerUser": qos.max_tres_per_user,
        "GrpTRES": qos.grp_tres,
    }
    yield from (f"{key}={_tres(pairs)}" for key, pairs in tres.items() if pairs)
    single = {
        "MaxWall": qos.max_wall,
        "MaxJobsPerUser": qos.max_jobs_per_user,
        "MaxSubmitJobsPerUser": qos.max_submit_per_user,
        "Priority": qos.priority,
        "Flags": ",".join(qos.flags) or None,
    }
    yield from (f"{key}={value}" for key, value in single.items() if value is not None)
    yield from (f"{key}={value}" for key, value in qos.options)


def _tres(pairs: Pairs) -> str:
    return ",".join(f"{key}={value}" for key, value in pairs)


def sacctmgr(record: Record, commands: list[list[str]]) -> None:
    """Make changes; one that is made already is fine."""
    for command in commands:
        argv = [path_of("sacctmgr"), "-i", *command]
        done = processes.run(argv, env=daemons.environment(record))
        if done.returncode and "already exist" not in done.stdout + done.stderr:
            raise RvError(
                ErrorKind.SANDBOX,
                f"sacctmgr {' '.join(command)}: {done.complaint}",
                hint=f"rv sandbox down --name {record.name}, then up again",
            )


def database_template(profile: Profile, user: str) -> Path:
    """Where the saved database of this profile is, or would be."""
    import platformdirs

    key = "\n".join((FORMAT, user, *map(_version, ("mariadbd", "slurmdbd"))))
    digest = hashlib.sha256(f"{key}\n{profile.accounting_digest}".encode()).hexdigest()[:16]
    return platformdirs.user_cache_path("rv") / "sandbox" / f"{profile.cluster}-{digest}"


def _version(program: str) -> str:
    """Return path, size and mtime of a program: running `--version` would cost a process."""
    path = Path(path_of(program)).resolve()
    about = path.stat()
    return f"{path}:{about.st_size}:{about.st_mtime_ns}"


def restore_database(template: Path, record: Record) -> bool:
    """Copy a saved database into the sandbox; False where there is none, or copying fails."""
    if not template.is_dir():
        return False
    return _copy(template, record.layout.database)


def save_database(template: Path, record: Record) -> None:
    """Keep the (stopped) database for the next time; not being able to costs only time."""
    with contextlib.suppress(OSError):
        template.parent.mkdir(parents=True, exist_ok=True)
        # A folder of its own: several sandboxes may be started by one process at once.
        with tempfile.TemporaryDirectory(dir=template.parent, prefix=".") as folder:
            fresh = Path(folder) / template.name
            if _copy(record.layout.database, fresh):
                fresh.rename(template)


def _copy(source: Path, target: Path) -> bool:
    argv = ["cp", "-a", "--sparse=always", str(source), str(target)]
    done = processes.run(argv, env=processes.environment({}))
    if done.returncode:
        shutil.rmtree(target, ignore_errors=True)
    return done.returncode == 0


def create_database(record: Record) -> None:
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
    done = processes.run(argv, env=daemons.environment(record), timeout_s=_DATABASE_S)
    if done.returncode:
        raise RvError(
            ErrorKind.SANDBOX,
            f"mariadb-install-db failed in {layout.database}: {done.complaint}",
            hint="is the disk full? rv sandbox up --directory puts the sandbox elsewhere",
        )


def start_database(record: Record) -> None:
    """Start MariaDB and wait until it answers."""
    daemons.start(record, daemons.MARIADBD)
    socket = str(record.layout.database_socket)
    daemons.wait_for(record, daemons.MARIADBD, lambda: ports.answering(socket))
