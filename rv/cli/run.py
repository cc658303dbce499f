"""`rv run CMD…`: race, run the command, stream it; and where rv's options end in that line."""

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from rv import bundle
from rv.cli.defaults import with_request_options
from rv.cli.dry_run import show_plan
from rv.cli.parameters import Argument, CommandApp, Line
from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.option import Option
from rv.models.request import Command
from rv.payloads.contract.catalogue import FAULTS
from rv.ui import console
from rv.workflow.command_line import KnownFiles, from_line, from_words, own_script
from rv.workflow.options import RequestOptions

app = CommandApp()


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitArguments:
    """rv's own arguments, and the words of the command; `is_argv` where `--` came before them."""

    options: tuple[str, ...]
    words: tuple[str, ...]
    is_argv: bool


def split_arguments(arguments: Sequence[str], takes_value: Mapping[str, bool]) -> SplitArguments:
    """Part rv's options from the command. `takes_value` has every option's spelling.

    One word may be followed by rv's options; after several, an option could be the program's own.
    Raises `RvError(USAGE)` for that, and for an option that rv does not have.
    """
    options: list[str] = []
    words: list[str] = []
    is_after_word = False  # the last option came after the command's only word
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "--":
            if is_after_word:
                raise _ambiguous(words, argument)
            words += left
            is_line = len(words) == 1 and " " in words[0]  # quoted, as it may be without the --
            return SplitArguments(options=tuple(options), words=tuple(words), is_argv=not is_line)
        if _is_word(argument):
            if is_after_word:
                raise _ambiguous(words, argument)
            words.append(argument)
            continue
        if len(words) > 1:
            raise _ambiguous(words, argument)
        is_after_word = bool(words)
        options.append(argument)
        if _wants_value(argument, takes_value, words):
            options += left[:1]
            left = left[1:]
    return SplitArguments(options=tuple(options), words=tuple(words), is_argv=len(words) > 1)


def _is_word(argument: str) -> bool:
    return argument == "-" or not argument.startswith("-")


def _wants_value(argument: str, takes_value: Mapping[str, bool], words: Sequence[str]) -> bool:
    name, equals, _ = argument.partition("=")
    if name in takes_value:
        return takes_value[name] and not equals
    is_short = not argument.startswith("--")
    if is_short and takes_value.get(argument[:2]):
        return False  # -pgpu: the value is glued on
    import difflib  # only for a slip

    near = difflib.get_close_matches(name, takes_value, n=1, cutoff=0.7)
    meant = f"did you mean {near[0]}? " if near else ""
    quoted = f' or in quotes: rv run "{" ".join(words)} {argument} …"' if words else ""
    raise RvError(
        ErrorKind.USAGE,
        f"rv has no option {name}",
        hint=f"{meant}what is the program's own goes after --{quoted}",
    )


def _ambiguous(words: Sequence[str], argument: str) -> RvError:
    text = " ".join(words)
    # The value of a variable is not shown.
    argument = "--env" if argument.startswith("--env=") else argument
    return RvError(
        ErrorKind.USAGE,
        f"{argument} after {text!r} could be rv's or the program's own",
        hint=f"put rv's options first, then --: rv run --gpu 4 -- {text} …;"
        f' or quote the command: rv run "{text} …" --gpu 4',
    )


@app.command(split=split_arguments)
@with_request_options
def run(
    *,
    options: RequestOptions,
    line: Line,
    words: Annotated[list[str] | None, Argument(metavar="CMD", help="What to run.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Show the plan only.")] = False,
    detach: Annotated[bool, Option("--detach", "-d", help="Return at once.")] = False,
) -> None:
    """Race for GPUs, run a command in the first that start, and stream its output.

    CMD is a program with its arguments, a quoted shell line, or a bundled payload such as check.py.
    """
    typed = tuple(words or ())
    is_argv = line.is_argv or not typed
    command = read_words(typed) if is_argv else read_line(typed[0])
    if dry_run:
        show_plan(options, command)
    else:
        from rv.cli import launching  # a dry run starts faster without it

        launching.launch(options, command, detach=detach, stops_unclaimed=False)


def read_line(text: str) -> Command:
    """Read `--run TEXT` against the current directory."""
    around = _known_files()
    command = from_line(text, around)
    _say_which_script(text, command.payload, around)
    return replace(command, typed=text)


def read_words(words: tuple[str, ...]) -> Command:
    """Read an argv against the current directory."""
    around = _known_files()
    command = from_words(words, around)
    _say_which_script(command.line, command.payload, around)
    return replace(command, typed=shlex.join(words))


def _say_which_script(text: str, payload: str, around: KnownFiles) -> None:
    """Say whose script it is, where a bundled payload has its name."""
    if payload:
        console.notice(f"{payload}.py is the payload that rv brings; there is no such file here")
    if name := own_script(text, around):
        console.notice(f"{name} is the file here, not the payload of that name that rv brings")


def _known_files() -> KnownFiles:
    payloads = tuple(name.removesuffix(".py") for name in bundle.payload_names())
    nearby: tuple[str, ...] = ()
    with suppress(OSError):  # a folder that cannot be listed may still be used
        nearby = tuple(path.name for path in Path().iterdir())
    return KnownFiles(is_file=os.path.isfile, payloads=payloads, faults=FAULTS, nearby=nearby)
