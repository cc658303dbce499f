"""Pass a command's output on: as it is, or each line with its node where there are several."""

from typing import TYPE_CHECKING

from rv.ui import console

if TYPE_CHECKING:
    from rv.race.output import Chunk


class OutputLines:
    """Shows chunks; `names_nodes` puts the node before each line.

    Stdout goes to stdout and stderr to stderr, unless all of it is to go `into` "out" or "err".
    Where another segment of a chain begins, a line on stderr says so.
    """

    def __init__(self, *, names_nodes: bool, into: str = "") -> None:
        self.names_nodes = names_nodes
        self._into = into
        self._segment = 1
        self._partial: dict[tuple[int, bool], bytes] = {}

    def show(self, chunk: "Chunk") -> None:
        """Pass a chunk on; of several nodes a line is shown when it is whole."""
        if chunk.segment != self._segment:
            self.finish()
            self._segment = chunk.segment
            console.say(f"-- segment {chunk.segment} --")
        if not self.names_nodes:
            self._write(chunk.data, is_error=chunk.is_error)
            return
        key = (chunk.node, chunk.is_error)
        *lines, rest = (self._partial.pop(key, b"") + chunk.data).split(b"\n")
        self._partial[key] = rest
        label = _label(chunk.node)
        self._write(b"".join(label + line + b"\n" for line in lines), is_error=chunk.is_error)

    def finish(self) -> None:
        """Show lines that were not ended."""
        for (node, is_error), rest in sorted(self._partial.items()):
            if rest:
                self._write(_label(node) + rest + b"\n", is_error=is_error)
        self._partial.clear()

    def _write(self, data: bytes, *, is_error: bool) -> None:
        console.raw(data, is_error=self._into == "err" if self._into else is_error)


def _label(node: int) -> bytes:
    return b"node%d| " % node
