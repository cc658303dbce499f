"""What is written down about sandboxes, so that the next command finds them.

One record a sandbox in the user's state folder, and one small file a process in the sandbox's own
folder, written in the moment it starts. Reading them costs a few file reads: `find` is called by
every rv command that has no cluster yet.
"""

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.files import write_atomically
from rv.models.plain import build
from rv.sandbox.layout import Layout
from rv.sandbox.processes import Process, boot_id

NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
CONTROLLER: Final = "slurmctld"


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One sandbox, from the first moment of its `up` to the last of its `down`.

    Attributes:
        identity: the value of RV_SANDBOX in the environment of all its processes.
        boot: the machine's boot that it runs in.
        digest: the profile's content.
        ready: `up` came to its end.
        up_at: when that was, for "the most recent".
    """

    name: str
    identity: str
    directory: str
    run: str
    boot: str
    profile: str
    digest: str
    cluster_name: str
    ready: bool = False
    up_at: float = 0
    users: tuple[str, ...] = ()

    @property
    def layout(self) -> Layout:
        """Its paths."""
        return Layout(directory=Path(self.directory), run=Path(self.run))

    @property
    def live(self) -> bool:
        """Whether it can take jobs: it came up in this boot and its controller runs."""
        if not self.ready or self.boot != boot_id():
            return False
        controller = process_of(self.layout, CONTROLLER)
        return controller is not None and controller.live


def state_root() -> Path:
    """The folder of the records."""
    import platformdirs

    return platformdirs.user_state_path("rv") / "sandbox"


def check_name(name: str) -> None:
    """Refuse names that make no good file name."""
    if not NAME.fullmatch(name):
        raise RvError(
            ErrorKind.SANDBOX,
            f"{name!r} is no name for a sandbox",
            hint="small letters, digits, - and _, at most 32",
        )


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock of a sandbox, waiting for it; its file is deleted with the sandbox."""
    from filelock import FileLock

    path = state_root() / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path, mode=0o600, fallback_to_soft=False):
        try:
            yield
        finally:
            if not _path(name).exists():
                path.unlink(missing_ok=True)


def _path(name: str) -> Path:
    return state_root() / f"{name}.json"


def read(name: str) -> Record | None:
    """The record of that name; None when there is none."""
    return _load(_path(name))


def read_all() -> list[Record]:
    """All records, the most recently brought up first."""
    sandboxes = filter(None, map(_load, state_root().glob("*.json")))
    return sorted(sandboxes, key=lambda record: record.up_at, reverse=True)


def _load(path: Path) -> Record | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return build(Record, content)
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def write(record: Record) -> None:
    """Write a record durably: it must survive the machine, to be recovered after it."""
    text = json.dumps(dataclasses.asdict(record), indent=1)
    write_atomically(_path(record.name), text, durable=True)


def forget(name: str) -> None:
    """Remove a record, the last act of `down`."""
    _path(name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        state_root().joinpath(name).rmdir()


def note(layout: Layout, role: str, process: Process) -> None:
    """Write down a process under its role, such as slurmctld or slurmd.a1."""
    write_atomically(layout.records / role, f"{process.pid} {process.started}\n", durable=True)


def erase(layout: Layout, role: str) -> None:
    """Forget a process that was ended on purpose."""
    (layout.records / role).unlink(missing_ok=True)


def process_of(layout: Layout, role: str) -> Process | None:
    """The process recorded for a role, dead or alive."""
    try:
        pid, started = (layout.records / role).read_text(encoding="ascii").split()
        return Process(pid=int(pid), started=int(started))
    except (OSError, ValueError):
        return None


def processes(layout: Layout) -> dict[str, Process]:
    """All recorded processes by role."""
    roles = sorted(p.name for p in layout.records.glob("*") if not p.name.startswith("."))
    noted = ((role, process_of(layout, role)) for role in roles)
    return {role: process for role, process in noted if process}
