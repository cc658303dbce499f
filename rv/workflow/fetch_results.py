"""Fetch results: files that a race wrote beside its code, into the work tree here."""

import io
import os
import re
import shlex
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import IO, Final, TypeAlias, cast

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.files import write_atomically
from rv.models.race import Race
from rv.race.directory import CODE
from rv.slurm.values import last_line, printable
from rv.transport import Transport, require_answer
from rv.transport.remote_shell import Stream
from rv.workflow.send_code import Report

_SCRIPT: Final = files("rv.workflow") / "scripts" / "code.sh"
_LIST_S: Final = 120.0
_PIECE_BYTES: Final = 1 << 18
_BEGIN: Final = b"rv-archive"
_MOST_BANNER_LINES: Final = 10_000
_ENTRY: Final = re.compile(rb"(\d{1,15}) (\d{1,12})(?:\.(\d{1,9})\d*)? \./(.+)", re.DOTALL)


_Look: TypeAlias = tuple[int, int] | None
"""Bytes and time of change (ns) of a file here, None where there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """A file of a race: its path below the folder of the command, bytes, time of change (ns)."""

    path: bytes
    size: int
    mtime_ns: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """What a fetch did: files that came, their bytes, and those left since they differ here."""

    paths: tuple[str, ...]
    size: int
    left: tuple[str, ...]


def list_results(race: Race, patterns: Sequence[str], transport: Transport) -> tuple[Result, ...]:
    """List the files of a race's copy of the code that match, by path."""
    words = shlex.join(["list_results", _directory(race), *patterns])
    script = f"set -o pipefail\n{_SCRIPT.read_text()}\n{words}"
    done = transport.run(script, timeout_s=_LIST_S)
    require_answer(done)
    if done.returncode != 0:
        why = printable(last_line(done.stderr).rpartition(": ")[2]) or "I/O error"
        raise RvError(
            ErrorKind.STAGE,
            f"the results cannot be listed: {why}, on {race.directory}",
            hint="rv ps --json names the directory of each race",
        )
    return parse_results(done.stdout)


def parse_results(text: str) -> tuple[Result, ...]:
    """Read the list; what is no path below the folder is left out."""
    results = []
    for line in text.encode("utf-8", "surrogatepass").split(b"\0"):
        match = _ENTRY.fullmatch(line)
        if match and is_safe(match[4]):
            fraction = (match[3] or b"0").ljust(9, b"0")
            mtime_ns = int(match[2]) * 1_000_000_000 + int(fraction)
            results.append(Result(path=match[4], size=int(match[1]), mtime_ns=mtime_ns))
    return tuple(results)


def is_safe(path: bytes) -> bool:
    """Whether a path stays below the folder that it is joined to."""
    return not path.startswith(b"/") and not {b"", b".", b".."} & set(path.split(b"/"))


def fetch(
    race: Race,
    results: Sequence[Result],
    into: Path,
    memory: Path,
    *,
    force: bool,
    transport: Transport,
    report: Report,
) -> Fetched:
    """Fetch what is new or has changed there into a folder, whole files only.

    What was changed here since it was fetched stays, unless `force`; `memory` is a file that says
    what was fetched. Raises `RvError`.
    """
    fetched_before = _read_memory(memory)
    wanted, left = _choose(results, into, fetched_before, force=force)
    came: list[Result] = []
    try:
        for result, is_placed in _receive(race, wanted, into, transport):
            report(result.size)
            (came if is_placed else left).append(result)
            if is_placed:
                fetched_before[result.path] = result.size, result.mtime_ns
    finally:
        _write_memory(memory, fetched_before)
    return Fetched(
        paths=tuple(os.fsdecode(result.path) for result in came),
        size=sum(result.size for result in came),
        left=tuple(os.fsdecode(result.path) for result in left),
    )


def _choose(
    results: Sequence[Result],
    into: Path,
    fetched_before: Mapping[bytes, tuple[int, int]],
    *,
    force: bool,
) -> tuple[dict[Result, _Look], list[Result]]:
    """Part what is to be fetched, with what is here now, from what was changed here."""
    new = {result: _seen(into, result.path) for result in results}
    wanted: dict[Result, _Look] = {}
    left: list[Result] = []
    for result, here in new.items():
        if here == (result.size, result.mtime_ns):
            continue
        if here is None or force or fetched_before.get(result.path) == here:
            wanted[result] = here
        else:
            left.append(result)
    return wanted, left


def _directory(race: Race) -> str:
    if race.code is None:
        raise RvError(
            ErrorKind.USAGE,
            f"race {race.race_id} runs where it was launched: rv sent no code for it",
            hint="its results are in that folder on the cluster",
        )
    return f"{race.directory}/{CODE}/{race.code.folder}".rstrip("/")


def _seen(into: Path, path: bytes) -> tuple[int, int] | None:
    try:
        status = os.lstat(os.fsencode(into) + b"/" + path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _receive(
    race: Race, wanted: Mapping[Result, _Look], into: Path, transport: Transport
) -> Iterator[tuple[Result, bool]]:
    """Yield each file when it has come, and whether it is in its place.

    Raises `RvError(UNREACHABLE)` where not all of them came.
    """
    if not wanted:
        return
    missing = set(wanted)
    words = shlex.join(["send_results", _directory(race)])
    names = b"".join(b"./" + result.path + b"\0" for result in wanted)
    line = f"{_SCRIPT.read_text()}\necho; echo {_BEGIN.decode()}; head -c {len(names)} | {words}"
    stream = transport.open_stream(line)
    try:
        stream.write(names)
        _pass_over_banner(stream)
        by_name = {b"./" + result.path: result for result in wanted}
        reader = io.BufferedReader(cast("io.RawIOBase", _Reader(stream)), _PIECE_BYTES)
        with tarfile.open(fileobj=reader, mode="r|", encoding="utf-8") as archive:
            for entry in archive:
                result = by_name.get(entry.name.encode("utf-8", "surrogateescape"))
                contents = archive.extractfile(entry) if entry.isreg() else None
                if result in missing and contents:
                    missing.discard(result)
                    draft = _Draft(into, result, is_program=bool(entry.mode & 0o100))
                    draft.write(contents)
                    yield result, draft.place(wanted[result])
    except (tarfile.TarError, ValueError, OSError) as error:
        raise RvError(
            ErrorKind.UNREACHABLE, "the results were cut off", hint="the same command again"
        ) from error
    finally:
        stream.close()
    if missing:
        raise RvError(
            ErrorKind.UNREACHABLE,
            f"{len(missing)} of {len(wanted)} results did not come",
            hint="the same command again fetches the rest",
        )


def _pass_over_banner(stream: Stream) -> None:
    for _ in range(_MOST_BANNER_LINES):
        line = stream.read_line()
        if line.strip() == _BEGIN or not line:
            return


class _Reader(io.RawIOBase):
    """A stream as a file to read from."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        """Read into a buffer."""
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Draft:
    """A file that comes, beside its place; it goes there whole, or is removed."""

    def __init__(self, into: Path, result: Result, *, is_program: bool) -> None:
        self._into = into
        self._result = result
        self._mode = 0o777 if is_program else 0o666
        self._place = Path(os.fsdecode(os.fsencode(into) + b"/" + result.path))
        self._path = self._place.with_name(f".{self._place.name[:200]}.rv-new")

    def write(self, contents: IO[bytes]) -> None:
        """Write it; never through a link that leads elsewhere. Raises `RvError(STAGE)`."""
        try:
            self._place.parent.mkdir(parents=True, exist_ok=True)
            if not self._place.parent.resolve().is_relative_to(self._into.resolve()):
                raise PermissionError("a link leads out of the work tree")
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with os.fdopen(os.open(self._path, flags, self._mode), "wb") as file:
                while piece := contents.read(_PIECE_BYTES):
                    file.write(piece)
            os.utime(self._path, ns=(self._result.mtime_ns, self._result.mtime_ns))
        except OSError as error:
            raise self._failure(error) from error
        except BaseException:  # it was cut off, or Ctrl-C
            self._remove()
            raise

    def place(self, before: _Look) -> bool:
        """Put it in its place, unless what is there changed since it was looked at."""
        try:
            if _seen(self._into, self._result.path) != before:
                self._remove()
                return False
            self._path.replace(self._place)
        except OSError as error:
            raise self._failure(error) from error
        return True

    def _failure(self, error: OSError) -> RvError:
        self._remove()
        why = printable(error.strerror or str(error))
        return RvError(
            ErrorKind.STAGE, f"{self._place}: {why}", hint="rv sync pull --to ANOTHER_FOLDER"
        )

    def _remove(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def _read_memory(memory: Path) -> dict[bytes, tuple[int, int]]:
    fetched_before = {}
    with suppress(OSError, ValueError):
        for line in memory.read_bytes().split(b"\0")[:-1]:
            size, mtime_ns, path = line.split(b" ", 2)
            fetched_before[path] = int(size), int(mtime_ns)
    return fetched_before


def _write_memory(memory: Path, fetched_before: dict[bytes, tuple[int, int]]) -> None:
    lines = (b"%d %d %b\0" % (*look, path) for path, look in sorted(fetched_before.items()))
    with suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(memory, b"".join(lines), mode=0o600)
