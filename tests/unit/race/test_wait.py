"""Waiting for several races: one query for all of them, and each end told once."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from rv.models.race import Race, RaceState, RaceStatus
from rv.race import pace
from rv.race.directory import record_text
from rv.race.wait import Wait
from rv.race.watch import WaitTimedOut
from tests.unit.race.test_status import RACE, record
from tests.unit.race.test_watch import BEGIN, CLAIM, Queue, Refusing

ENDED = f"11.0\ncode={{}}\nsignal=\nended={BEGIN + 5}\n"


class Told:
    """What a wait told."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, RaceState]] = []
        self.sentences: list[str] = []

    def ended(self, status: RaceStatus) -> None:
        self.ends.append((status.race.race_id, status.state))

    def say(self, text: str) -> None:
        self.sentences.append(text)


@pytest.fixture
def races(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Race]]:
    """Make races whose directories hold these files."""
    monkeypatch.setattr(pace, "random", Random(0))

    def make(*each_files: Mapping[str, str]) -> list[Race]:
        made = []
        for number, files in enumerate(each_files):
            name = f"{RACE.race_id}{number}"
            entries = tuple(
                replace(entry, name=f"rv-{name}-{entry.number}") for entry in RACE.entries
            )
            race = replace(RACE, race_id=name, directory=str(tmp_path / name), entries=entries)
            for path, text in {
                "race.json": record_text(race),
                "jobs/1.id": "11\n",
                **files,
            }.items():
                file = Path(race.directory, path)
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                file.write_text(text)
            made.append(race)
        return made

    return make


def waiting(races: list[Race], queue: Queue, timeout_s: float = 600) -> tuple[Told, Wait]:
    told = Told()
    timeout = timedelta(seconds=timeout_s)
    return told, Wait(
        races=races, queue=queue, sink=told, timeout=timeout, clock=queue.clock, sleep=queue.sleep
    )


def test_many_races_cost_slurm_no_more_than_one(races: Callable[..., list[Race]]) -> None:
    """Ten that wait for ten minutes, against one that does."""
    asked = []
    for count in (1, 10):
        made = races(*[{}] * count)
        rows = tuple(
            replace(record("PENDING"), job_id=11, name=f"rv-{race.race_id}-1") for race in made
        )
        queue = Queue(Refusing({}), rows)
        told, wait = waiting(made, queue)
        with pytest.raises(WaitTimedOut):
            wait.run()
        assert told.ends == []
        assert set(wait.open) == {race.race_id for race in made}
        asked.append(len(queue.asked))
    assert 5 < asked[1] < 30
    assert abs(asked[0] - asked[1]) <= 2


def test_each_end_is_told_once_whatever_the_others_do(races: Callable[..., list[Race]]) -> None:
    """By its exit file, which shows without asking Slurm; the one that still runs is waited for."""
    made = races(
        {"claim": CLAIM, "ended": ENDED.format(0)},
        {"claim": CLAIM, "ended": ENDED.format(3)},
        {"claim": CLAIM},
    )
    running = replace(record("RUNNING"), name=f"rv-{made[2].race_id}-1")
    queue = Queue(Refusing({}), (running,), silent_until_s=BEGIN + 30)
    told, wait = waiting(made, queue)
    late = Path(made[2].directory, "ended")

    def sleep(seconds: float) -> None:
        queue.sleep(seconds)
        if queue.now_s > BEGIN + 120:
            late.write_text(ENDED.format(0))
            queue.rows = ()

    wait.sleep = sleep
    wait.run()
    ends = [RaceState.COMPLETED, RaceState.FAILED, RaceState.COMPLETED]
    assert told.ends == [(race.race_id, end) for race, end in zip(made, ends, strict=True)]
    silent, answers = told.sentences
    assert silent.startswith("Slurm has not answered since")
    assert answers == "Slurm answers again"
    assert queue.now_s < BEGIN + 130
