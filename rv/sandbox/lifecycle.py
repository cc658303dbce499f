"""Bring a sandbox up and down, whatever state the last `up` or the last boot left it in."""

import contextlib
import dataclasses
import os
import pwd
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.files import why_not_private
from rv.sandbox import boot, daemons, gpu, processes, records, schema
from rv.sandbox.layout import Layout, default_directory, run_directory
from rv.sandbox.profile import Profile
from rv.sandbox.records import Record

Progress = Callable[[str], None]
ATTEMPTS: Final = 3
_REMOVE_S: Final = 10.0


def up(
    name: str,
    profile: str | Profile | None,
    *,
    directory: Path | None,
    users: tuple[str, ...],
    progress: Progress,
) -> Record:
    """Bring a sandbox up, or back up; a healthy one is left alone."""
    records.check_name(name)
    with records.locked(name):
        record = records.read(name)
        content = _profile(profile, record)
        if record and _is_running(record):
            _refuse_other(record, content, directory)
            heal(record, progress)
        else:
            if record:
                progress(
                    f"sandbox {name} was cut off: starting it anew, its old jobs are forgotten"
                )
                _clear(record)
            record = _boot(_new_record(name, profile, content, directory), content, progress)
        return _with_users(record, content, users)


def _is_running(record: Record) -> bool:
    """Whether enough of it runs to mend it; a whole that ended is built anew, on new ports."""
    if not record.ready or record.boot != processes.boot_id():
        return False
    return any(process.live for process in records.processes(record.layout).values())


def _profile(profile: str | Profile | None, record: Record | None) -> Profile:
    if isinstance(profile, Profile):
        return profile
    name = profile or (record.profile if record else "small")
    return gpu.machine_profile() if name == "gpu" else schema.load_profile(name)


def _refuse_other(record: Record, content: Profile, directory: Path | None) -> None:
    """An `up` that asks for something else than what runs must not pretend that it did it."""
    other = content.digest != record.digest
    moved = directory is not None and directory.resolve() != Path(record.directory)
    if other or moved:
        what = f"with profile {record.profile}" if other else f"in {record.directory}"
        raise RvError(
            ErrorKind.SANDBOX,
            f"sandbox {record.name} is up {what} already",
            hint=f"rv sandbox down --name {record.name} first, or choose another --name",
        )


def _new_record(
    name: str, profile: str | Profile | None, content: Profile, directory: Path | None
) -> Record:
    place = (directory or default_directory(records.state_root(), name)).resolve()
    if why := why_not_private(place):
        raise RvError(
            ErrorKind.SANDBOX,
            f"another user could change what Slurm's daemons run: {why}",
            hint="choose another --directory, or chmod go-w where it is yours",
        )
    if place.exists() and any(place.iterdir()):
        raise RvError(
            ErrorKind.SANDBOX,
            f"{place} is not empty, and no sandbox of mine",
            hint="choose another --directory, or empty this one",
        )
    longest = max(map(len, content.node_names))
    return Record(
        name=name,
        identity=secrets.token_hex(8),
        directory=str(place),
        run=str(run_directory(place, longest)),
        boot=processes.boot_id(),
        profile=_profile_name(profile, content),
        digest=content.digest,
        cluster_name=content.cluster,
        users=content.users,
    )


def _profile_name(profile: str | Profile | None, content: Profile) -> str:
    """What `up` without a profile is to load again: a name, or a file wherever it is called."""
    if not isinstance(profile, str):
        return content.cluster if profile else "small"
    has_name = profile in (*schema.builtin_names(), "gpu")
    return profile if has_name else str(Path(profile).expanduser().resolve())


def _boot(record: Record, profile: Profile, progress: Progress) -> Record:
    """Start everything; a start that lost its ports to somebody else is tried again."""
    for attempt in range(1, ATTEMPTS + 1):
        records.write(record)
        try:
            boot.boot(record, profile, user_name(), progress)
        except daemons.DaemonError as error:
            _clear(record)
            if attempt == ATTEMPTS or "in use" not in error.message:
                raise
        except BaseException:
            _clear(record)
            raise
        else:
            return _mark_ready(record)
    raise AssertionError


def _mark_ready(record: Record) -> Record:
    ready = dataclasses.replace(record, ready=True, up_at=time.time())
    records.write(ready)
    return ready


def user_name() -> str:
    """Who brings it up: SlurmUser, and the first user with an account."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError as error:
        raise RvError(
            ErrorKind.SANDBOX,
            f"uid {os.getuid()} has no name on this machine, which Slurm needs",
            hint="run as a user of /etc/passwd",
        ) from error


def heal(record: Record, progress: Progress) -> None:
    """Start again what has ended since."""
    ended = [role for role in records.processes(record.layout) if not daemons.live(record, role)]
    ended += [role for role in boot.roles(record) if role not in records.processes(record.layout)]
    restart = [role for role in boot.roles(record) if role in ended]
    if restart:
        progress(f"starting again: {', '.join(restart)}")
        boot.restart(record, restart)


def _with_users(record: Record, profile: Profile, users: tuple[str, ...]) -> Record:
    new = [user for user in users if user not in record.users and user != user_name()]
    if not new:
        return record
    boot.add_users(record, profile, new)
    updated = dataclasses.replace(record, users=(*record.users, *new))
    records.write(updated)
    return updated


def down(name: str) -> bool:
    """End a sandbox and remove all of it; False when there was none."""
    records.check_name(name)
    with records.locked(name):
        record = records.read(name)
        if record is None:
            return False
        _clear(record)
        return True


def _clear(record: Record) -> None:
    """End every process, remove every file, and at last the record.

    Both again until nothing is left: what a killed `up` had forked, and what had not come to its
    exec yet, has the marker only later, and may write meanwhile.
    """

    def is_gone() -> bool:
        if record.boot == processes.boot_id():
            _end_all(record)
        return not _remove(record.layout)

    is_clear = processes.wait_until(is_gone, timeout_s=_REMOVE_S, pause_s=0.1)
    # A busy machine may need all of that time for what is written meanwhile, and be done with it.
    if not is_clear and (left := _remove(record.layout)):
        raise _left_behind(", ".join(map(str, left)))
    place = record.layout.directory
    if place.is_dir() and not place.is_symlink():
        raise _left_behind(f"{place}, which belongs to another user")
    records.forget(record.name)


def _left_behind(what: str) -> RvError:
    hint = "remove it by hand, then down again"
    return RvError(ErrorKind.SANDBOX, f"cannot remove {what}", hint=hint)


def _end_all(record: Record) -> None:
    """Controllers first, so that no new job starts, then whatever is left, to the last one."""
    recorded = records.processes(record.layout)
    first = [p for role, p in recorded.items() if role == daemons.SLURMCTLD or "slurmd." in role]
    processes.end(first)

    def none_left() -> bool:
        left = daemons.all_processes(record)
        processes.end(left)
        return not left

    if not processes.wait_until(none_left, timeout_s=20):
        left = ", ".join(str(process.pid) for process in daemons.all_processes(record))
        raise RvError(
            ErrorKind.SANDBOX,
            f"processes of sandbox {record.name} do not end: {left}",
            hint="they belong to another user or hang in the kernel; rv sandbox down again later",
        )


def _remove(layout: Layout) -> tuple[Path, ...]:
    """Remove the folders, and return those that are there still."""
    for path in _folders(layout):
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        layout.directory.parent.rmdir() if layout.directory.parent.name == "rv-sandbox" else None
    return _folders(layout)


def _folders(layout: Layout) -> tuple[Path, ...]:
    """The sandbox's own folders that are there: in /tmp, somebody else may have taken the name."""
    folders = []
    for path in dict.fromkeys((layout.run, layout.directory)):
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.getuid():
                folders.append(path)
    return tuple(folders)
