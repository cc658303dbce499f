"""What a race's command wrote: a file for each node's stdout and stderr, over all segments.

The job of a chain notes, in `segments/K.output`, how long each file was when segment K began.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.race import Race
from rv.render.quote import shell
from rv.transport import Transport
from rv.transport.query_retry import retry_query

STREAMS: Final = ("out", "err")
_FILE: Final = re.compile(r"(?:output/node|tasks/\d{1,3}/)(\d{1,9})\.(out|err)", re.ASCII)
_BEGINS: Final = re.compile(r"segments/(\d{1,6})\.output", re.ASCII)
_SIZE: Final = re.compile(
    r"(\d{1,15}) (output/node\d{1,6}\.(?:out|err)|tasks/\d{1,3}/\d{1,9}\.(?:out|err)"
    r"|jobs/\d{1,6}(?:_\d{1,7})?\.log)",
    re.ASCII,
)
_PIECE_BYTES: Final = 4 << 20
_FIRST_WINDOW: Final = 64 << 10
_LAST_WINDOW: Final = 8 << 20
_ASKING_S: Final = 60.0
_PATIENCE_S: Final = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """New output of one node; `is_error` tells stderr from stdout."""

    node: int
    is_error: bool
    data: bytes
    segment: int = 1


class OutputReader:
    """Reads what is new since the last call, of all nodes or one, of both streams or one.

    Where a file was read to is known by the byte, so that nothing is lost or read twice where a
    connection breaks. Of a chain one segment is read after the other. `task_files` are the files of
    a sweep's task without their ends, and `node` is then its number; "" for a command's own.
    """

    def __init__(
        self,
        race: Race,
        transport: Transport,
        node: int | None = None,
        streams: Collection[str] = STREAMS,
        task_files: str = "",
    ) -> None:
        self._race = race
        self._transport = transport
        files = task_files or f"output/node{'[0-9]*' if node is None else node}"
        self._patterns = tuple(f"{files}.{stream}" for stream in streams)
        self._streams = streams
        self._node = node
        self._offsets: dict[str, int] = {}
        self._begins: dict[int, dict[str, int]] = {}
        self._segment = 1
        self.has_more = False
        """Whether the last answer left something that can be read at once."""

    def read(self) -> tuple[Chunk, ...]:
        """Return the new chunks, by node, stdout before stderr."""
        while True:
            chunks = tuple(self._chunks(self._new()))
            if chunks or not self._next_segment():
                return chunks

    def read_all(self) -> Iterator[Chunk]:
        """Give what there is now, piece by piece; what is written meanwhile is left."""
        while True:
            chunks = tuple(self._chunks(self._new()))
            yield from chunks
            if not self._next_segment() and not (chunks and self.has_more):
                return

    def skip_to_last(self, lines: int) -> None:
        """Begin with the last so many lines of each file."""
        if lines < 1:
            self._offsets.update(self._sizes())
            return
        open_ends = self._sizes()
        window = _FIRST_WINDOW
        while open_ends:
            starts = {name: max(0, size - window) for name, size in open_ends.items()}
            self._offsets.update(starts)
            is_last = window >= _LAST_WINDOW
            for name, start in starts.items():
                text = self._tail(name, start, open_ends[name])
                at = start_of_last(text, lines)
                if at is not None or start == 0 or is_last:
                    self._offsets[name] = start + (at or 0)
                    del open_ends[name]
            window *= 8

    def _tail(self, name: str, start: int, end: int) -> bytes:
        path = f"{self._race.directory}/{name}"
        return self._transport.read(path, offset=start, limit=end - start) or b""

    def _sizes(self) -> dict[str, int]:
        """Return how long each file is that is to be read."""
        return {
            name: size
            for name, size in log_sizes(self._race, self._transport).items()
            if self._is_wanted(name)
        }

    def _is_wanted(self, name: str) -> bool:
        match = _FILE.fullmatch(name)
        if match is None:
            return False
        return self._node in (None, int(match[1])) and match[2] in self._streams

    def _new(self) -> dict[str, bytes]:
        """Read on, in the files of the command and in what the jobs say of segments."""
        patterns = [*self._patterns, *(["segments/[0-9]*.output"] if self._race.chain else [])]
        pieces = self._transport.read_new(
            self._race.directory, patterns, self._offsets, _PIECE_BYTES
        )
        self.has_more = sum(map(len, pieces.values())) >= _PIECE_BYTES
        for name in [name for name in pieces if _BEGINS.fullmatch(name)]:
            self._note_segment(name, pieces.pop(name))
        return pieces

    def _note_segment(self, name: str, data: bytes) -> None:
        match = _BEGINS.fullmatch(name)
        if match and int(match[1]) > 1:
            self._begins[int(match[1])] = read_sizes(data.decode("utf-8", errors="replace"))
        self._offsets[name] = len(data)

    def _chunks(self, pieces: Mapping[str, bytes]) -> Iterator[Chunk]:
        for node, is_error, name in _in_order(pieces):
            if not self._is_wanted(name):
                continue
            offset = self._offsets.get(name, 0)
            data = pieces[name][: self._room(name, offset)]
            self.has_more = self.has_more or len(data) < len(pieces[name])
            if data:
                self._offsets[name] = offset + len(data)
                yield Chunk(node=node, is_error=is_error, data=data, segment=self._segment)

    def _room(self, name: str, offset: int) -> int | None:
        """Return how many bytes of a file are left of this segment; None where it is the last."""
        following = self._following()
        if following is None:
            return None
        return max(0, self._begins[following].get(name, 0) - offset)

    def _following(self) -> int | None:
        return min((number for number in self._begins if number > self._segment), default=None)

    def _next_segment(self) -> bool:
        """Go on to the next segment where this one was read to its end; return whether it was."""
        following = self._following()
        if following is None:
            return False
        ends = self._begins[following].items()
        if any(self._offsets.get(name, 0) < end for name, end in ends if self._is_wanted(name)):
            return False
        self._segment = following
        return True


def log_sizes(race: Race, transport: Transport) -> dict[str, int]:
    """Return the bytes of each file that the command and its jobs wrote, by name below the race.

    Raises `RvError(UNREACHABLE)` where nobody answers: no answer is no absence.
    """
    find = "find output tasks jobs -type f -name '*.[oel][uro][trg]' -printf '%s %p\\n'"
    stat = "stat --printf='%s %n\\n' output/node* jobs/*.log"
    script = f"cd {shell(race.directory)} && {find if race.sweep else stat}\nexit 0"

    def ask() -> str | None:
        done = transport.run(script, timeout_s=_ASKING_S)
        return None if done.returncode else done.stdout

    text = retry_query(ask, retry_for_s=_PATIENCE_S)
    if text is None:
        raise RvError(
            ErrorKind.UNREACHABLE,
            f"no answer about the logs of race {race.race_id}",
            hint="the race goes on; the same command again",
        )
    return read_sizes(text)


def read_sizes(text: str) -> dict[str, int]:
    """Read lines of a size in bytes and a file's name, as a job leaves them too."""
    matches = filter(None, map(_SIZE.fullmatch, text.splitlines()))
    return {match[2]: int(match[1]) for match in matches}


def start_of_last(data: bytes, lines: int) -> int | None:
    """Return where the last so many lines begin; None where there are fewer."""
    at = len(data) - 1 if data.endswith(b"\n") else len(data)
    for _ in range(lines):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return None
    return at + 1


def _in_order(names: Collection[str]) -> Sequence[tuple[int, bool, str]]:
    """Return node, whether it is stderr, and name of the output files, in this order."""
    matches = filter(None, map(_FILE.fullmatch, names))
    return sorted((int(match[1]), match[2] == "err", match[0]) for match in matches)
