"""The rows of docs/acceptance.md: what a capability is, the commands that show it, and its test."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "acceptance.md"


def rows() -> dict[str, list[str]]:
    """Each row's cells by its name, in order."""
    found: dict[str, list[str]] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if re.fullmatch(r"[A-E]-\d\d", cells[0].strip()):
            assert cells[0] not in found, f"{cells[0]} is there twice"
            found[cells[0]] = cells[1:]
    return found


def commands(row: str) -> list[str]:
    """A row's commands, in their order."""
    return re.findall(r"`([^`]+)`", rows()[row][1])
