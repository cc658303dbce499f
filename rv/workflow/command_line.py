"""Read what the user wants run: its launcher and its script.

Pure: the caller says which files exist. The line stays as typed but for two things: a leading
`*.py` gets its python, and a script that exists nowhere but among the payloads gets its path.
The job script must export RV_PYTHON and RV_PAYLOADS.
"""

import difflib
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.request import Command, Launcher, Pins
from rv.models.spelling import nearest
from rv.workflow.known_programs import Invocation, is_prefix, read_invocation, word_set
from rv.workflow.shellwords import Word, simple_commands

_STEADY: Final = word_set(
    "module ml source . export set unset ulimit umask echo printf mkdir nvidia-smi hostname date"
    " true : sleep wait ls which conda for python python3"
)
"""Programs behind which the working directory and its scripts are taken to be what they were."""

_HARMLESS: Final = _STEADY | {""}
_PYTHON: Final = word_set("python python3")


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownFiles:
    """What a command is read against.

    `is_file` answers for a path as typed, from the working directory, and never raises
    (`os.path.isfile`); `payloads` are the bundled scripts' names without `.py`; `faults` are those
    that each of them can `--inject`; `nearby` are file names to suggest for a missing one.
    """

    is_file: Callable[[str], bool]
    payloads: Collection[str] = ()
    faults: Mapping[str, Sequence[str]] = field(default_factory=dict)
    nearby: Sequence[str] = ()


def from_words(words: Sequence[str], around: KnownFiles) -> Command:
    """Read an argv: every word is quoted, so that the shell changes none.

    Raises `RvError(USAGE)` for an empty command and for a missing script.
    """
    if not words or not words[0].strip():
        raise _empty()
    return _read(shell_line(words), around)


def from_line(text: str, around: KnownFiles) -> Command:
    """Read shell text, such as `--run "cd src && torchrun train.py"`; it stays the user's own.

    A text that is the name of a file (`my script.py`) is that file.
    Raises `RvError(USAGE)` for empty or unbalanced text and for a missing script.
    """
    if text.endswith(".py") and around.is_file(text):
        return from_words([text], around)
    return _read(text, around)


def shell_line(words: Sequence[str]) -> str:
    """Return the shell line of an argv."""
    return " ".join(_quoted(words))


def _quoted(words: Sequence[str]) -> Iterator[str]:
    """Quote for bash; the value of a leading `X=Y` apart, or bash would see no assignment."""
    leading = True
    for word in words:
        name, equals, value = word.partition("=")
        leading = leading and bool(equals) and is_prefix(word)
        yield f"{name}={shlex.quote(value)}" if leading else shlex.quote(word)


def _empty() -> RvError:
    return RvError(
        ErrorKind.USAGE, "the command is empty", hint="name a program, such as python train.py"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Script:
    """A script to write into the line, with its interpreter and where it came from."""

    word: Word
    text: str
    payload: str = ""


def _read(text: str, around: KnownFiles) -> Command:
    if "\0" in text:
        raise RvError(ErrorKind.USAGE, "the command holds a NUL byte, which no shell can run")
    commands = simple_commands(text)
    if not commands:
        raise _empty()
    invocations = [read_invocation(words) for words in commands]
    scripts = list(_scripts(text, invocations, around))
    for script in scripts:
        _check_faults(script, commands, around.faults)
    return Command(
        line=_rewritten(text, scripts),
        launcher=_launcher(invocations),
        pins=_merged([invocation.pins for invocation in invocations]),
        payload=next((script.payload for script in scripts if script.payload), ""),
    )


def require_fault(fault: str, faults: Mapping[str, Sequence[str]]) -> None:
    """Refuse an `--inject` that no payload of `faults` would detect. Raises `RvError(USAGE)`."""
    name, _, where = fault.partition(":")
    names = tuple(dict.fromkeys(each for of_one in faults.values() for each in of_one))
    if name in names:
        _require_form(fault, where)
        return
    near = nearest(name, names)
    meant = f"did you mean {near}? " if near else ""
    raise RvError(
        ErrorKind.USAGE,
        f"{', '.join(faults)} can make no fault {name!r}",
        hint=f"{meant}--inject takes: {', '.join(names)}",
    )


def _require_form(fault: str, where: str) -> None:
    """Refuse what a payload could not read; a rank that is no number would be no rank's."""
    for pair in where.split(",") if where else ():
        key, equals, value = pair.partition("=")
        if not key or not equals or (key == "rank" and not value.isdecimal()):
            raise RvError(
                ErrorKind.USAGE,
                f"--inject {fault}: {pair!r} is not KEY=VALUE",
                hint="write FAULT:KEY=VALUE,…, as in slow:rank=1; ranks are numbers from 0",
            )


def _check_faults(
    script: _Script, commands: Sequence[Sequence[Word]], faults: Mapping[str, Sequence[str]]
) -> None:
    if script.payload in faults:
        words = next(words for words in commands if script.word in words)
        for fault in _injected(words):
            require_fault(fault, {script.payload: faults[script.payload]})


def _injected(words: Sequence[Word]) -> Iterator[str]:
    """Yield the values of `--inject`, but for what the shell would still expand."""
    for at, word in enumerate(words):
        option, equals, value = word.value.partition("=")
        following = words[at + 1] if at + 1 < len(words) else None
        if option != "--inject" or word.dynamic:
            continue
        if equals:
            yield value
        elif following is not None and not following.dynamic:
            yield following.value


def own_script(text: str, around: KnownFiles) -> str:
    """Name the first script of a line that is a file here and a bundled payload's name too."""
    for words in simple_commands(text):
        script = read_invocation(words).script
        name = script.value if script else ""
        if name.removesuffix(".py") in around.payloads and around.is_file(name):
            return name
    return ""


def _launcher(invocations: Sequence[Invocation]) -> Launcher:
    kinds = (invocation.launcher for invocation in invocations)
    return next((kind for kind in kinds if kind is not Launcher.PLAIN), Launcher.PLAIN)


def _merged(pins: Sequence[Pins]) -> Pins:
    """Join the pins of several commands of a line; the first number counts."""
    processes = (pin.processes_per_node for pin in pins)
    nodes = (pin.nodes for pin in pins)
    return Pins(
        processes_per_node=next((number for number in processes if number), None),
        nodes=next((number for number in nodes if number), None),
        flags=tuple(dict.fromkeys(flag for pin in pins for flag in pin.flags)),
    )


def _scripts(text: str, invocations: Sequence[Invocation], around: KnownFiles) -> Iterator[_Script]:
    """Find each command's script, taking what ran before it for harmless.

    After a program that is not known to keep the working directory, a script is the user's own.
    """
    steady, ran_python = True, False
    for invocation in invocations:
        word = invocation.script
        if word is not None:
            is_known = steady and not word.dynamic
            payload = _payload(word, around, may_be_made=ran_python) if is_known else ""
            script = f'"$RV_PAYLOADS/{payload}.py"' if payload else text[word.start : word.end]
            prefixed = f"{invocation.interpreter} {script}".lstrip(" ")
            yield _Script(word=word, text=prefixed, payload=payload)
        ran_python = ran_python or word is not None or invocation.program in _PYTHON
        steady = steady and (word is not None or invocation.program in _HARMLESS)


def _payload(script: Word, around: KnownFiles, *, may_be_made: bool) -> str:
    """Name the payload that stands in for a script, empty where it is a file.

    Raises `RvError(USAGE)` for neither, unless an earlier part of the line may make the file.
    """
    name = script.value
    if around.is_file(name) or "://" in name:
        return ""
    stem = name.removesuffix(".py")
    if stem in around.payloads:
        return stem
    if may_be_made:
        return ""
    raise _missing(name, around)


def _missing(name: str, around: KnownFiles) -> RvError:
    bundled = sorted(f"{payload}.py" for payload in around.payloads)
    near = difflib.get_close_matches(name, [*around.nearby, *bundled], n=1)
    where = "" if name.startswith("/") else " in the current directory"
    otherwise = f"go to its folder; bundled scripts: {', '.join(bundled) or 'none'}"
    hint = f"did you mean {near[0]}?" if near else otherwise
    return RvError(ErrorKind.USAGE, f"no {name}{where}", hint=hint)


def _rewritten(text: str, scripts: Sequence[_Script]) -> str:
    for script in sorted(scripts, key=lambda script: script.word.start, reverse=True):
        text = text[: script.word.start] + script.text + text[script.word.end :]
    return text
