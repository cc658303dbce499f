"""Nothing that a cluster says controls the terminal that it is shown in."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from rv.errors import ErrorKind, RvError
from rv.models.job import JobRecord, JobState
from rv.models.plan import Exclusion, Plan, PoolView, Submission
from rv.models.race import Entry, RaceStatus
from rv.race.directory import read_state_files
from rv.race.status import Sources, resolve
from rv.race.submit import SubmitOutcome, SubmitResult
from rv.slurm.printable import printable
from rv.ui import console
from rv.ui.plan_views import plan_text
from rv.ui.progress import Progress
from rv.ui.race_views import race_document
from rv.ui.races_table import race_lines, races_text
from rv.ui.status_views import overview_lines, overview_text
from rv.ui.tables import Table
from tests.unit.race.test_directory import race as plain_race
from tests.unit.render.test_golden import strategy

CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
EVIL = st.sampled_from(
    [
        "\x1b[2J\x1b[1;1H",
        "\x1b]0;title\x07",
        "\x1b]52;c;cm0gLXJm\x1b\\",
        "\x9b31m",
        "a\rb",
        "\b\b\b",
        "\u202egpj.exe",
        "\u2066x\u2069",
        "\x7f",
        "\x85\u2028",
        "\x1bP1$r\x1b\\",
        "\x1b",
        "a\nerror[internal]: forged",
        "plain",
    ]
) | st.text(max_size=30)


@given(EVIL)
def test_what_is_printable_controls_nothing(text: str) -> None:
    """Neither C0, C1 nor DEL, nor what turns the direction of writing; and it is one line."""
    shown = printable(text)
    assert not CONTROL.search(shown)
    assert "\n" not in shown
    assert printable(shown) == shown


def hostile_race(text: str) -> RaceStatus:
    """A race in which everything that a cluster could say is this text."""
    files = {
        "claim": f"77.0\nsubmission=1\nnodes={text}\nhost={text}\nstarted=1\nstrategy={text}\n",
        "ended": f"77.0\ncode=3\nsignal={text}\nended=2\nnext={text}\nwhy={text}\n",
        "lost": text,
        "declined/a": text,
        f"warnings/{text.replace('/', '')}": text,
        "jobs/2.refused": text,
        "exhausted/3": text,
    }
    state = read_state_files({name: data.encode() for name, data in files.items()})
    entry = Entry(number=1, name="rv-a-1", strategy=text, gpu=text, partition=text, cost=1.0,
                  cost_unit=text, walltime=timedelta(1))  # fmt: skip
    race = replace(plain_race(), race_id=text, name=text, entries=(entry,), command=text)
    record = JobRecord(
        job_id=77, name="rv-a-1", state=JobState.FAILED, source="squeue", reason=text, nodes=text
    )
    return resolve(race, state, Sources(records=(record,), now_s=9.0))


@given(text=EVIL)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_of_a_cluster_controls_the_terminal(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """Tables, endings, explanations, notices and errors."""
    status = hostile_race(text)
    for said in (status.why, *status.warnings):
        assert not CONTROL.search(said)
        assert "\n" not in said
    plan = strategy(id=text, gpu=text, partition=text)
    pool = PoolView(gpu=text, partition=text, free=1, total=1, largest=1, lost=1, waiting=1,
                    max_time=None, limits=(text,), closed="")  # fmt: skip
    console.answer(*races_text([status], 9.0, 0))
    console.answer(*overview_text([pool], 0))
    console.answer(*races_text([status], 9.0, 80), *overview_text([pool], 80))
    console.answer(*race_lines([status]).values(), *overview_lines([pool]).values())
    console.answer(*plan_text(
        Plan(strategies=(plan,), excluded=(Exclusion(what=text, reason=text),), notes=(text,),
             submissions=(Submission(number=1, strategies=(plan,)),), waves=((1,),), cost_unit=text),
        {1: text}, timedelta(5),
    ))  # fmt: skip
    follower = Progress(json_only=False)
    follower.submitted([SubmitResult(number=1, outcome=SubmitOutcome.REFUSED, text=text)])
    follower.status(status)
    follower.finish(status)
    console.error(RvError(ErrorKind.REFUSED, text, hint=text))
    console.error_json(RvError(ErrorKind.REFUSED, text, hint=text))
    console.emit_json(race_document(status))
    shown = capsys.readouterr()
    assert not CONTROL.search(shown.out)
    assert not CONTROL.search(shown.err)
    assert len([line for line in shown.err.split("\n") if line.startswith("error[")]) == 1
    head, *rows = shown.out.split("\n")
    assert head.split()[0] == "RACE"
    assert status.state in rows[0]


def test_where_there_is_no_race_that_is_said() -> None:
    """And no table without rows."""
    assert races_text([], 9.0, 80) == ["no races"]


@given(text=EVIL, width=st.integers(40, 200))
def test_a_table_on_a_terminal_is_safe_too(text: str, width: int) -> None:
    """What rich lays out holds the styles of rv's own alone, and no markup of a cluster's."""
    table = Table(head=("NAME", "WHY"), rows=[("[red]a[/red]", text), ("PASS", "b")])
    shown = re.sub("\x1b\\[[0-9;]*m", "", console.table_on_terminal(table, width))
    assert not CONTROL.search(shown)
    assert "[red]a[/red]" in shown
    assert max(map(cell_len, shown.split("\n"))) <= width


@pytest.mark.parametrize("width", [70, 160])
def test_a_table_fits_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long cells are folded, ids stay whole; with NO_COLOR nothing is styled."""
    monkeypatch.setenv("NO_COLOR", "1")
    row = ("abcdefgh", "gpu-a100/1x8/partition-of-a-long-name", "word " * 30)
    shown = console.table_on_terminal(Table(head=("RACE", "STRATEGY", "WHY"), rows=[row]), width)
    assert "\x1b" not in shown
    lines = shown.split("\n")
    assert max(map(len, lines)) <= width
    assert lines[1].split()[0] == "abcdefgh"
    assert shown.split().count("word") == 30


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict is coloured, unless NO_COLOR is set; plain text never is."""
    table = Table(head=("NODE", "VERDICT"), rows=[("a1", "FAIL")])
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[31mFAIL" in console.table_on_terminal(table, 80)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in console.table_on_terminal(table, 80)
    assert str(table) == "NODE  VERDICT\na1    FAIL"


def test_free_text_stands_below_its_row_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a narrow terminal the names stay whole, and the sentence has the whole width."""
    monkeypatch.setenv("NO_COLOR", "1")
    head = ("RACE", "STATE", "STRATEGY", "NODES", "AGE", "CODE", "WHY")
    row = ("abcdefgh", "PENDING", "a100/1x8/partition", "gpu-a100-[01-02]", "3m10s", "-")
    table = Table(head=head, rows=[(*row, "others are ahead in the queue"), (*row, "-")])
    lines = console.table_on_terminal(table, 60).split("\n")
    assert max(map(len, lines)) <= 60
    assert "WHY" not in lines[0]
    assert lines.count("  others are ahead in the queue") == 1
    assert [line.split()[0] for line in lines].count("abcdefgh") == 2
