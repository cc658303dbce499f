"""What is kept of a race that has started, and what becomes of a damaged or long history."""

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from rv.models.performance import PastRace, Source
from rv.models.plain import plain
from rv.models.race import Claim, RaceState, RaceStatus, Segment
from rv.models.request import Work
from rv.slurm.cache import SnapshotCache
from rv.workflow.past import keep_past, load_past, past_race
from tests.unit.race.test_status import RACE

ENTRY = replace(
    RACE.entries[0],
    source=Source.PLANNED,
    predicted_s=60.0,
    predicted_run_s=900.0,
    gpu="h200",
    gpus=4,
    partition="gpu-h200",
)
ASKED = replace(
    RACE,
    name="mine",
    submitted_at=1000.0,
    entries=(ENTRY, *RACE.entries[1:]),
    work=Work(gpu_hours=2.0, reference="a100-80"),
)
CLAIM = Claim(job_id=11, restart=0, submission=1, nodes="h1", host="h1", started_at=1090.0)
RUNS = RaceStatus(race=ASKED, state=RaceState.RUNNING, claim=CLAIM, started_at=1090.0)
DONE = replace(RUNS, state=RaceState.COMPLETED, exit_code=0, ended_at=1690.0)


@pytest.fixture
def cache(tmp_path: Path) -> SnapshotCache:
    return SnapshotCache(directory=tmp_path / "rv", key="here", clock=lambda: 2000.0)


def test_a_start_is_kept_with_what_was_expected_and_the_run_once_it_is_over(
    cache: SnapshotCache,
) -> None:
    keep_past(cache, [RUNS])
    (kept,) = load_past(cache)
    assert (kept.source, kept.predicted_s, kept.waited_s) == (Source.PLANNED, 60.0, 90.0)
    assert (kept.gpu, kept.gpus, kept.partition, kept.run_s) == ("h200", 4, "gpu-h200", None)
    keep_past(cache, [DONE])
    (kept,) = load_past(cache)
    assert (kept.name, kept.run_s, kept.predicted_run_s) == ("mine", 600.0, 900.0)
    assert (kept.work, kept.reference) == (2.0, "a100-80")


@pytest.mark.parametrize(("first", "run_s"), [("v100/1x1/v", None), ("h200/1x4/h", 600.0)])
def test_the_time_of_a_chain_that_changed_its_layout_corrects_none(
    first: str, run_s: float | None
) -> None:
    claim = replace(CLAIM, segment=2, strategy="h200/1x4/h")
    before = Segment(number=1, claim=replace(CLAIM, strategy=first))
    there = past_race(replace(DONE, claim=claim, segments=(before, Segment(number=2, claim=claim))))
    assert there
    assert there.run_s == run_s


def test_the_wait_of_a_chain_that_changed_its_layout_was_that_of_the_first() -> None:
    moved = replace(CLAIM, submission=2, segment=2, strategy=ASKED.entries[1].strategy)
    segments = (Segment(number=1, claim=CLAIM), Segment(number=2, claim=moved))
    kept = past_race(replace(DONE, claim=moved, segments=segments))
    assert kept
    assert (kept.source, kept.predicted_s, kept.gpu) == (Source.PLANNED, 60.0, "h200")


def test_only_the_time_of_a_run_that_ended_well_counts() -> None:
    failed = past_race(replace(DONE, state=RaceState.FAILED, exit_code=1))
    assert failed
    assert failed.run_s is None


def test_a_race_that_has_not_started_or_had_no_estimate_is_not_kept(cache: SnapshotCache) -> None:
    waits = replace(RUNS, claim=None, state=RaceState.PENDING)
    old = replace(RUNS, race=replace(ASKED, entries=(replace(ENTRY, source=None),)))
    keep_past(cache, [waits, old])
    assert load_past(cache) == ()


def test_what_goes_on_from_a_checkpoint_had_only_the_rest_to_do() -> None:
    """How long that took says nothing of the whole work, which is what is recorded of it."""
    rest = past_race(replace(DONE, race=replace(ASKED, resumes="k7m2p9xq")))
    assert rest
    assert (rest.work, rest.run_s) == (2.0, None)


def test_of_a_chain_the_first_segment_is_the_start() -> None:
    later = replace(CLAIM, segment=2, started_at=9999.0)
    status = replace(
        RUNS, claim=later, segments=(Segment(number=1, claim=CLAIM), Segment(number=2, claim=later))
    )
    kept = past_race(status)
    assert kept
    assert kept.waited_s == 90.0
    assert past_race(replace(status, segments=())) is None


def test_the_latest_five_hundred_are_kept(cache: SnapshotCache) -> None:
    races = [
        replace(RUNS, race=replace(ASKED, race_id=f"r{number}", submitted_at=float(number)))
        for number in range(510)
    ]
    keep_past(cache, races)
    kept = load_past(cache)
    assert len(kept) == 500
    assert {"r9", "r10"} & {race.race_id for race in kept} == {"r10"}


@pytest.mark.parametrize("text", ["", "{", "{}", "[1, null, {}]", '[{"race_id": 3}]'])
def test_a_damaged_history_is_an_empty_one_and_is_written_anew(
    cache: SnapshotCache, text: str
) -> None:
    cache.store("past", text, "")
    assert load_past(cache) == ()
    keep_past(cache, [RUNS])
    assert len(load_past(cache)) == 1


def test_one_bad_record_takes_no_other_along(cache: SnapshotCache) -> None:
    good = {"race_id": "a", "submitted_at": 1.0, "source": "idle", "waited_s": 1.0, "gpus": 1}
    cache.store("past", json.dumps([good, {**good, "gpus": "many"}]), "")
    assert load_past(cache) == (
        PastRace(race_id="a", submitted_at=1.0, source=Source.IDLE, waited_s=1.0, gpus=1),
    )


@pytest.mark.parametrize(
    "damage",
    [
        {"nodes": 0},
        {"gpus": -1},
        {"waited_s": -1.0},
        {"waited_s": 1e15},
        {"run_s": -5.0},
        {"run_s": float("nan")},
        {"predicted_run_s": float("inf")},
        {"work": -1.0},
        {"source": "from a later rv"},
    ],
)
def test_a_record_of_what_cannot_have_happened_is_left_out(
    cache: SnapshotCache, damage: dict[str, object]
) -> None:
    keep_past(cache, [DONE])
    (kept,) = load_past(cache)
    cache.store("past", json.dumps([{**plain(kept), **damage}, plain(kept)]), "")
    assert load_past(cache) == (kept,)


def test_a_clock_that_is_centuries_off_is_not_kept(cache: SnapshotCache) -> None:
    """One such record of a node would be taken for a wait, by every plan of a year."""
    keep_past(cache, [replace(RUNS, claim=replace(CLAIM, started_at=1e14))])
    assert load_past(cache) == ()


def test_a_pipe_in_place_of_the_history_is_an_empty_one(cache: SnapshotCache) -> None:
    """To read it would be to wait for whoever writes: a plan needs no history."""
    cache.store("past", "[]", "")
    (file,) = cache.directory.iterdir()
    file.unlink()
    os.mkfifo(file)
    found: list[object] = []
    reads = threading.Thread(target=lambda: found.append(load_past(cache)), daemon=True)
    reads.start()
    reads.join(5)
    if reads.is_alive():
        os.close(os.open(file, os.O_WRONLY | os.O_NONBLOCK))
    assert found == [()]
    keep_past(cache, [RUNS])
    assert len(load_past(cache)) == 1


def test_a_head_that_is_nested_without_end_is_none(cache: SnapshotCache) -> None:
    cache.store("past", "[]", "")
    (file,) = cache.directory.iterdir()
    file.write_text("[" * 100_000 + "\n[]", encoding="utf-8")
    assert load_past(cache) == ()
