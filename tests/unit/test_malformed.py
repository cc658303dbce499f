"""Every parser, on malformed text by the thousand: a documented error or a bounded result.

`RV_MALFORMED=10000` gives each of them ten thousand.
"""

import time
from dataclasses import fields, is_dataclass
from typing import Any, Final

import pytest
from pydantic import BaseModel

from rv.errors import RvError
from tests.unit import malformed
from tests.unit.parsers import BY_FILE, PARSERS, Parser, parsers_in_rv

MOST: Final = 10_000_000
"""What the names of a list come to at most, in characters."""

CPU_SECONDS: Final = 30.0
"""What a bomb may take. It takes less than one where time grows with the text's length alone."""


def test_no_parser_is_left_out() -> None:
    """Whoever writes a parser gives it samples here."""
    assert set(parsers_in_rv()) - {parser.of for parser in PARSERS} == BY_FILE


def size(value: Any) -> int:
    """How many values a result holds, and how many characters."""
    if is_dataclass(value) and not isinstance(value, type):
        return 1 + sum(size(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, BaseModel):
        return size(dict(value))
    if isinstance(value, dict):
        return 1 + sum(size(key) + size(inner) for key, inner in value.items())
    if isinstance(value, tuple | list | set | frozenset):
        return 1 + sum(map(size, value))
    return 1 + len(value) if isinstance(value, str) else 1


def check(parser: Parser, text: str) -> None:
    """A result in proportion to the text, or an error whose message is."""
    try:
        found = parser.parse(text)
    except RvError as error:
        found = error.message
    assert size(found) <= 2000 + 60 * len(text) + MOST


def is_read(parser: Parser, sample: str) -> bool:
    """Whether a parser makes something of a sample; some samples of several parsers are errors."""
    try:
        return bool(parser.parse(sample))
    except RvError:
        return False


@pytest.mark.parametrize("parser", PARSERS, ids=[parser.of for parser in PARSERS])
def test_well_formed(parser: Parser) -> None:
    """At least one of its samples is read, and not as nothing."""
    assert any(is_read(parser, sample) for sample in parser.samples)


@pytest.mark.parametrize("parser", PARSERS, ids=[parser.of for parser in PARSERS])
def test_malformed(parser: Parser) -> None:
    """Nothing but `RvError` comes out, and nothing that is out of proportion."""
    for number, text in enumerate(malformed.texts(parser.of, parser.samples)):
        try:
            check(parser, text)
        except Exception as error:
            error.add_note(f"input {number} of {parser.of}: {text[:300]!r}")
            raise


@pytest.mark.parametrize("parser", PARSERS, ids=[parser.of for parser in PARSERS])
def test_bombs(parser: Parser) -> None:
    """Length costs time in proportion."""
    for text in malformed.bombs(parser.samples):
        began = time.process_time()
        check(parser, text)
        assert time.process_time() - began < CPU_SECONDS, text[:100]
