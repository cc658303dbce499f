"""Where rv's options end and the user's command begins, in `rv run CMD…`. Pure."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rv.errors import ErrorKind, RvError


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """rv's own arguments, and the words of the command; `is_argv` where `--` came before them."""

    options: tuple[str, ...]
    words: tuple[str, ...]
    is_argv: bool


def split_arguments(arguments: Sequence[str], takes_value: Mapping[str, bool]) -> Split:
    """Tell rv's options from the command. `takes_value` has every option's spelling.

    One word may be followed by rv's options; after several, an option could be the program's own.
    Raises `RvError(USAGE)` for that, and for an option that rv does not have.
    """
    options: list[str] = []
    words: list[str] = []
    between = False
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "--":
            if words and options and between:
                raise _ambiguous(words, "--")
            return Split(options=tuple(options), words=(*words, *left), is_argv=True)
        if not argument.startswith("-") or argument == "-":
            if between:
                raise _ambiguous(words, argument)
            words.append(argument)
            continue
        if len(words) > 1:
            raise _ambiguous(words, argument)
        between = bool(words)
        options.append(argument)
        if _wants_value(argument, takes_value, words) and left:
            options.append(left.pop(0))
    return Split(options=tuple(options), words=tuple(words), is_argv=len(words) > 1)


def _wants_value(argument: str, takes_value: Mapping[str, bool], words: Sequence[str]) -> bool:
    name, equals, _ = argument.partition("=")
    if name in takes_value:
        return takes_value[name] and not equals
    short = argument[:2]
    if not argument.startswith("--") and takes_value.get(short):
        return False  # -pgpu: the value is glued on
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
    return RvError(
        ErrorKind.USAGE,
        f"{argument} after {text!r} could be rv's or the program's own",
        hint=f"put rv's options first, then --: rv run --gpu 4 -- {text} …;"
        f' or quote the command: rv run "{text} …" --gpu 4',
    )
