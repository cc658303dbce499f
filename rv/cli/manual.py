"""Manual pages, made of the commands themselves: `python -m rv.cli.manual FOLDER` writes them."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rv import __version__
from rv.cli.command_tree import walk
from rv.cli.examples import EXAMPLES
from rv.cli.help import Row, grouped, parameter_rows, summary


def pages() -> Iterator[tuple[str, str]]:
    """Give each manual page: the name of its file, and its text for man."""
    commands = list(walk())
    for words, command, context in commands:
        near = _near(words, [other for other, _, _ in commands])
        yield f"{_name(words)}.1", "\n".join(_page(words, command, context, near)) + "\n"


def _page(words: str, command: Any, context: Any, near: Sequence[str]) -> Iterator[str]:
    name = _name(words)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f'.TH "{name.upper()}" "1" "" "rv {__version__}" "rv"'
    yield from (".SH NAME", f"{_text(name)} \\- {_text(_headline(summary(command)))}")
    yield from (".SH SYNOPSIS", f".B {_text(context.command_path)}", _text(usage))
    yield ".SH DESCRIPTION"
    yield from _paragraphs(command.help or "")
    yield from _definitions("ARGUMENTS", parameter_rows(command, context, "argument"))
    yield ".SH OPTIONS"
    for title, rows in grouped(parameter_rows(command, context, "option")).items():
        yield from () if title == "Options" else (f".SS {_text(title)}",)
        yield from _items(rows)
    below = {each: (each, summary(it)) for each, it in getattr(command, "commands", {}).items()}
    yield from _definitions("COMMANDS", below)
    yield ".SH EXAMPLES"
    yield from _items(EXAMPLES[words])
    yield from (".SH SEE ALSO", *_references(near))


def _references(near: Sequence[str]) -> Iterator[str]:
    for at, each in enumerate(near):
        comma = " ," if at < len(near) - 1 else ""
        yield f".BR {_text(_name(each))} (1){comma}"


def _near(words: str, others: Sequence[str]) -> list[str]:
    """Name the command above this one, and those directly below it."""
    above = [] if not words else [words.rpartition(" ")[0]]
    below = [each for each in others if each and each.rpartition(" ")[0] == words]
    return [*above, *below]


def _name(words: str) -> str:
    return "-".join(["rv", *words.split()])


def _headline(sentence: str) -> str:
    return sentence.removesuffix(".")


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        yield from (".PP", _text(" ".join(paragraph.split())))


def _definitions(title: str, rows: Mapping[str, Row]) -> Iterator[str]:
    if rows:
        yield f".SH {title}"
        yield from _items(list(rows.values()))


def _items(rows: Sequence[Row]) -> Iterator[str]:
    for spelt, text in rows:
        yield from (".TP", f".B {_text(spelt)}", _text(text) or "\\&")


def _text(text: str) -> str:
    """Write text so that roff takes none of it for its own, in ASCII."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("\n", " ")
    plain = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in escaped)
    return f"\\&{plain}" if plain[:1] in (".", "'") else plain


def write_pages(folder: Path) -> None:
    """Write every page into a folder. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (folder / name).write_text(text, encoding="ascii")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
