"""Read a plain command line by what its command declares, as typer would, in a tenth of its time.

What is not plain is left to typer: help, a slip, an option glued to its value or shortened. It
then reads the line from its beginning, so that every message is its own.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, get_args, get_origin

from rv.cli.parameters import Argument, CommandApp, Declared, Line
from rv.dataclass import dataclass
from rv.errors import RvError
from rv.models.option import Option

_READ: Final = frozenset({"help", "metavar", "min", "parser", "show_default"})
"""The settings of an option that this understands."""

_FLOAT: Final = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_DIGITS: Final = 10


class _NotPlainError(Exception):
    """The line, or what its command takes, is for typer to read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parameter:
    """A parameter of a command: the type of one value, and how it is declared."""

    name: str
    kind: type
    is_list: bool
    default: Any
    declared: Option | Argument | None

    @property
    def spellings(self) -> tuple[str, ...]:
        """How the option is typed; nothing for what is none."""
        if not isinstance(self.declared, Option):
            return ()
        return self.declared.names or (f"--{self.name.replace('_', '-')}",)


@dataclass(kw_only=True, slots=True)
class _Read:
    """What was read so far: values by parameter, and words that no option has taken."""

    values: dict[str, Any] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)


def plain_call(arguments: Sequence[str], app: CommandApp) -> Callable[[], None] | None:
    """Return the call that a line means, of a command of an app; None where typer is to read it."""
    name, *words = arguments
    if not _is_text(words):
        return None
    declared = app.commands[name]
    try:
        values = _values(declared, words)
    except (_NotPlainError, RvError):
        return None
    return lambda: declared.function(**values)


def _is_text(arguments: Sequence[str]) -> bool:
    """Whether all of it is text: what a shell passed on of another encoding may be none."""
    try:
        "".join(arguments).encode()
    except UnicodeEncodeError:
        return False
    return True


def _values(declared: Declared, arguments: Sequence[str]) -> dict[str, Any]:
    """Return what the command's function is called with."""
    signature = inspect.signature(declared.function)
    parameters = [_parameter(each) for each in signature.parameters.values()]
    options = {spelt: each for each in parameters for spelt in each.spellings}
    words: Sequence[str] = ()
    is_argv = False
    if declared.split:
        takes_value = {spelt: each.kind is not bool for spelt, each in options.items()}
        parts = declared.split(arguments, takes_value)
        arguments, words, is_argv = parts.options, parts.words, parts.is_argv
    read = _read(arguments, options)
    given = read.values | _positional([*read.words, *words], parameters)
    line = Line(typed=frozenset(given), is_argv=is_argv)
    values = {each.name: each.default for each in parameters} | given
    return values | {each.name: line for each in parameters if each.declared is None}


def _parameter(parameter: inspect.Parameter) -> _Parameter:
    name, default, annotation = parameter.name, parameter.default, parameter.annotation
    if annotation is Line:
        return _Parameter(name=name, kind=Line, is_list=False, default=None, declared=None)
    if get_origin(annotation) is not Annotated or default is inspect.Parameter.empty:
        raise _NotPlainError
    hint, declared, *_ = get_args(annotation)
    if not isinstance(declared, Option | Argument) or not declared.settings.keys() <= _READ:
        raise _NotPlainError
    kind, is_list = _kind(hint)
    return _Parameter(name=name, kind=kind, is_list=is_list, default=default, declared=declared)


def _kind(hint: Any) -> tuple[type, bool]:
    """Return the type of one value, and whether there may be several."""
    if isinstance(hint, UnionType):  # X | None: None where it is not typed
        (hint,) = (each for each in get_args(hint) if each is not NoneType)
    is_list = get_origin(hint) is list
    return (get_args(hint)[0], True) if is_list else (hint, False)


def _read(arguments: Sequence[str], options: Mapping[str, _Parameter]) -> _Read:
    """Read options and words up to `--`, behind which are words only."""
    read, left = _Read(), list(arguments)
    while left:
        word = left.pop(0)
        if word == "--":
            read.words += left
            break
        if word == "-" or not word.startswith("-"):
            read.words.append(word)
        else:
            _read_option(word, left, options, read)
    return read


def _read_option(
    word: str, left: list[str], options: Mapping[str, _Parameter], read: _Read
) -> None:
    """Read an option, and its value where it takes one."""
    if option := options.get(word):
        if option.kind is bool:
            read.values[option.name] = True
            return
        value = left.pop(0) if left else ""
    else:
        spelt, _, value = word.partition("=")
        option = options.get(spelt) if word.startswith("--") else None
    if option is None or option.kind is bool or not value or value.startswith("-"):
        raise _NotPlainError
    converted = _converted(value, option)
    earlier = read.values.get(option.name, ())
    read.values[option.name] = [*earlier, converted] if option.is_list else converted


def _converted(text: str, parameter: _Parameter) -> Any:
    """Read one value."""
    settings = parameter.declared.settings if parameter.declared else {}
    if parser := settings.get("parser"):
        return parser(text)
    if parameter.kind is str:
        return text
    value = _number_or_choice(text, parameter.kind)
    if "min" in settings and value < settings["min"]:
        raise _NotPlainError
    return value


def _number_or_choice(text: str, kind: type) -> Any:
    is_whole = text.isascii() and text.isdigit() and len(text) < _DIGITS
    if (kind is int and is_whole) or (kind is float and _FLOAT.fullmatch(text)):
        return kind(text)
    if issubclass(kind, Enum) and text in [each.value for each in kind]:
        return kind(text)
    raise _NotPlainError


def _positional(words: list[str], parameters: Sequence[_Parameter]) -> dict[str, Any]:
    """Give the words to the command's only argument."""
    if not words:
        return {}
    arguments = [each for each in parameters if isinstance(each.declared, Argument)]
    if len(arguments) != 1 or arguments[0].kind is not str or not all(words):
        raise _NotPlainError
    (argument,) = arguments
    if not argument.is_list and len(words) > 1:
        raise _NotPlainError
    return {argument.name: words if argument.is_list else words[0]}
