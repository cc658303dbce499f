"""Tunnels in the background: a small file for each, locked for as long as its process lives."""

import fcntl
import json
import os
import platform
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Final

from rv.errors import ErrorKind, RvError
from rv.files import read_regular
from rv.models.tunnel import Port, TunnelRecord
from rv.transport.private_directories import make_private

_MOST_BYTES: Final = 1 << 16


class OwnRecord:
    """This process's own file. Its lock tells, whatever becomes of pids, that it lives."""

    def __init__(self) -> None:
        folder = _folder()
        make_private(folder)
        self._path = folder / f"{platform.node()}.{os.getpid()}.json"
        self._file: IO[str] = self._path.open("w", encoding="utf-8")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def write(self, record: TunnelRecord) -> None:
        """Write what `list_tunnels` is to tell."""
        self._file.seek(0)
        self._file.truncate()
        json.dump(asdict(record), self._file)
        self._file.flush()

    def remove(self) -> None:
        """Forget it: it has ended as it should."""
        self._path.unlink(missing_ok=True)
        self._file.close()


def list_tunnels() -> tuple[TunnelRecord, ...]:
    """Return the tunnels of this machine, and forget those that have ended."""
    tunnels = []
    for path in sorted(_folder().glob(f"{platform.node()}.*.json")):  # a home may be shared
        is_live = _is_locked(path)
        record = _read(path, is_live=is_live)
        if not is_live:
            path.unlink(missing_ok=True)
        if record and (is_live or record.why):
            tunnels.append(record)
    return tuple(tunnels)


def stop_tunnels(words: Sequence[str]) -> tuple[TunnelRecord, ...]:
    """End the tunnels of these races or ports, all without any. Raises `RvError(USAGE)`."""
    live = [record for record in list_tunnels() if record.is_live]
    chosen: dict[int, TunnelRecord] = {} if words else {record.pid: record for record in live}
    for word in words:
        meant = {record.pid: record for record in live if _is_meant(record, word)}
        if not meant:
            raise RvError(
                ErrorKind.USAGE, f"no tunnel to {word!r} here", hint="rv forward --list shows them"
            )
        chosen |= meant
    for pid in chosen:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGTERM)
    return tuple(chosen.values())


def _is_meant(record: TunnelRecord, word: str) -> bool:
    ports = {str(port.local) for port in record.ports}
    return word in (record.race, record.name) or word in ports


def _folder() -> Path:
    import platformdirs

    return platformdirs.user_state_path("rv") / "forwards"


def _is_locked(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _read(path: Path, *, is_live: bool) -> TunnelRecord | None:
    """Read a file; None where there is none, or its process was killed while it wrote."""
    try:
        values = json.loads(read_regular(path, _MOST_BYTES))
        ports = tuple(Port(**port) for port in values["ports"])
        return TunnelRecord(**{**values, "ports": ports, "is_live": is_live})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
