"""Answer a shell that was asked to complete `rv …`, from what this machine knows; it asks nobody.

The shell runs `rv __complete bash WORD LINE`, or `rv __complete zsh|fish WORD…`, with the words
after `rv` up to the cursor. The first line of the answer is `values`, `files` or `folders`: whether
the shell is to offer those of the current folder too. The others are values, each with a tab and
what it means.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rv.cli.completion_table import load_table
from rv.ui import console

_WORDS: Final = 80

Value = tuple[str, str]


@dataclass(kw_only=True, slots=True)
class Place:
    """Where on the command line the cursor is.

    `option` wants a value there; `arguments` counts those before it; `is_literal`: behind `--`.
    """

    command: str = ""
    option: Mapping[str, Any] | None = None
    arguments: int = 0
    is_literal: bool = False
    options: dict[str, str] = field(default_factory=dict)


def answer(arguments: Sequence[str]) -> int:
    """Write the answer to a shell; where anything is wrong, that there is nothing to offer."""
    try:
        shell, *rest = arguments
        typed_here = rest[0] if shell == "bash" else ""
        words = _words_of(rest[1]) if shell == "bash" else rest
        kind, values = complete(words or [""], load_table())
        before = words[-1].removesuffix(typed_here) if shell == "bash" else ""
        lines = [_line(value.removeprefix(before), text, shell) for value, text in values]
    except Exception:  # noqa: BLE001 - whatever it is, nobody asked to read of it
        kind, lines = "values", []
    console.raw("".join(f"{line}\n" for line in (kind, *lines)).encode(), is_error=False)
    return 0


def complete(words: Sequence[str], table: Mapping[str, Any]) -> tuple[str, list[Value]]:
    """Return what may stand in place of the last of the words, each with what it means."""
    *before, current = words
    place = _place(before, table)
    entry = table[place.command]
    if place.option is not None:
        return _values(place.option, current, "", place)
    if not place.is_literal and current.startswith("-"):
        return _option_or_value(current, entry, place)
    if entry["commands"]:
        return "values", _beginning(current, ((name, text) for name, text in entry["commands"]))
    argument = _argument(place.arguments, entry)
    return _values(argument, current, "", place) if argument else ("values", [])


def _option_or_value(
    current: str, entry: Mapping[str, Any], place: Place
) -> tuple[str, list[Value]]:
    """Complete an option's name, or what stands behind its equals sign."""
    name, equals, value = current.partition("=")
    option = _option(name, entry)
    if equals and option:
        return _values(option, value, f"{name}=", place)
    return "values", _beginning(current, _options(entry))


def _beginning(typed: str, values: Iterable[Value]) -> list[Value]:
    return [(value, text) for value, text in values if value.startswith(typed)]


def _place(words: Sequence[str], table: Mapping[str, Any]) -> Place:
    """Read the words before the cursor. Raises `KeyError` for a command that is not known."""
    place = Place()
    left = list(words)
    while left:
        word = left.pop(0)
        entry = table[place.command]
        if place.is_literal or not word.startswith("-") or word == "-":
            if entry["commands"]:
                place.command = f"{place.command} {word}".strip()
                _ = table[place.command]
            else:
                place.arguments += 1
        elif word == "--":
            place.is_literal = True
        elif (option := _option(word, entry)) and option["takes_value"]:
            if not left:
                place.option = option
                return place
            place.options[option["names"][0]] = left.pop(0)
        else:
            name, _, value = word.partition("=")
            place.options[name] = value
    return place


def _option(word: str, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((each for each in entry["options"] if word in each["names"]), None)


def _options(entry: Mapping[str, Any]) -> Iterator[Value]:
    for option in entry["options"]:
        for name in option["names"]:
            if name.startswith("--") or len(option["names"]) == 1:
                yield name, option["help"]


def _argument(at: int, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    arguments: list[Mapping[str, Any]] = entry["arguments"]
    if at < len(arguments):
        return arguments[at]
    return arguments[-1] if arguments and arguments[-1]["many"] else None


def _values(
    parameter: Mapping[str, Any], current: str, prefix: str, place: Place
) -> tuple[str, list[Value]]:
    """Return the values of a parameter that begin with what is typed, behind a prefix."""
    source = parameter["source"]
    if source in ("files", "folders"):
        return source, []
    kind = "values"
    values: list[Value] = [(choice, "") for choice in parameter["choices"]]
    if source:
        from rv.cli import completion_values

        if source == "commands":
            kind = "files"
        if source == "commands" and place.arguments:
            return kind, []  # the words of the user's own program
        values = completion_values.values_of(source, place.options.get("--cluster", ""))
        if source in completion_values.LISTS:
            done, comma, current = current.rpartition(",")
            prefix += done + comma
    return kind, [(prefix + value, text) for value, text in _beginning(current, values)]


def _words_of(line: str) -> list[str]:
    """Split a line that is not finished, as a shell would; the first word is rv."""
    import shlex

    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:  # a quote that is open yet
        return [*words, lexer.token][1:]
    is_new = line[-1:].isspace() and not line.endswith("\\ ")
    return [*words, *([""] if is_new else [])][1:]


def _line(value: str, text: str, shell: str) -> str:
    if shell == "bash" or not text:
        return value
    words = text if len(text) <= _WORDS else f"{text[: _WORDS - 1].rstrip()}…"
    return f"{value}\t{words}"
