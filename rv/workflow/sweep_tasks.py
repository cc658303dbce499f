"""The tasks of a sweep, and its command with their values in it. Pure.

In the command each `{name}` becomes `"$RV_SET_NAME"`: what a value holds is never read by a shell.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.sweep import Task, variable
from rv.render.quote import shell

MOST_TASKS: Final = 100_000
TASK_ID: Final = "RV_TASK_ID"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
_RANGE: Final = re.compile(r"(-?\d{1,15})\.\.(-?\d{1,15})", re.ASCII)
_INDICES: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::([1-9]\d{0,8}))?)?", re.ASCII)
_ARRAY: Final = re.compile(r"([\d,:-]+)(?:%([1-9]\d{0,5}))?", re.ASCII)
# A `$` before it makes it the shell's; braces around it keep it as it is.
_PLACE: Final = re.compile(
    r"\{(?P<kept>\{(?:[A-Za-z_][A-Za-z0-9_-]*)?\})\}|(?<!\$)\{(?P<name>[A-Za-z_][A-Za-z0-9_-]*|)\}",
    re.ASCII,
)
_LONGEST: Final = 100 << 10
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_ITEM: Final = re.compile(r"((?:[^,'\"]|'[^']*'|\"[^\"]*\")*)(?=,|\Z)")

# Where in a shell line a place is, and what leads from there to where: a quote, a comment, `$(…)`
# or backticks in double quotes, what follows `<<`.
_MARKS: Final = {
    "": re.compile(r"\\.|(?<![^\s;&|()])#|\$?'|\"|<<<|<<-?\s*['\"\\]?[A-Za-z_]", re.DOTALL),
    "'": re.compile("'"),
    "$'": re.compile(r"\\.|'", re.DOTALL),
    '"': re.compile(r"\\.|\"|\$\(|`", re.DOTALL),
    '"(': re.compile(r"\\.|[()]", re.DOTALL),
    '"`': re.compile(r"\\.|`", re.DOTALL),
    "#": re.compile("\n"),
    "<<": re.compile(r"(?!)"),
}
_NEXT: Final = {
    "": {"'": "'", "$'": "$'", '"': '"', "#": "#"},
    "'": {"'": ""},
    "$'": {"'": ""},
    '"': {'"': "", "$(": '"(', "`": '"`'},
    '"`': {"`": '"'},
    "#": {"\n": ""},
}
_FORMS: Final = {"": '"${}"', "#": "${}", "'": "'\"${}\"'", '"': "${{{}}}"}
_WHERE: Final = {
    "$'": "in $'…'",
    '"(': "in $(…) in double quotes",
    '"`': "in backticks in double quotes",
    "<<": "after <<",
}


def parse_sets(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Read the --set options: the values of each name. Raises `RvError(USAGE)`."""
    sets: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise _usage(f"--set {text!r} is not NAME=VALUE,…", "write --set lr=1e-3,1e-4")
        if variable(name) in map(variable, sets):
            raise _usage(f"--set {name} is given twice", "give each name one list of values")
        sets[name] = tuple(_values(name, values))
    return sets


def _values(name: str, text: str) -> list[str]:
    """Read a list: items between commas, of which a range `1..5` is several; quotes keep commas."""
    values: list[str] = []
    for item in _items(name, text):
        bounds = _RANGE.fullmatch(item)
        values += _integers(name, *bounds.groups()) if bounds else [_plain(name, item)]
        if len(values) > MOST_TASKS:
            raise _too_many(len(values), f"--set {name}")
    return values


def _items(name: str, text: str) -> Iterator[str]:
    """Part a list at its commas, but for those in quotes."""
    if text.count(",") >= MOST_TASKS:
        raise _too_many(text.count(",") + 1, f"--set {name}")
    at = 0
    while at <= len(text):
        item = _ITEM.match(text, at)
        if item is None:
            raise _usage(
                f"--set {name}: a quote is not closed",
                f"put it in the other kind of quotes: --set '{name}=\"it's\"'",
            )
        if not item[1]:
            raise _usage(
                f"--set {name} has an item without a value",
                f"write --set {name}=1,2; '' is an empty value",
            )
        yield item[1]
        at = item.end() + 1


def _plain(name: str, item: str) -> str:
    """Return an item without its quotes."""
    value = _QUOTED.sub(lambda quoted: quoted[0][1:-1], item)
    if "\0" in value or len(value.encode("utf-8", "replace")) > _LONGEST:
        raise _usage(f"a value of --set {name} is no argument of a program", "make it shorter")
    return value


def _integers(name: str, first: str, last: str) -> list[str]:
    """Count from one number to another, with the zeros that either begins with."""
    ends = int(first), int(last)
    step = 1 if ends[0] <= ends[1] else -1
    if abs(ends[1] - ends[0]) >= MOST_TASKS:
        raise _too_many(abs(ends[1] - ends[0]) + 1, f"--set {name}")
    is_padded = any(re.match(r"-?0\d", end, re.ASCII) for end in (first, last))
    width = max(len(first), len(last)) if is_padded else 0
    return [f"{number:0{width}d}" for number in range(ends[0], ends[1] + step, step)]


def parse_array(text: str) -> tuple[tuple[int, ...], int]:
    """Read --array as sbatch does: the tasks' numbers, and how many may run at a time, 0 for any.

    Raises `RvError(USAGE)`.
    """
    whole = _ARRAY.fullmatch(text)
    if whole is None:
        raise _no_array(text)
    spans = [_span(part, text) for part in whole[1].split(",")]
    size = sum(map(len, spans))
    if size > MOST_TASKS:
        raise _too_many(size, "--array")
    numbers = tuple(dict.fromkeys(number for span in spans for number in span))
    return numbers, int(whole[2] or 0)


def _span(part: str, text: str) -> range:
    """Read `7`, `0-99` or `0-99:5`."""
    bounds = _INDICES.fullmatch(part)
    if bounds is None:
        raise _no_array(text)
    numbers = range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1, int(bounds[3] or 1))
    if not numbers:
        raise _no_array(text)
    return numbers


def _no_array(text: str) -> RvError:
    return _usage(f"--array {text!r} is no list of numbers", "write --array 0-99%10")


def product_of(sets: dict[str, tuple[str, ...]]) -> tuple[Task, ...]:
    """Combine each value with each; tasks are numbered from 0, the last name changes fastest."""
    size = prod(map(len, sets.values()))
    if size > MOST_TASKS:
        raise _too_many(size, "the --set lists")
    rows = product(*sets.values())
    return tuple(Task(number=number, values=row) for number, row in enumerate(rows))


def _too_many(tasks: int, what: str) -> RvError:
    return _usage(
        f"{what} make {tasks:,} tasks, and a sweep has at most {MOST_TASKS:,}",
        "give several sweeps a part each",
    )


def with_variables(line: str, names: Sequence[str]) -> str:
    """Put the variables of a task into a shell line in the place of each `{name}`.

    `{}` is the task's number, `{{name}}` a plain `{name}`. Single quotes around a place are closed
    for it. Raises `RvError(USAGE)` for a name without values, and for a name
    that the line does not use.
    """
    used: set[str] = set()
    parts: list[str] = []
    at, context = 0, ""
    for place in _PLACE.finditer(line):
        context = _context(line, at, place.start(), context)
        parts += [line[at : place.start()], _replacement(place, names, context)]
        used.add(place["name"] or "")
        at = place.end()
    unused = [name for name in names if name not in used and variable(name) not in line]
    if unused:
        raise _usage(
            f"--set {unused[0]} is not used by the command",
            f"write {{{unused[0]}}}, or ${variable(unused[0])}, where its value goes",
        )
    return "".join([*parts, line[at:]])


def _replacement(place: re.Match[str], names: Sequence[str], context: str) -> str:
    if place["kept"]:
        return place["kept"]
    name = place["name"]
    if name and name not in names:
        known = ", ".join(f"{{{each}}}" for each in names) or "none"
        raise _usage(
            f"{place[0]} in the command has no --set {name}=…",
            f"there is {known}; {{{place[0]}}} is a plain {place[0]}",
        )
    name = variable(name) if name else TASK_ID
    if context not in _FORMS:
        raise _usage(
            f"{place[0]} stands where its value cannot be quoted: {_WHERE[context[:2]]}",
            f'write "${name}" there, or set a variable of your own before: x={place[0]}',
        )
    return _FORMS[context].format(name)


def _context(line: str, start: int, end: int, context: str) -> str:
    """Return in which quote, comment or substitution a place of a shell line is, "" for none."""
    while mark := _MARKS[context[:2]].search(line, start, end):
        context = _after(context, mark[0])
        start = mark.end()
    return context


def _after(context: str, mark: str) -> str:
    if mark[0] == "\\" or mark == "<<<":
        return context
    if context.startswith('"('):
        return context + mark if mark == "(" else context[:-1]
    return _NEXT[context].get(mark, "<<")


def shown(words: Sequence[str], names: Sequence[str], task: Task, *, is_argv: bool) -> str:
    """Return a command as it would be typed for one task, for people to read."""
    values = {"": str(task.number), **dict(zip(names, task.values, strict=True))}

    def value(place: re.Match[str]) -> str:
        text = values[place["name"]] if place["kept"] is None else place["kept"]
        return text if is_argv or place["kept"] else shell(text)

    filled = [_PLACE.sub(value, word) for word in words]
    return shlex.join(filled) if is_argv else filled[0]


def _usage(message: str, hint: str) -> RvError:
    return RvError(ErrorKind.USAGE, message, hint=hint)
