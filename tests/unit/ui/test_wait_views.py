"""The table of a race that waits: what stands in it, in which order, on which terminals."""

import os
import re
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest

from rv.models.race import Entry, RaceStatus, StateFiles
from rv.race.sources import Sources
from rv.race.status import resolve
from rv.ui import console, redraw
from rv.ui.redraw import Layout, Redrawn
from rv.ui.tables import Table, cropped
from rv.ui.wait_views import wait_headline, wait_keys, wait_table
from tests.unit.race.test_status import RACE, SENT, T0, record

SUBMITTED = datetime.fromisoformat("2030-01-01T12:00:00")  # on the clock of Slurm
WIDE = 120
ENTRIES = (
    Entry(number=1, name="rv-abcdefgh-1", strategy="a100/1x4/p", gpu="a100", gpus=4, cost=3.25,
          cost_unit="EUR"),
    Entry(number=2, name="rv-abcdefgh-2", strategy="a40/2x2/q|a6000/2x2/q", gpu="a40|a6000",
          gpus=4, nodes=2),
    Entry(number=3, name="rv-abcdefgh-3", strategy="a40/2x2/q", gpu="a40", gpus=4, instead_of=2),
)  # fmt: skip


def waiting(*records: object) -> RaceStatus:
    race = replace(RACE, entries=ENTRIES)
    return resolve(race, SENT, Sources(records=records, now_s=T0, queue_answered=True))


def pending(number: int, planned_s: float | None, reason: str = "Priority") -> object:
    start = None if planned_s is None else SUBMITTED + timedelta(seconds=planned_s)
    return record("PENDING", number, submitted=SUBMITTED, planned_start=start, reason=reason)


def test_the_headline_counts_down_to_the_start_that_slurm_plans() -> None:
    status = waiting(pending(1, 300), pending(2, 142, "Resources"))
    assert wait_headline(status, T0 + 42, "Ctrl-C cancels", WIDE) == (
        "00:42  2 jobs waiting · best a40, a6000 2x2 ~1m40s · Ctrl-C cancels"
    )
    status = waiting(pending(1, None), record("FAILED", 2))
    assert wait_headline(status, T0 + 3661, "", WIDE) == "1:01:01  1 job waiting"


def test_a_plan_whose_moment_has_passed_is_none() -> None:
    """Slurm makes another, sooner or later; nothing starts in -3 seconds."""
    status = waiting(pending(1, 40), pending(2, 60))
    assert "a40, a6000 2x2 ~18s" in wait_headline(status, T0 + 42, "", WIDE)
    assert "best" not in wait_headline(status, T0 + 90, "", WIDE)


def test_a_job_that_checks_its_node_is_named_before_all_plans() -> None:
    status = waiting(record("RUNNING", 2, submitted=SUBMITTED), pending(1, 10))
    assert (
        wait_headline(status, T0, "", WIDE)
        == "00:00  1 job waiting · a40, a6000 2x2 checks its node"
    )
    rows = wait_table(status, T0, 9).rows
    assert [row[1] for row in rows] == ["a40, a6000", "a100"]
    assert rows[0][-1] == "it has started, and checks its node"


def test_the_table_lists_what_starts_first_on_top() -> None:
    """A part of a merged job that was not sent is not listed, and costs have their unit."""
    table = wait_table(waiting(pending(1, 300), pending(2, 142, "Resources")), T0 + 42, 9)
    assert table.head[5] == "COST (EUR)"
    assert table.rows == [
        ("12", "a40, a6000", "2x2", "PENDING", "~1m40s", "-",
         "next in line for nodes that are busy (Resources)"),
        ("11", "a100", "1x4", "PENDING", "~4m18s", "3.2",
         "others are ahead in the queue (Priority)"),
    ]  # fmt: skip


def test_a_low_terminal_shows_the_first_and_how_many_more() -> None:
    rows = wait_table(waiting(pending(1, 300), pending(2, 142)), T0, 1).rows
    assert [row[0] for row in rows] == ["12", "+1"]


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_nothing_is_wider_than_the_terminal(columns: int) -> None:
    line = cropped("a" * 90 + "\x1b[31m", columns)
    assert len(line) <= columns
    assert "\x1b" not in line


def test_lines_are_drawn_again_in_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same lines are not written twice; what a narrower terminal folded is counted."""
    written: list[str] = []
    size = SimpleNamespace(columns=10, lines=9)
    monkeypatch.setattr(console, "draw", lambda text, fd: written.append(text))
    monkeypatch.setattr(redraw, "terminal_size", lambda fd: size)
    lines = Redrawn()
    lines.show(["0123456789", "\x1b[32mab\x1b[0m"])
    lines.show(["0123456789", "\x1b[32mab\x1b[0m"])
    lines.show(["x"])
    size.columns = 4
    lines.show(["01234567", "b"])
    size.columns = 3
    lines.clear()
    lines.clear()
    assert [re.findall(r"\x1b\[(\d+)F\x1b\[J", text) for text in written] == [
        [], ["2"], ["1"], ["4"],
    ]  # fmt: skip


def test_what_did_not_change_is_not_laid_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The headline counts every second above a table that stays; a resize changes all."""
    laid_out: list[int] = []
    real = console.table_on_terminal

    def counted(table: Table, width: int) -> str:
        laid_out.append(width)
        return real(table, width)

    monkeypatch.setattr(console, "table_on_terminal", counted)
    layout, wide, narrow = Layout(), os.terminal_size((80, 9)), os.terminal_size((30, 9))
    status = waiting(pending(1, 400_000), pending(2, None))
    for second in range(5):
        lines = layout.lines(
            [wait_headline(status, T0 + second, "", WIDE), wait_table(status, T0, 9)], wide
        )
        assert lines[0].startswith(f"00:0{second}")
    assert laid_out == [80]
    layout.lines([wait_table(status, T0, 9)], narrow)
    layout.lines([wait_table(status, T0 + 7200, 9)], narrow)
    assert laid_out == [80, 30, 30]


def test_no_more_is_laid_out_than_stands_on_the_terminal() -> None:
    """The last line says how much that is; long lines are cut."""
    rows = [(f"{number}", "x" * 50) for number in range(9)]
    lines = Layout().lines(["h" * 50, Table(head=("A", "B"), rows=rows)], os.terminal_size((20, 6)))
    assert len(lines) == 5
    assert lines[0] == "h" * 19 + "…"
    assert lines[-1].startswith("… ")
    assert lines[-1].endswith("more lines")


def test_a_job_that_slurm_was_not_asked_for_yet_is_submitted() -> None:
    """The first seconds of every race: its state is not in doubt, only not heard yet."""
    status = waiting()
    assert wait_headline(status, T0, "", WIDE) == "00:00  2 jobs waiting"
    assert [row[3:] for row in wait_table(status, T0, 9).rows] == [
        ("-", "-", "3.2", "submitted"),
        ("-", "-", "-", "submitted"),
    ]


def test_a_headline_counts_only_jobs_that_wait() -> None:
    """One job that has started and checks its node is not "0 jobs waiting"."""
    race = replace(RACE, entries=ENTRIES[:1])
    sources = Sources(records=(record("RUNNING", 1),), now_s=T0, queue_answered=True)
    status = resolve(race, StateFiles(job_ids=((1, (11,)),)), sources)
    assert wait_headline(status, T0 + 3, "d detaches", WIDE) == (
        "00:03  a100 1x4 checks its node · d detaches"
    )


def test_what_the_keys_do_is_said_once() -> None:
    assert wait_keys("cancels", leave="d") == "Ctrl-C cancels, d detaches"
    assert wait_keys("detaches", leave="d") == "Ctrl-C or d detaches"
    assert wait_keys("cancels", leave="") == "Ctrl-C cancels"


def test_what_the_keys_do_stands_on_a_narrow_terminal_too() -> None:
    """The first row says what is left out of the headline."""
    status = waiting(pending(1, 300), pending(2, 142))
    line = wait_headline(status, T0 + 42, "Ctrl-C cancels, d detaches", 60)
    assert line == "00:42  2 jobs waiting · Ctrl-C cancels, d detaches"


def test_a_long_unit_folds_no_head() -> None:
    """Slurm's billing hours are the unit of most sites."""
    entries = [replace(entry, cost_unit="billing hours") for entry in ENTRIES]
    status = replace(waiting(), race=replace(RACE, entries=tuple(entries)))
    assert wait_table(status, T0, 9).head[5] == "COST"
