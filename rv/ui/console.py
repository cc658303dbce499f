"""Print: the answer goes to stdout, the talk to stderr, errors as one line with a hint."""

import errno
import io
import json
import os
import select
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from rv.errors import RvError, UnwritableError
from rv.slurm.printable import printable
from rv.ui.tables import GAP, Part, Table, column_widths, narrowed, text_width

_SHORT: Final = 12
"""Columns up to this width, such as ids and states, are the last to be folded."""

_TEXT: Final = 24
"""The width that a last column of free text keeps while other columns can be folded."""

_STYLES: Final = {
    "COMPLETED": "green", "PASS": "green", "RUNNING": "cyan", "FAILED": "red", "FAIL": "red",
    "LOST": "red", "ERROR": "red", "WARN": "yellow",
}  # fmt: skip
"""The colour of a cell that is one of these words: race states and verdicts."""

_PLAIN_FORMS: Final = str.maketrans({"█": "#", "░": "-", "·": ".", "…": "~"})
"""What takes the place of rv's own signs where the terminal's encoding lacks them."""

_WITHOUT_READER: Final[list[Any]] = []
"""The streams whose reader is gone."""

_UNWRITABLE: Final[list[Any]] = []
"""The streams that failed in another way, of which an error has told."""


def say(text: str) -> None:
    """Talk to the user, on stderr; nothing in the text can move the cursor."""
    _write(sys.stderr, _printable_lines(text) + "\n")


def notice(text: str) -> None:
    """Say a sentence: one line, whatever it quotes."""
    say(printable(text))


def can_ask() -> bool:
    """Return whether a person is there to answer: a terminal for the question and the answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, *, default: bool = False) -> bool:
    """Ask a question on stderr; Enter takes the default. Raises `KeyboardInterrupt`."""
    import typer

    try:
        return typer.confirm(_printable_lines(question), default=default, err=True)
    except typer.Abort:  # Ctrl-C, or the end of the input
        raise KeyboardInterrupt from None


def ask(question: str, default: str) -> str:
    """Ask for a word on stderr; Enter takes the default. Raises `KeyboardInterrupt`."""
    import typer

    try:
        return str(typer.prompt(_printable_lines(question), default=printable(default), err=True))
    except typer.Abort:
        raise KeyboardInterrupt from None


def answer(*parts: Part) -> None:
    """Give the answer, on stdout, its parts with an empty line between them.

    On a terminal the tables fit its width.
    """
    _write(sys.stdout, answer_text(*parts) + "\n")


def answer_text(*parts: Part) -> str:
    """Return an answer as it is written to stdout, for a terminal where that is one."""
    width = answer_width()
    return "\n\n".join(part_text(part, width) for part in parts)


def answer_width() -> int:
    """Return the columns of the terminal that stdout is, 0 where it is none."""
    if not sys.stdout.isatty():
        return 0
    import shutil

    return shutil.get_terminal_size().columns


def has_reader() -> bool:
    """Return whether somebody may still read stdout: a pipe's other end can be closed."""
    if sys.stdout in _WITHOUT_READER:
        return False
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
        return not any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    except (OSError, ValueError):
        return False


def part_text(part: Part, width: int) -> str:
    """Return a part of an answer as a terminal of so many columns shows it; 0 is none."""
    if isinstance(part, Table):
        return table_on_terminal(part, width) if width else str(part)
    return _printable_lines(part)


def table_on_terminal(table: Table, width: int) -> str:
    """Lay the table out for a terminal of so many columns; long cells are folded.

    Where that would leave a last column of text hardly any room, the text stands below its row.
    Colours follow NO_COLOR and TERM. rich is imported here, as no other output needs it.
    """
    from rich.console import Console

    cells = table.cells()
    widths = _fitted_widths(cells, width, has_head=bool(table.head))
    no_color = bool(os.environ.get("NO_COLOR"))
    console = Console(
        file=io.StringIO(), force_terminal=not no_color, no_color=no_color, width=width
    )
    with console.capture() as captured:
        if any(table.below):
            _render_with_text_below(table, console)
        elif widths[-1] < min(_SHORT, column_widths(cells, text_width)[-1]):
            _render_with_text_below(_last_column_below(table), console)
        else:
            console.print(_rich_table(cells, widths, has_head=bool(table.head)))
    lines = [table.title] if table.title else []
    lines.extend(line.rstrip() for line in captured.get().splitlines())
    return "\n".join(lines)


def _rich_table(
    rows: Sequence[Sequence[str]], widths: Sequence[int], *, has_head: bool
) -> "rich.table.Table":
    """Build a table of rich's from cells, none of which is read as markup."""
    from rich import table as rich_table
    from rich.text import Text

    laid_out = rich_table.Table(
        box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_header=has_head
    )
    head = rows[0] if has_head else [""] * len(widths)
    for title, column_width in zip(head, widths, strict=True):
        laid_out.add_column(Text(title), overflow="fold", width=column_width)
    for row in rows[1:] if has_head else rows:
        laid_out.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    return laid_out


def _last_column_below(table: Table) -> Table:
    """Return a table whose last column stands below its rows."""
    below = ["" if row[-1] == "-" else row[-1] for row in table.rows]
    short = [row[:-1] for row in table.rows]
    return replace(table, head=table.head[:-1], rows=short, below=below)


def _render_with_text_below(table: Table, console: "rich.console.Console") -> None:
    from rich.padding import Padding
    from rich.text import Text

    has_head = bool(table.head)
    cells = table.cells()
    widths = _fitted_widths(cells, console.width, has_head=has_head)
    texts = ["", *table.below] if has_head else table.below
    for at, (row, text) in enumerate(zip(cells, texts, strict=True)):
        console.print(_rich_table([row], widths, has_head=has_head and at == 0))
        if text:
            console.print(Padding(Text(printable(text), overflow="fold"), (0, 0, 0, GAP)))


def _fitted_widths(rows: Sequence[Sequence[str]], width: int, *, has_head: bool) -> list[int]:
    """Return column widths that fit a terminal of `width` columns.

    What is too wide is taken from heads of several words first, then from the last column, which
    is free text, then from cells of several words, then from the widest; the first, which names
    the row, is the last to be folded.
    """
    from rich.cells import cell_len

    def longest_word(cell: str) -> int:
        return max(map(cell_len, cell.split()), default=0)

    widths = column_widths(rows, cell_len)
    words = column_widths(rows, longest_word)
    head = list(map(longest_word, rows[0]))
    cells = column_widths(rows[1:], cell_len) if has_head and rows[1:] else widths
    whole = list(map(max, head, cells))
    last = min(whole[-1], _TEXT)
    short = [min(column, _SHORT) for column in words[:-1]]
    for least in (
        whole,
        [*whole[:-1], last],
        [*words[:-1], last],
        [*short, last],
        [short[0] if short else 1, *[1] * (len(widths) - 1)],
        [1] * len(widths),
    ):
        widths = narrowed(widths, least, width)
    return widths


def _printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))


def draw(text: str, fd: int) -> None:
    """Write what was laid out to the terminal that stdout (1) or stderr (2) is, as it stands."""
    _write(sys.stdout if fd == 1 else sys.stderr, text)


def emit_json(value: Mapping[str, Any]) -> None:
    """Give the answer as one JSON object, on stdout."""
    _write(sys.stdout, json.dumps(value, indent=2, ensure_ascii=True) + "\n")


def emit_json_line(value: Mapping[str, Any]) -> None:
    """Give one of several answers that come in time: a JSON object on one line, on stdout."""
    _write(sys.stdout, json.dumps(value, ensure_ascii=True) + "\n")


def error(failure: RvError) -> None:
    """Show a failure as `error[kind]: …` and its hint."""
    notice(f"error[{failure.kind}]: {' '.join(failure.message.split())}")
    if failure.hint:
        notice(f"  hint: {failure.hint}")


def error_json(failure: RvError) -> None:
    """Show a failure as JSON, for programs; on stderr, as text, where stdout cannot be written."""
    error_document = {"kind": failure.kind, "message": failure.message, "hint": failure.hint}
    if sys.stdout not in _UNWRITABLE:
        with suppress(UnwritableError):
            emit_json({"error": error_document})
            return
    error(failure)


def raw(data: bytes, *, is_error: bool) -> None:
    """Pass the user's own program's output through as it is."""
    stream = sys.stderr if is_error else sys.stdout
    stream.flush()
    try:
        stream.buffer.write(data)
        stream.buffer.flush()
    except OSError as failure:
        _detach(stream, failure)


def _write(stream: Any, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    if not encoding.lower().startswith("utf"):
        text = text.translate(_PLAIN_FORMS)
    try:
        stream.write(text.encode(encoding, errors="replace").decode(encoding))
        stream.flush()
    except OSError as failure:
        _detach(stream, failure)


def _detach(stream: Any, failure: OSError) -> None:
    """The rest of our output goes nowhere, without a traceback at exit.

    Its reader may be gone: that of a pipe, or a terminal that was closed. Raises `UnwritableError`
    for any other failure, such as a full disk.
    """
    is_terminal = stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if failure.errno != errno.EPIPE and not (failure.errno == errno.EIO and is_terminal):
        _UNWRITABLE.append(stream)
        raise UnwritableError(failure.strerror or str(failure)) from failure
    _WITHOUT_READER.append(stream)


TYPE_CHECKING = False
if TYPE_CHECKING:
    import rich.console
    import rich.table
