"""docs/acceptance.md: every capability has its row, with a test that exists or a reason."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from rv.cli.app import COMMANDS
from rv.payloads.contract.catalogue import PAYLOADS
from tests.acceptance_rows import commands, rows
from tests.called_code import imported_by, reached

ROOT = Path(__file__).parents[2]
LAST = {"A": 24, "B": 20, "C": 13, "D": 16, "E": 11}
WANTED = [f"{letter}-{number:02}" for letter, last in LAST.items() for number in range(1, last + 1)]


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))


def test_every_capability_has_its_row_in_order() -> None:
    """A-01 to E-11."""
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


@cache
def modules_in(package: str) -> frozenset[str]:
    folder = ROOT / package.replace(".", "/")
    return frozenset({package} | {f"{package}.{path.stem}" for path in folder.glob("*.py")})


def programs_of(command: str) -> set[str]:
    """The payloads of a command; a server that is asked with curl is tensor_service."""
    payloads = {payload.name for payload in PAYLOADS} | {"run_all"}
    asked = {"tensor_service"} if command.startswith("curl") and "SERVER" in command else set()
    return payloads & set(re.findall(r"\w+", command)) | asked


def exercises(words: frozenset[str], modules: frozenset[str], command: str) -> bool:
    """Whether a test that reaches these names or imports what the command runs.

    Of a payload that is the payload by name, or code of the folders that it imports; of a command
    of rv, rv called with its words, or for acceptance its code; of anything else the folder of the
    files that it is given.
    """
    programs = programs_of(command)
    if programs & words or any(modules & code_of(f"rv.payloads.{name}") for name in programs):
        return True
    if not command.startswith("rv "):
        return bool(set(re.findall(r"examples/(\w+)/", command)) & words)
    name, *rest = command.split()[1:]
    if name == "accept":
        return {name, rest[0]} <= words or bool(modules & code_of("rv.cli.accept"))
    return {"rv", name} <= words


@cache
def code_of(module: str) -> frozenset[str]:
    """What a payload or acceptance imports of its own: not what the launcher gives it."""
    own = re.compile(r"rv\.(?:payloads\.(?:_\w+|contract)|accept)\b")
    folders = {match[0] for name in imported_by(module) if (match := own.match(name))}
    return frozenset(name for folder in folders for name in modules_in(folder))


@pytest.mark.parametrize("row", WANTED)
def test_a_rows_test_exercises_what_the_row_runs(row: str) -> None:
    """Every test that a row names, one of the row's commands."""
    shown = rows()[row][2]
    for file, test in re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", shown):
        words, modules = reached(file, test)
        assert any(exercises(words, modules, command) for command in commands(row)), (
            f"{row}: {test} reaches nothing of {commands(row)}"
        )


@pytest.mark.parametrize(
    ("test", "command"),
    [
        ("tests/unit/slurm/test_values.py::test_last_line", "rv accept history"),
        (
            "tests/payloads/test_check.py::test_check_passes_on_a_cpu",
            'rv run "stress.py --endless"',
        ),
        ("tests/payloads/test_containers.py::test_the_dockerfile_is_linted", "rv run check.py"),
        ("tests/payloads/test_stress.py::test_nvcc_on_the_path_comes_first", "rv run train.py"),
    ],
)
def test_a_test_of_something_else_exercises_no_row(test: str, command: str) -> None:
    """The check above tells a row's test from any other."""
    words, modules = reached(*test.split("::"))
    assert not exercises(words, modules, command)
