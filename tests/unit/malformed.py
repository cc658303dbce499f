"""Malformed text by the thousand: drawn from a seed, so that what broke something can be drawn again."""

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, Final

COUNT: Final = int(os.environ.get("RV_MALFORMED", "1000"))
"""How many malformed inputs each parser and the command line get."""

LONGEST: Final = 20_000
"""Characters of the longest input drawn."""

NASTY: Final = (
    "\0", "\x1b[2J", "\x1b]0;x\x07", "\x9b31m", "\x7f", "\r", "\n", "\r\n", "\u2028", "\u202e", "\ufeff",
    "\ufffd", "\udcff", "\ud800", "²", "٣", "İ", "ﬁ", "e\u0301", "\U0010ffff", "-", "--", "=", ",", "|", ":",
    "[", "]", "(", ")", "{", "}", "&", "*", "'", '"', "\\", "$(x)", "`x`", "%n", "{{", "!!python/object:x",
    "0", "-1", "+1", "1e400", "1e-400", "nan", "inf", "-inf", "0x10", "1_000", "9" * 15, "9" * 16, "9" * 400,
    "99999999999", "18446744073709551615", "-9223372036854775809", "999999-23:59:59", "00000", "0000-00-00T00:00:00",
    "9999-12-31T23:59:59", "0001-01-01T00:00:00", "UNLIMITED", "INFINITE", "N/A", "(null)", "None", "Unknown", "null",
    "n[1-99999999999]", "n[0-9][0-9][0-9][0-9][0-9][0-9][0-9]", "n[9-0]", "n[1-", "n[]", "[" * 50, "]" * 50,
    "gpu:a:b:c:d", "gpu:999999999", "gres/gpu=-1", "gres/gpu=1e9", "cpu=,mem=", "1K1K", "99999999P",
)  # fmt: skip

Mutation = Callable[[random.Random, str], str]


def _cut(dice: random.Random, text: str) -> str:
    return text[: dice.randint(0, len(text))]


def _drop(dice: random.Random, text: str) -> str:
    start = dice.randint(0, len(text))
    return text[:start] + text[start + dice.randint(1, 200) :]


def _insert(dice: random.Random, text: str) -> str:
    at = dice.randint(0, len(text))
    return text[:at] + dice.choice(NASTY) + text[at:]


def _replace(dice: random.Random, text: str) -> str:
    """Put something nasty in the place of a value: what stands between two marks."""
    at = dice.randint(0, len(text))
    marks = "=|,: \n"
    start = max((text.rfind(mark, 0, at) for mark in marks), default=-1) + 1
    ends = [found for mark in marks if (found := text.find(mark, at)) >= 0]
    return text[:start] + dice.choice(NASTY) + text[min(ends, default=len(text)) :]


def _flip(dice: random.Random, text: str) -> str:
    """Change bytes, and read what comes as rv reads what comes from a process."""
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(dice.randint(1, 8)):
        if data:
            data[dice.randrange(len(data))] = dice.randrange(256)
    return data.decode("utf-8", errors="replace")


def _repeat(dice: random.Random, text: str) -> str:
    start = dice.randint(0, len(text))
    piece = text[start : start + dice.randint(1, 40)]
    return text[:start] + piece * dice.choice((2, 10, 200)) + text[start:]


def _shuffle(dice: random.Random, text: str) -> str:
    lines = text.split("\n")
    dice.shuffle(lines)
    return "\n".join(lines)


def _join(dice: random.Random, text: str) -> str:
    """Let rows or records run into each other."""
    return text.replace(
        dice.choice("\n|=, "), dice.choice(("", " ", "|", "\n")), dice.randint(1, 50)
    )


MUTATIONS: Final[tuple[Mutation, ...]] = (
    _cut, _drop, _insert, _insert, _replace, _replace, _replace, _flip, _repeat, _shuffle, _join,
)  # fmt: skip


def mutated(dice: random.Random, text: str) -> str:
    """One to four changes to a well-formed text."""
    for _ in range(dice.randint(1, 4)):
        text = dice.choice(MUTATIONS)(dice, text)
    return text[:LONGEST]


VALUES: Final = (
    0, 1, -1, 2**31, 2**63, 10**15, 10**30, 10**400, -(10**30), 0.5, 1e300, 1e-300, float("nan"), float("inf"), True, None, "", "x", [], {}, [[]],
    "9999-12-31T23:59:59", "0001-01-01T00:00:00", "2026-01-01T00:00:00+00:00", "2026-01-01", *NASTY,
)  # fmt: skip
"""What may stand where another value should, in JSON."""


def mutated_json(dice: random.Random, text: str) -> str:
    """Other values in one to three places of a document, or a change to its text."""
    if dice.random() < 0.3:
        return mutated(dice, text)
    document = json.loads(text)
    for _ in range(dice.randint(1, 3)):
        _replace_value(dice, document)
    return json.dumps(document)


def _alike(value: Any) -> Sequence[Any]:
    """Values of the same type, which a reader lets pass more often."""
    return [other for other in VALUES if type(other) is type(value)] or VALUES


def _replace_value(dice: random.Random, inside: Any) -> None:
    while True:
        keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        if not keys:
            return
        key = dice.choice(keys)
        if isinstance(inside[key], dict | list) and inside[key] and dice.random() < 0.9:
            inside = inside[key]
            continue
        if dice.random() < 0.1:
            del inside[key]
        else:
            choices = _alike(inside[key]) if dice.random() < 0.7 else VALUES
            inside[key] = deepcopy(dice.choice(choices))
        return


def noise(dice: random.Random) -> str:
    """Text that never was well-formed: bytes, characters, or the pieces that parsers look for."""
    kind = dice.randrange(3)
    if kind == 0:
        return dice.randbytes(dice.randint(0, 400)).decode("utf-8", errors="replace")
    if kind == 1:
        return "".join(
            chr(dice.choice((dice.randrange(128), dice.randrange(0xD800))))
            for _ in range(dice.randint(0, 80))
        )
    return "".join(dice.choice(NASTY) for _ in range(dice.randint(0, 40)))


def texts(seed: str, samples: Sequence[str], count: int = COUNT) -> Iterator[str]:
    """Draw `count` inputs: nine tenths are changed samples, where there are samples."""
    dice = random.Random(seed)
    for _ in range(count):
        sample = dice.choice(samples) if samples and dice.random() < 0.9 else ""
        yield mutated(dice, sample) if sample else noise(dice)


def bombs(samples: Sequence[str], length: int = LONGEST) -> Iterator[str]:
    """Long texts of one thing again and again, at which a careless parser takes for ever."""
    pieces = ("[", "]", "(", "gpu(", "gpu:", "a[1-99999],", "a[9-0][1-99999],", "a[1-9]", "\x1b]", "\x1b[", " a=", "=", "|",
              " JobName=", "9", "1-", "1d", "1:", ",", "&", "|a", "(a", "\n", "- ", "{a: ", "'", '"', "$(", "\\", "n[1-99999999999]\n")  # fmt: skip
    for piece in pieces:
        yield piece * (length // len(piece))
        yield from (
            sample[: len(sample) // 2] + piece * (length // len(piece)) for sample in samples[:1]
        )
    for sample in samples[:2]:
        yield sample * max(1, length // max(1, len(sample)))
