"""Lists of hosts: expanded as Slurm and ClusterShell expand them, within bounds."""

from itertools import product
from pathlib import Path

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from rv.slurm.hostlist import LIMIT, Expander, expand

DATA = Path(__file__).parents[2] / "data" / "slurm"
PART = st.text("abcxyz-", min_size=1, max_size=4)
SPAN = st.tuples(st.integers(0, 120), st.integers(0, 5), st.integers(1, 4))
LETTERS = st.text("abcxyz", min_size=1, max_size=4)
RANGES = st.lists(SPAN, min_size=1, max_size=3)
PIECES = st.lists(st.tuples(LETTERS, RANGES, LETTERS, RANGES), min_size=1, max_size=4)
Span = tuple[int, int, int]


def numbers(span: Span) -> list[str]:
    low, more, width = span
    return [str(value).zfill(width) for value in range(low, low + more + 1)]


def bracket(spans: list[Span]) -> str:
    """Write ranges as Slurm does: both ends of a range have its width."""
    ends = [(numbers(span)[0], numbers(span)[-1]) for span in spans]
    return "[" + ",".join(low if low == high else f"{low}-{high}" for low, high in ends) + "]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a[01-03,7],b-x1,c[1-2]-ib[0-1]", "a01 a02 a03 a7 b-x1 c1-ib0 c1-ib1 c2-ib0 c2-ib1"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("x[3-1]", ""),
        ("(null)", ""),
        ("None assigned", ""),
        ("a[1-2", "a[1-2"),
        ("a],b", "a] b"),
    ],
)
def test_hostlist(text: str, expected: str) -> None:
    """Ranges, lists, padding and suffixes; broken text stays a name."""
    assert " ".join(expand(text)) == expected


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_hostlist_as_scontrol(version: str) -> None:
    """What `scontrol show hostnames` printed for a list is what rv makes of it."""
    first, *rest = (DATA / version / "scontrol_show_hostnames.txt").read_text().split("\n")
    asked = first.removeprefix("$ scontrol show hostnames ").replace("\\", "")
    names = tuple(line for line in rest if line and not line.startswith(("[", "$")))
    assert expand(asked) == names[: len(expand(asked))] != ()


@pytest.mark.parametrize(
    "text",
    ["a[0-999999999999999]", "a[1-99999][1-99999][1-99999]", ",".join(["a[1-99999]"] * 2000)],
)
def test_hostlist_is_bounded(text: str) -> None:
    """A list that would not fit gives its first names, soon."""
    assert len(expand(text)) == LIMIT


@given(st.lists(st.tuples(PART, SPAN, PART, SPAN), min_size=1, max_size=4))
def test_hostlist_round_trip(
    pieces: list[tuple[str, tuple[int, int, int], str, tuple[int, int, int]]],
) -> None:
    """Names written as ranges come back in order."""

    def names(span: tuple[int, int, int]) -> list[str]:
        low, more, width = span
        return [str(value).zfill(width) for value in range(low, low + more + 1)]

    def bracket(span: tuple[int, int, int]) -> str:
        return f"[{names(span)[0]}-{names(span)[-1]}]"

    text = ",".join(f"{a}{bracket(s)}{b}{bracket(t)}" for a, s, b, t in pieces)
    expected = [f"{a}{x}{b}{y}" for a, s, b, t in pieces for x, y in product(names(s), names(t))]
    assert list(expand(text)) == expected


def test_a_bounded_list_keeps_its_order() -> None:
    """The names kept are the first ones, in Slurm's order."""
    assert expand("a[1-99999]-[1-3]")[:4] == ("a1-1", "a1-2", "a1-3", "a2-1")


@given(PIECES)
def test_a_list_expands_as_clustershell_expands_it(
    pieces: list[tuple[str, list[Span], str, list[Span]]],
) -> None:
    """The same names, whatever the ranges, widths and suffixes."""
    text = ",".join(f"{a}{bracket(s)}{b}{bracket(t)}" for a, s, b, t in pieces)
    assert set(expand(text)) == set(NodeSet(text))


@given(st.lists(st.tuples(LETTERS, SPAN, LETTERS), min_size=1, max_size=30))
def test_what_clustershell_folds_expands_to_the_same_names(
    drawn: list[tuple[str, Span, str]],
) -> None:
    """Names as any site could have them come back from the list that stands for them."""
    names = {f"{a}{number}{b}" for a, span, b in drawn for number in numbers(span)}
    folded = str(NodeSet.fromlist(sorted(names)))
    assert set(expand(folded)) == names
    assert len(expand(folded)) == len(names)
    assert Expander().expand(folded) == expand(folded)


def test_equal_lists_share_their_names_and_still_count() -> None:
    """A damaged answer that repeats one long list comes to a million names, and no more."""
    lists = Expander()
    text = "a[1-99999]"
    assert lists.expand(text) is lists.expand(text)
    assert sum(len(lists.expand(text)) for _ in range(20)) + 2 * 99_999 == 1_000_000
    assert lists.expand("b1") == ()


def test_lists_beyond_the_most_names_are_not_even_written_out() -> None:
    """A damaged answer of many long lists costs no more than the million names it may have."""
    lists = Expander()
    assert sum(len(lists.expand(f"a{number}[1-99999]")) for number in range(20)) == 1_000_000
    assert sum(map(len, lists._known.values())) == 1_000_000


@given(LETTERS, SPAN)
def test_one_range_is_what_the_same_list_in_parts_is(prefix: str, span: Span) -> None:
    """A list of one range has a way of its own; beside another name it takes the general one."""
    text = f"{prefix}{bracket([span])}"
    assert expand(f"{text},z")[:-1] == expand(text)
    assert expand(text, 2) == expand(text)[:2]
