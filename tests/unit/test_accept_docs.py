"""docs/acceptance.md: every capability has its row, with a test that exists or a reason."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from rv.cli.app import COMMANDS
from rv.payloads.contract.catalogue import PAYLOADS
from tests.acceptance_rows import rows

ROOT = Path(__file__).parents[2]
LAST = {"A": 24, "B": 17, "C": 13, "D": 16, "E": 10}
WANTED = [f"{letter}-{number:02}" for letter, last in LAST.items() for number in range(1, last + 1)]


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))


def test_every_capability_has_its_row_in_order() -> None:
    """A-01 to E-10."""
    assert list(rows()) == WANTED


@pytest.mark.parametrize("row", WANTED)
def test_a_row_names_a_test_that_exists_or_says_why_there_is_none(row: str) -> None:
    """A command, and a function in a file; or a sentence."""
    what, command, shown = rows()[row]
    assert what
    if shown.startswith("cannot: "):
        assert len(shown) > 40
        return
    assert command.startswith("`")
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", shown)
    assert named, f"{row} names no test"
    for file, test in named:
        assert (ROOT / file).is_file(), f"{row}: there is no {file}"
        assert test in functions_of(ROOT / file), f"{row}: {file} has no {test}"


@pytest.mark.parametrize("row", WANTED)
def test_a_rows_commands_are_rvs_own(row: str) -> None:
    """Commands and payloads that there are."""
    payloads = {payload.name for payload in PAYLOADS} | {"run_all"}
    for command in re.findall(r"`(rv [^`]+)`", rows()[row][1]):
        words = command.split()
        assert words[1] in COMMANDS
        named = re.findall(r"\b(\w+)\.py\b", command)
        if words[1:3] in (["accept", "run"], ["accept", "sweep"]):
            named += [word for word in words[3:] if word in payloads or "_" in word]
        assert set(named) <= payloads, command
