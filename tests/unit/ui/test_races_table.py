"""The table of `rv ps`: what stands in it at which width, and the lines of a watch without one."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from rich.cells import cell_len

from rv.models.race import Chain, Claim, Entry, RaceStatus
from rv.models.request import Command, Request
from rv.race.directory import read_state_files
from rv.race.sources import Sources
from rv.race.status import resolve
from rv.ui import console
from rv.ui.race_views import race_document
from rv.ui.races_table import race_lines, races_table, races_text, watched_races
from tests.unit.race.test_status import RACE, SENT, T0, record
from tests.unit.ui.test_wait_views import pending

HOUR = timedelta(hours=1)
ENTRIES = (
    Entry(number=1, name="rv-abcdefgh-1", strategy="a100/1x4/p", gpu="a100", gpus=4, partition="p",
          walltime=2 * HOUR),
    Entry(number=2, name="rv-abcdefgh-2", strategy="a40/2x2/q|v100/2x2/r", gpu="a40|v100", gpus=4,
          nodes=2, walltime=2 * HOUR),
    Entry(number=3, name="rv-abcdefgh-3", strategy="v100/2x2/r", gpu="v100", gpus=4, nodes=2,
          walltime=HOUR, instead_of=2),
)  # fmt: skip
LINE = "torchrun train.py --config experiments/large/vision.yaml --learning-rate 1e-4 --seed 17"
RACES = replace(RACE, name="sweep", entries=ENTRIES, command="wrapped", submitted_at=T0,
                request=Request(command=Command(line="wrapped", typed=LINE)))  # fmt: skip
CLAIM = "12.0\nsubmission=2\nnodes=v[1-2]\nhost=v1\nstarted={}\nstrategy=v100/2x2/r\n"


def status(*records: object, **files: str) -> RaceStatus:
    """The race as its files and these records have it."""
    state = read_state_files(
        {name.replace("_", "/"): text.encode() for name, text in files.items()}
    )
    state = replace(state, job_ids=SENT.job_ids, sent=SENT.sent)
    return resolve(RACES, state, Sources(records=records, now_s=T0 + 60, queue_answered=True))


WAITS = status(pending(1, 3600), pending(2, 142, "Resources"))
HELD = status(pending(1, None, "QOSMaxGRESPerUser"), pending(2, None, "QOSMaxGRESPerUser"))
RUNS = status(record("RUNNING", 2), claim=CLAIM.format(T0 + 30))
FAILED = status(claim=CLAIM.format(T0), ended=f"12.0\ncode=3\nsignal=\nended={T0 + 250}\n")
EVERY = (WAITS, HELD, RUNS, FAILED)


def cells(one: RaceStatus, width: int = 0, now_s: float = T0 + 60) -> dict[str, str]:
    """A race's row, by column."""
    table = races_table([one], now_s, width)
    return dict(zip(table.head, table.rows[0], strict=True))


def test_gpus_layout_and_command() -> None:
    """All that may win while it waits, parts of a merged job aside; then what it got."""
    row = cells(WAITS)
    assert (row["GPU"], row["LAYOUT"]) == ("4x a100, a40, v100", "1x4, 2x2")
    assert cells(RUNS)["GPU"] == "4x v100"
    assert cells(RUNS)["LAYOUT"] == "2x2"
    assert row["COMMAND"] == f"{LINE[:79]}…"
    shell = replace(RUNS, race=replace(RACES, command="", request=None, is_shell=True))
    assert cells(shell)["COMMAND"] == "(shell)"
    without = replace(RACES, entries=(replace(ENTRIES[0], gpu="cpu", gpus=0),))
    assert cells(replace(WAITS, race=without, jobs=WAITS.jobs[:1])).get("GPU") is None


@pytest.mark.parametrize(
    ("one", "seconds", "time"),
    [
        (WAITS, 60, "in ~1m22s"),
        (WAITS, 142, "in ~57m38s"),
        (WAITS, 3600, "(Resources)"),
        (HELD, 60, "(QOSMaxGRESPerUser)"),
        (RUNS, 60, "59m30s left"),
        (RUNS, 9999, "0s left"),
        (FAILED, 999, "ran 4m10s"),
    ],
)
def test_the_time_is_what_is_left_or_what_it_waits_for(
    one: RaceStatus, seconds: float, time: str
) -> None:
    """Of the walltime of the part of a merged job that won; a plan that has passed is none."""
    assert cells(one, now_s=T0 + seconds)["TIME"] == time


@pytest.mark.parametrize("color", [True, False])
@pytest.mark.parametrize("width", [40, 64, 70, 80, 120, 160])
def test_nothing_wraps(width: int, color: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line each, and below it what there is no column for and the time does not tell."""
    monkeypatch.setenv("NO_COLOR", "" if color else "1")
    (table,) = races_text(EVERY, T0 + 60, width)
    shown = re.sub("\x1b\\[[0-9;]*m", "", console.part_text(table, width))
    lines = shown.split("\n")
    assert max(map(cell_len, lines)) <= width
    notes = [line for line in lines if line.startswith("  ")]
    assert len(lines) == 1 + len(EVERY) + len(notes)
    assert len(notes) == (width < 160)
    assert not notes or "with it you would use more" in notes[0]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (64, "RACE STATE GPU LAYOUT TIME COMMAND"),
        (80, "RACE STATE CODE GPU LAYOUT TIME COMMAND"),
        (120, "RACE NAME STATE CODE GPU LAYOUT TIME JOB NODES AGE COMMAND"),
        (160, "RACE NAME STATE CODE GPU LAYOUT TIME JOB NODES AGE COMMAND WHY"),
    ],
)
def test_columns_use_the_room(width: int, shown: str) -> None:
    """GPUs, time and command come first."""
    assert " ".join(races_table(EVERY, T0 + 60, width).head) == shown


def test_a_watch_shows_what_is_not_over_first_and_how_many_more() -> None:
    headline, table, more = watched_races((FAILED, *EVERY), T0 + 60, 80, 7, "here")
    assert headline == "2 waiting, 1 running · here"
    assert [row[1] for row in table.rows] == ["PENDING", "PENDING", "RUNNING"]  # type: ignore[union-attr]
    assert more == "… 2 more, which rv ps lists"


def test_lines_change_with_the_state_and_not_with_the_time() -> None:
    """What a watch says where there is no terminal."""
    said = race_lines([WAITS])["abcdefgh"]
    assert said.startswith("abcdefgh sweep PENDING: 4x a100 +2, next in line")
    assert race_lines([RUNS])["abcdefgh"].startswith(
        "abcdefgh sweep RUNNING: 4x v100 2x2, on v[1-2] as job 12, torchrun train.py"
    )
    assert ", exit code 3, torchrun" in race_lines([FAILED])["abcdefgh"]


def test_json_has_gpus_command_and_the_end_of_the_walltime() -> None:
    document = race_document(RUNS)
    assert (document["gpus"], document["gpu"], document["layouts"]) == (4, ["v100"], ["2x2"])
    assert document["command"] == LINE
    assert document["ends_by"] is not None
    assert race_document(FAILED)["ends_by"] is None


def test_a_chain_is_one_thing() -> None:
    """Its segment, its time of the whole and its last checkpoint stand below a narrow row."""
    claim = Claim(job_id=12, restart=0, submission=1, nodes="a1", host="a1", started_at=T0 - 100,
                  segment=2, elapsed_s=3600)  # fmt: skip
    chain = replace(RUNS, race=replace(RACES, chain=Chain(total=8 * HOUR)), claim=claim,
                    saved_at=T0 - 5)  # fmt: skip
    table = races_table([chain], T0, 80)
    assert table.below == ["segment 2, 1h1m of 8h, checkpoint 5s ago"]


def test_a_chain_that_moved_counts_in_the_time_of_its_layout() -> None:
    """An hour of eight was an eighth: a quarter of an hour of two."""
    claim = Claim(job_id=12, restart=0, submission=2, nodes="v1", host="v1", started_at=T0 - 60,
                  segment=2, elapsed_s=3600.0, total_s=7200.0, used_s=900.0)  # fmt: skip
    moved = replace(RUNS, race=replace(RACES, chain=Chain(total=8 * HOUR)), claim=claim)
    assert races_table([moved], T0, 80).below == ["segment 2, 16m of 2h"]
    chain = race_document(moved)["chain"]
    assert (chain["elapsed_s"], chain["used_s"], chain["total_s"]) == (3600, 900, 7200.0)
