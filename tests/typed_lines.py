"""The command lines of README and docs/: what stands there, and what no test types as it stands.

A block of commands is fenced and says `sh`, or `console` where it shows output too: there commands
begin with `$ `. README's table for who comes from sbatch has commands as well.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).parents[1]
PAGES = {path.name: path for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
LAPTOP = "from-a-laptop.md"
"""The page of which tests/ssh/test_pages.py types the lines; tests/slurm/test_pages.py the others'."""
LIST = ROOT / "tests" / "data" / "not_typed.yaml"
FENCE = re.compile(r"^```([^`\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CELL = re.compile(r"^\| [^|]*\| `(rv [^`]*)`", re.MULTILINE)


class Elsewhere(NamedTuple):
    """Why a line is not typed as it stands, and the test or script that runs the same thing."""

    why: str
    test: str


def not_typed(page: str) -> dict[str, Elsewhere]:
    """The lines of a page that are run elsewhere."""
    return _listed().get(page, {})


@cache
def _listed() -> dict[str, dict[str, Elsewhere]]:
    pages = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return {
        page: {line: Elsewhere(*cells) for line, cells in lines.items()}
        for page, lines in pages.items()
    }


def to_type(page: str) -> list[str]:
    """All other lines of a page, in their order, each once."""
    return [line for line in dict.fromkeys(lines(page)) if line not in not_typed(page)]


def lines(page: str) -> Iterator[str]:
    """Every command of a page, without the remark behind it."""
    text = PAGES[page].read_text(encoding="utf-8")
    for language, block in FENCE.findall(text):
        yield from commands(language, block)
    if page == "README.md":
        yield from CELL.findall(text)


def commands(language: str, block: str) -> Iterator[str]:
    """The commands of one block."""
    start = {"sh": "", "console": "$ "}.get(language)
    if start is None:
        return
    for line in block.splitlines():
        command = re.split(r"(?:^|\s+)#\s", line.removeprefix(start))[0]
        if line.startswith(start) and command:
            yield command
