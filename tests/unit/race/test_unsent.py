"""A race of which nothing was sent: when a client gives it up, whatever the clocks of others say."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rv.models.job import JobRecord
from rv.models.race import Race, RaceState
from rv.race.observe import RaceSnapshot, observe
from rv.race.recover import recover
from rv.transport import ScriptResult
from rv.transport.local import LocalTransport
from tests.unit.race.test_status import RACE, record

NOW_S = 1_700_000_000.0
TRANSPORT = LocalTransport(dict(os.environ))


@pytest.fixture(name="race")
def staged(tmp_path: Path) -> Race:
    """A race that a client stages now, by a clock that is 400 s behind this one's."""
    (tmp_path / "race.json").write_text("{}", encoding="ascii")
    (tmp_path / "jobs").mkdir()
    return replace(RACE, directory=str(tmp_path), submitted_at=NOW_S - 400)


def look(race: Race, *queue: JobRecord, now_s: float = NOW_S) -> RaceSnapshot:
    """What any rv command does."""
    (snapshot,) = observe([race], TRANSPORT, queue, now_s)
    recover(snapshot, TRANSPORT)
    return snapshot


def age(race: Race, seconds: float) -> None:
    """Make the note of the first look so much older, by the disk's clock."""
    path = Path(race.directory) / "unsent"
    at = path.stat().st_mtime - seconds
    os.utime(path, (at, at))


def test_a_race_that_is_being_sent_is_not_stopped(race: Race) -> None:
    """Five minutes are those since the first look, and by one clock alone: the disk's."""
    assert look(race).status.state is RaceState.STAGED
    age(race, 290)
    assert look(race, now_s=NOW_S + 3600).status.state is RaceState.STAGED
    assert not (Path(race.directory) / "stop").exists()
    age(race, 11)
    assert look(race).status.state is RaceState.CANCELLED
    assert (Path(race.directory) / "stop").exists()
    assert not [*Path(race.directory).glob(".unsent*")]


def test_what_was_sent_or_is_not_known_begins_no_time(race: Race) -> None:
    """Nor does a silent Slurm."""
    (silent,) = observe([race], TRANSPORT, None, NOW_S)
    assert silent.status.why == "nothing is known to be submitted yet"
    (Path(race.directory) / "jobs" / "1.sent").write_text(f"{NOW_S:.0f}\n", encoding="ascii")
    look(race)
    look(race, record("PENDING"))
    assert not (Path(race.directory) / "unsent").exists()


def test_where_nothing_can_be_written_it_is_said_and_a_day_is_waited(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that cannot be noted is no first one."""
    monkeypatch.setattr(
        LocalTransport, "run", lambda *_, **__: ScriptResult(returncode=1, stdout="", stderr="")
    )
    snapshot = look(race, now_s=NOW_S + 80_000)
    assert snapshot.status.state is RaceState.STAGED
    assert snapshot.status.why == (
        "nothing is known to be submitted yet; its directory cannot be written from here, and it"
        " counts as never submitted a day after it was staged"
    )
    assert look(race, now_s=NOW_S + 90_000).status.state is RaceState.CANCELLED


def test_a_file_of_ids_without_one_says_nothing(race: Race) -> None:
    """A full disk left it empty: nothing is known to be sent."""
    (Path(race.directory) / "jobs" / "1.id").touch()
    assert look(race).status.why == "nothing is known to be submitted yet"
    age(race, 301)
    assert look(race).status.state is RaceState.CANCELLED
