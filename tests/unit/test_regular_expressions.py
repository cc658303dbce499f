"""Regular expressions mean the same in every Python that rv runs on."""

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "rv"
POSSESSIVE_GROUP = re.compile(r"\)[*+?]\+|\(\?>")


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_no_group_is_possessive(path: Path) -> None:
    """Python 3.11.2, Debian 12's, reads past the end of a possessive or an atomic group."""
    assert not POSSESSIVE_GROUP.findall(path.read_text(encoding="utf-8"))


def test_a_possessive_group_is_seen() -> None:
    assert POSSESSIVE_GROUP.search(r"((?:\S+|\s(?!x))*+)")
    assert not POSSESSIVE_GROUP.search(r"\s([A-Za-z][\w:/]*+)=")
