"""Each command that README and docs/ show is typed by a test, or listed with the test that runs it."""

import ast
import re

import pytest

from tests.typed_lines import CELL, FENCE, PAGES, ROOT, commands, lines, not_typed, to_type

LANGUAGES = {"sh", "console", "yaml", "text", "jinja", "python"}


def unnamed_blocks(text: str) -> list[str]:
    """The first lines of blocks that do not say what they hold, and so might hold commands."""
    blocks = FENCE.findall(text)
    indented = re.findall(r"(?<=\n\n)    (?=\S).*", FENCE.sub("", text))
    return indented + [block.splitlines()[0] for name, block in blocks if name not in LANGUAGES]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_holds(page: str) -> None:
    assert unnamed_blocks(PAGES[page].read_text(encoding="utf-8")) == []


def test_a_block_that_hides_a_command_is_seen() -> None:
    assert unnamed_blocks("a\n\n    rv ps\n\n```\nrv up\n```\n```sh\nrv logs\n```\n") == [
        "    rv ps",
        "rv up",
    ]


def test_commands_are_told_from_output_and_remarks() -> None:
    assert list(commands("console", "$ rv ps -a    # all\nRACE\n$ rv stop\n")) == [
        "rv ps -a",
        "rv stop",
    ]
    assert list(commands("sh", "# only a remark\nrv exec -- echo '#1'\n")) == [
        "rv exec -- echo '#1'"
    ]
    assert list(commands("yaml", "rv: 1\n")) == []
    assert CELL.findall("| `squeue` | `rv ps`, `rv ps -a` |\n") == ["rv ps"]
    assert sum(len(to_type(page)) for page in PAGES) > 50


@pytest.mark.parametrize("page", PAGES)
def test_what_is_listed_stands_there(page: str) -> None:
    """A line that changed or left its page is typed, or leaves the list."""
    assert set(not_typed(page)) <= set(lines(page))


@pytest.mark.parametrize("page", [page for page in PAGES if not_typed(page)])
def test_what_is_listed_is_run_by_something_that_is_there(page: str) -> None:
    assert {line: test for line, (_, test) in not_typed(page).items() if not is_there(test)} == {}
    assert not is_there("tests/unit/test_pages.py::test_nothing")


def is_there(test: str) -> bool:
    """Whether a file, or a function of it, is in the checkout."""
    file, _, name = test.partition("::")
    path = ROOT / file
    if not name:
        return path.is_file()
    return path.is_file() and name in {
        node.name for node in ast.walk(ast.parse(path.read_text())) if hasattr(node, "name")
    }
