"""Fetch results: files that a race wrote beside its code, into the work tree here."""

import io
import os
import re
import shlex
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import IO, Final, NamedTuple, cast

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.race import Race
from rv.race.file_names import CODE
from rv.slurm.printable import last_line, printable
from rv.transport import Transport, require_end
from rv.transport.remote_shell import Stream
from rv.workflow.fetched_files import (
    CHANGING,
    Known,
    Look,
    is_current,
    is_unchanged,
    look_at,
    remembered,
    write_memory,
)  # fmt: skip
from rv.workflow.result_patterns import asked_for, is_safe
from rv.workflow.send_code import Report

_SCRIPT: Final = files("rv.workflow") / "scripts" / "code.sh"
_LIST_S: Final = 120.0
_PIECE_BYTES: Final = 1 << 18
_BEGIN: Final = b"rv-archive"
_MOST_BANNER_LINES: Final = 10_000
_SECOND: Final = 1_000_000_000
_ENTRY: Final = re.compile(rb"(\d{1,15}) (\d{1,12})(?:\.(\d{1,9})\d*)? \./(.+)", re.DOTALL)
_LINK: Final = b"link ./"
_DRAFT: Final = ".%s.%s.rv-new"
_MOST_NAME_BYTES: Final = 200
"""Of the file's name in its draft's: a name has 255 bytes at most."""
_STALE_S: Final = 86400.0
"""What is so old is left of a fetch that was killed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """A file of a race: its path below the folder of the command, bytes, time of change (ns)."""

    path: bytes
    size: int
    mtime_ns: int

    @property
    def look(self) -> Look:
        """How it looks on the cluster."""
        return self.size, self.mtime_ns


class Listing(NamedTuple):
    """The files of a race that match, and the paths of links that were not followed."""

    results: tuple[Result, ...]
    links: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """What a fetch did: files that came, their bytes, and those left since they differ here.

    `changing` are those that came and changed meanwhile: the next fetch fetches them again.
    """

    paths: tuple[str, ...]
    size: int
    left: tuple[str, ...]
    changing: tuple[str, ...]


def list_results(race: Race, patterns: Sequence[str], transport: Transport) -> Listing:
    """List the files of a race's copy of the code that match, by path."""
    words = shlex.join(["list_results", _directory(race), *patterns])
    script = f"set -o pipefail\n{_SCRIPT.read_text()}\n{words}"
    done = transport.run(script, timeout_s=_LIST_S)
    require_end(done, "the results cannot be listed")
    if done.returncode != 0:
        why = printable(last_line(done.stderr).rpartition(": ")[2]) or "I/O error"
        raise RvError(
            ErrorKind.STAGE,
            f"the results cannot be listed: {why}, on {race.directory}",
            hint="rv ps --json names the directory of each race",
        )
    return parse_results(done.raw[0], patterns)


def parse_results(data: bytes, patterns: Sequence[str]) -> Listing:
    """Read the list; what is no path below the folder, or was not asked for, is left out."""
    lines = data.split(b"\0")
    # One of each path: a file may grow from one pattern to the next.
    results = {result.path: result for result in _parse_entries(lines, asked_for(patterns))}
    links = {line.removeprefix(_LINK) for line in lines if line.startswith(_LINK)}
    followed = {above for path in results for above in _with_parents(path)} if links else set()
    return Listing(
        tuple(results[path] for path in sorted(results)),
        tuple(map(os.fsdecode, sorted(links - followed))),
    )


def _parse_entries(lines: Iterable[bytes], asked: re.Pattern[bytes]) -> Iterator[Result]:
    for match in filter(None, map(_ENTRY.fullmatch, lines)):
        path = match[4]
        if is_safe(path) and asked.fullmatch(path):
            fraction = (match[3] or b"0").ljust(9, b"0")
            mtime_ns = int(match[2]) * _SECOND + int(fraction)
            yield Result(path=path, size=int(match[1]), mtime_ns=mtime_ns)


def _with_parents(path: bytes) -> Iterator[bytes]:
    """Yield a path and those of the folders above it."""
    return accumulate(path.split(b"/"), lambda above, name: above + b"/" + name)


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
    known = remembered(memory)
    wanted, left = _choose(results, into, known, force=force)
    came: list[_Arrival] = []
    try:
        for arrival in _receive(race, wanted, into, transport):
            result = arrival.result
            report(result.size)
            if arrival.here is None:
                left.append(result)
                continue
            came.append(arrival)
            there = result.look if arrival.is_as_listed else CHANGING
            known[result.path] = Known(there, arrival.here)
    finally:
        write_memory(memory, known)
    return Fetched(
        paths=_names(arrival.result for arrival in came),
        size=sum(arrival.here[0] for arrival in came if arrival.here),
        left=_names(left),
        changing=_names(arrival.result for arrival in came if not arrival.is_as_listed),
    )


def _names(results: Iterable[Result]) -> tuple[str, ...]:
    return tuple(os.fsdecode(result.path) for result in results)


def _choose(
    results: Sequence[Result], into: Path, known: dict[bytes, Known], *, force: bool
) -> tuple[dict[Result, Look | None], list[Result]]:
    """Part what is to be fetched, with what is here now, from what was changed here.

    What is here as it is there is noted as known.
    """
    wanted: dict[Result, Look | None] = {}
    left: list[Result] = []
    for result in results:
        here, before = look_at(into, result.path), known.get(result.path)
        if is_current(result.look, here, before):
            if here == result.look:
                known[result.path] = Known(result.look, here)
        elif force or is_unchanged(here, before):
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


class _Arrival(NamedTuple):
    """A file that came: how it looks in its place, None where it was not put there."""

    result: Result
    here: Look | None
    is_as_listed: bool


def _receive(
    race: Race, wanted: Mapping[Result, Look | None], into: Path, transport: Transport
) -> Iterator[_Arrival]:
    """Yield each file when it has come.

    Raises `RvError(UNREACHABLE)` where not all of them came.
    """
    if not wanted:
        return
    _remove_stale(into, wanted)
    missing = set(wanted)
    names = b"".join(b"./" + result.path + b"\0" for result in wanted)
    words = shlex.join(["send_results", _directory(race), str(len(names))])
    line = f"{_SCRIPT.read_text()}\necho; echo {_BEGIN.decode()}; {words}"
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
                    draft = _Draft(into, result, entry)
                    draft.write(contents)
                    yield draft.place(wanted[result])
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


def _remove_stale(into: Path, results: Iterable[Result]) -> None:
    """Remove what killed fetches left. Of a file that comes now the time of change may be old."""
    folders = {_place(into, result).parent for result in results}
    for draft in (path for folder in folders for path in folder.glob(_DRAFT % ("*", "*"))):
        with suppress(OSError):
            if time.time() - draft.lstat().st_ctime > _STALE_S:
                draft.unlink()


def _place(into: Path, result: Result) -> Path:
    return Path(os.fsdecode(os.fsencode(into) + b"/" + result.path))


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
        """Read into a buffer. Raises `tarfile.ReadError`: what is written here fails otherwise."""
        try:
            data = self._stream.read(len(buffer))
        except OSError as error:
            raise tarfile.ReadError(str(error)) from error
        buffer[: len(data)] = data
        return len(data)


class _Draft:
    """A file that comes, beside its place; it goes there whole, or is removed."""

    def __init__(self, into: Path, result: Result, entry: tarfile.TarInfo) -> None:
        self._into = into
        self._result = result
        self._mode = 0o777 if entry.mode & 0o100 else 0o666
        came = entry.size, int(entry.mtime)
        self._is_as_listed = came == (result.size, result.mtime_ns // _SECOND)
        self._mtime_ns = result.mtime_ns if self._is_as_listed else came[1] * _SECOND
        self._place = _place(into, result)
        name = os.fsdecode(os.fsencode(self._place.name)[:_MOST_NAME_BYTES])
        # A name of its own: another fetch may be writing the same file.
        self._path = self._place.with_name(_DRAFT % (name, os.urandom(4).hex()))

    def write(self, contents: IO[bytes]) -> None:
        """Write it; never through a link that leads elsewhere. Raises `RvError(STAGE)`."""
        try:
            self._place.parent.mkdir(parents=True, exist_ok=True)
            if not self._place.parent.resolve().is_relative_to(self._into.resolve()):
                raise PermissionError("a link leads out of the work tree")
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(self._path, flags, self._mode), "wb") as file:
                while piece := contents.read(_PIECE_BYTES):
                    file.write(piece)
            os.utime(self._path, ns=(self._mtime_ns, self._mtime_ns))
        except OSError as error:
            raise self._failure(error) from error
        except BaseException:  # it was cut off, or Ctrl-C
            self._remove()
            raise

    def place(self, before: Look | None) -> _Arrival:
        """Put it in its place, unless what is there changed since it was looked at."""
        here = None
        try:
            if look_at(self._into, self._result.path) == before:
                self._path.replace(self._place)
                here = look_at(self._into, self._result.path)
            else:
                self._remove()
        except OSError as error:
            raise self._failure(error) from error
        return _Arrival(self._result, here, self._is_as_listed)

    def _failure(self, error: OSError) -> RvError:
        self._remove()
        why = printable(error.strerror or str(error))
        return RvError(
            ErrorKind.STAGE, f"{self._place}: {why}", hint="rv sync pull --to ANOTHER_FOLDER"
        )

    def _remove(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
