"""What is noted in the directory of a chain, and whose it is: its jobs share a name."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rv.models.race import Race, RaceState
from rv.race import observe as observing
from rv.race.directory import record_text
from rv.race.observe import RaceSnapshot, observe
from rv.race.recover import recover
from rv.transport.local import LocalTransport
from tests.unit.race.test_chain import CHAINED, after, record
from tests.unit.race.test_status import T0

TRANSPORT = LocalTransport(dict(os.environ))


@pytest.fixture(name="race")
def chain(tmp_path: Path) -> Race:
    """The directory of a chain whose first job was accepted."""
    for name in ("jobs", "segments", "absent", "checkpoints"):
        (tmp_path / name).mkdir()
    made = replace(CHAINED, directory=str(tmp_path))
    (tmp_path / "race.json").write_text(record_text(made))
    (tmp_path / "jobs" / "1.id").write_text("11\n")
    return made


def begin(race: Race, job_id: int, segment: int) -> None:
    """Claim a segment, as its job does."""
    name = f"name={CHAINED.next_name}\n" if segment > 1 else ""
    text = (
        f"{job_id}.0\nsubmission=1\nnodes=a1\nhost=a1\nstarted={T0 + segment}\n"
        f"segment={segment}\n{name}whole\n"
    )
    for path in (f"segments/{segment}", "claim"):
        (Path(race.directory) / path).write_text(text)


def end(race: Race, job_id: int, segment: int, next_id: int = 0, ended_at: float = T0 + 95) -> None:
    """Write that another segment is to come, and the job that was sent for it."""
    text = f"{job_id}.0\ncode=143\nsignal=\nnext=again\nwhy=\nended={ended_at}\n"
    segments = Path(race.directory) / "segments"
    (segments / f"{segment}.ended").write_text(text)
    if next_id:
        (segments / f"{segment}.next").write_text(f"{next_id}\n")
        with (Path(race.directory) / "jobs" / "0.id").open("a") as ids:
            ids.write(f"{next_id}\n")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[observing._Answers]:
    """What Slurm answers about single jobs; the last one stays."""
    given = [observing._Answers()]
    monkeypatch.setattr(observing, "_ask_about", lambda *_: given[-1])
    return given


def look(race: Race, now_s: float, *queue: object, silent: bool = False) -> RaceSnapshot:
    """Look as any command does."""
    (snapshot,) = observe([race], TRANSPORT, None if silent else queue, now_s)  # type: ignore[arg-type]
    return snapshot


def test_a_segment_that_runs_has_not_vanished_with_the_job_before(
    race: Race, answers: list[observing._Answers]
) -> None:
    """The controller forgot that one while this one waited, and is silent once as it runs."""
    begin(race, 11, 1)
    end(race, 11, 1, 12)
    begin(race, 12, 2)
    end(race, 12, 2, 13)
    waiting = after("PENDING", job_id=13)
    answers.append(observing._Answers(records=(waiting,)))
    for now_s in (T0 + 400, T0 + 4000):
        assert look(race, now_s, waiting).status.state is RaceState.PENDING
    begin(race, 13, 3)
    assert look(race, T0 + 4020, silent=True).status.state is RaceState.UNKNOWN
    answers.append(observing._Answers())
    assert look(race, T0 + 4040).status.state is RaceState.UNKNOWN
    assert look(race, T0 + 4050 + race.min_job_age.total_seconds()).status.state is RaceState.ENDED


def test_a_job_that_came_back_was_not_absent(race: Race, answers: list[observing._Answers]) -> None:
    """Its time begins anew."""
    begin(race, 11, 1)
    assert look(race, T0 + 100).files.winner_absent_since == T0 + 100
    assert look(race, T0 + 200).files.winner_absent_since == T0 + 100
    assert look(race, T0 + 300, record("RUNNING")).files.winner_absent_since is None
    assert look(race, T0 + 400).files.winner_absent_since == T0 + 400


def test_the_end_of_a_failed_segment_that_shows_late(
    race: Race, answers: list[observing._Answers]
) -> None:
    """It failed by a TERM that was no cancel; a network's disk shows what it wrote a minute late."""
    begin(race, 11, 1)
    for now_s in (T0 + 100, T0 + 150):
        snapshot = look(race, now_s, record("FAILED", exit_code=143))
        recover(snapshot, TRANSPORT)
        assert snapshot.status.state is RaceState.UNKNOWN
    end(race, 11, 1)
    assert look(race, T0 + 155, record("FAILED", exit_code=143)).status.state is RaceState.PENDING


def test_a_segment_that_left_no_end_has_failed(
    race: Race, answers: list[observing._Answers]
) -> None:
    """After that minute."""
    begin(race, 11, 1)
    for now_s, state in ((T0 + 100, RaceState.UNKNOWN), (T0 + 170, RaceState.FAILED)):
        assert look(race, now_s, record("FAILED", exit_code=143)).status.state is state


def test_a_chain_that_failed_days_ago_stays_so(
    race: Race, answers: list[observing._Answers]
) -> None:
    """What it worked on may be in use since."""
    begin(race, 11, 1)
    end(race, 11, 1)
    failed = record("FAILED", exit_code=143)
    assert look(race, T0 + 86_000, failed).status.state is RaceState.PENDING
    assert look(race, T0 + 90_000, failed).status.state is RaceState.FAILED
