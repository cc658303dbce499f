"""Copy what a race wrote, its command and its job scripts, to a folder of this machine."""

import os
from pathlib import Path
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.race import Race
from rv.race.output import log_sizes
from rv.transport import Transport

_PIECE_BYTES: Final = 4 << 20


def pull_logs(race: Race, transport: Transport, folder: Path) -> tuple[Path, ...]:
    """Copy every log of a race into `folder/RACE` and return the files, each as it was just now.

    A file is there whole or as it was before. Raises `RvError(USAGE)` for a race without logs, and
    `RvError(STAGE)` where the folder cannot be written.
    """
    logs = [(size, name, _here(name)) for name, size in log_sizes(race, transport).items()]
    if not logs:
        raise RvError(
            ErrorKind.USAGE,
            f"race {race.race_id} has written no log yet",
            hint=f"rv explain {race.race_id} says why a race waits",
        )
    into = folder / race.race_id
    try:
        into.mkdir(parents=True, exist_ok=True)
        for size, name, path in logs:
            _copy(f"{race.directory}/{name}", size, into / path, transport)
    except OSError as error:
        raise RvError(
            ErrorKind.STAGE,
            f"cannot write {into}: {error.strerror or error}",
            hint="name a folder of yours with --pull DIR",
        ) from error
    return tuple(into / path for _, _, path in logs)


def _here(name: str) -> str:
    """Return what a log is called here: node0.out, job1.log."""
    folder, _, file = name.rpartition("/")
    kinds = {"jobs": "job", "output": ""}
    return f"{kinds.get(folder, 'task')}{file}"


def _copy(source: str, size: int, path: Path, transport: Transport) -> None:
    """Copy so many bytes in pieces, into a new file that takes the place of the old one."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with temporary.open("xb") as file:
            left = size
            while left > 0:
                piece = transport.read(source, offset=size - left, limit=min(left, _PIECE_BYTES))
                if not piece:
                    break
                file.write(piece)
                left -= len(piece)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
