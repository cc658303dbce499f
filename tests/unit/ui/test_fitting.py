"""Which columns a width has room for, and what is cut: no table that was fitted is ever folded."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rv.ui import console
from rv.ui.fitting import Column, fitted

NAMES = Column(title="ID", cells=["abcdefgh", "b"], least=4)
MODELS = Column(title="GPU", cells=["a100, a40, v100", "-"], short=["a100 +2", "-"], rank=1)
TEXT = Column(title="TEXT", cells=["word " * 12, "-"], least=8, wanted=30)
EXTRA = Column(title="MORE", cells=["0123456789", "x"], rank=5)
ALL = (NAMES, MODELS, TEXT, EXTRA)


def heads(width: int) -> list[str]:
    return list(fitted(ALL, width).head)


def test_what_a_width_shows() -> None:
    """Short forms first, then columns go by rank; extras stay only beside all that is wanted."""
    assert fitted(ALL, 120).rows[0][1] == "a100, a40, v100"
    assert fitted(ALL, 90).rows[0][1] == "a100 +2"
    assert heads(57) == ["ID", "GPU", "TEXT", "MORE"]
    assert heads(56) == ["ID", "GPU", "TEXT"]
    assert heads(23) == ["ID", "GPU", "TEXT"]
    assert heads(20) == ["ID", "TEXT"]
    assert fitted(ALL, 56).rows[0][2].endswith("…")


def test_without_a_terminal_all_is_there() -> None:
    """But for a column that says nothing and is not always shown."""
    empty = Column(title="NONE", cells=["-", "-"], rank=3)
    table = fitted((*ALL, empty), 0)
    assert list(table.head) == ["ID", "GPU", "TEXT", "MORE"]
    assert table.rows[0][2] == "word " * 12


@given(
    texts=st.lists(st.text(max_size=60), min_size=1, max_size=3),
    width=st.integers(40, 200),
    ranks=st.lists(st.integers(0, 9), min_size=2, max_size=2),
)
def test_nothing_is_wider_than_the_terminal_or_folded(
    texts: list[str], width: int, ranks: list[int]
) -> None:
    """Whatever the cells hold: wide letters, escapes, lines."""
    columns = [
        Column(title="A", cells=texts, least=6),
        *(Column(title="B", cells=texts, rank=rank, least=rank) for rank in ranks if rank),
        Column(title="C", cells=texts, least=8, wanted=20),
    ]
    table = fitted(columns, width)
    shown = re.sub("\x1b\\[[0-9;]*m", "", console.table_on_terminal(table, width))
    lines = shown.split("\n")
    assert len(lines) == 1 + len(texts)
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("width", [24, 80])
def test_texts_below_are_one_line_each(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each under its row, none where there is none."""
    monkeypatch.setenv("NO_COLOR", "1")
    table = replace(fitted((NAMES,), width), below=["why \x1b[2J", ""])
    assert console.table_on_terminal(table, width).split("\n") == [
        "ID", "abcdefgh", "  why", "b",
    ]  # fmt: skip
