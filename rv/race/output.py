"""The command's output, as its files on the shared disk grow."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rv.models.race import Race
from rv.transport import Transport

_PIECE: Final = 1 << 20
_FILE: Final = re.compile(r"output/node(\d{1,6})\.(out|err)", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """New output of one node; `is_error` tells stderr from stdout."""

    node: int
    is_error: bool
    data: bytes


class OutputReader:
    """Reads what is new since the last call, from every node or from one."""

    def __init__(self, race: Race, transport: Transport, node: int | None = None) -> None:
        self._race = race
        self._transport = transport
        self._node = node
        self._offsets: dict[str, int] = {}

    def read(self) -> tuple[Chunk, ...]:
        """Return the new chunks, by node, stdout before stderr."""
        return tuple(self._chunks())

    def _chunks(self) -> Iterator[Chunk]:
        for name, node, is_error in self._files():
            offset = self._offsets.get(name, 0)
            path = f"{self._race.directory}/{name}"
            data = self._transport.read(path, offset=offset, limit=_PIECE)
            if data:
                self._offsets[name] = offset + len(data)
                yield Chunk(node=node, is_error=is_error, data=data)

    def _files(self) -> list[tuple[str, int, bool]]:
        names = self._transport.names(f"{self._race.directory}/output")
        found = [(f"output/{name}", _FILE.fullmatch(f"output/{name}")) for name in names]
        files = [(name, int(m[1]), m[2] == "err") for name, m in found if m]
        wanted = [file for file in files if self._node is None or file[1] == self._node]
        return sorted(wanted, key=lambda file: (file[1], file[2]))
