"""What exit code the end of a race comes to, also where the job's script left a skip as it was."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rv.models.race import RaceState, RaceStatus
from rv.transport.local import LocalTransport
from rv.workflow.races import exit_code, worst_exit_code
from tests.unit.race.test_status import RACE

SKIPPED = {"summary": {"status": "SKIP", "skip_exit_code": None}}


@pytest.mark.parametrize(
    ("payload", "result", "code"),
    [
        ("check", SKIPPED, 0),
        ("check", {"summary": {"status": "SKIP", "skip_exit_code": 77}}, 77),
        ("check", {"summary": {"status": "PASS"}}, 77),
        ("check", {"summary": "SKIP"}, 77),
        ("check", ["SKIP"], 77),
        ("check", None, 77),
        ("", SKIPPED, 77),
    ],
)
def test_a_skip_is_done_where_the_payloads_own_result_says_so(
    tmp_path: Path, payload: str, result: object, code: int
) -> None:
    """A user's own 77 stays 77, and so does a skip that was to be kept."""
    (tmp_path / "results").mkdir()
    text = '{"summary": {"status": "SK' if result is None else json.dumps(result)
    (tmp_path / "results" / "check_result.json").write_text(text)
    race = replace(RACE, directory=str(tmp_path), payload=payload)
    status = RaceStatus(race=race, state=RaceState.FAILED, exit_code=77)

    assert exit_code(status, LocalTransport({})) == code


@pytest.mark.parametrize(
    ("ends", "worst"),
    [
        ([], 0),
        ([(RaceState.COMPLETED, 0)], 0),
        ([(RaceState.FAILED, 3), (RaceState.COMPLETED, 0), (RaceState.LOST, None)], 3),
        ([(RaceState.COMPLETED, 0), (RaceState.TIMEOUT, None)], 1),
        ([(RaceState.FAILED, 9), (RaceState.CANCELLED, 143)], 143),
    ],
)
def test_of_several_races_the_highest_code_counts(
    ends: list[tuple[RaceState, int | None]], worst: int
) -> None:
    """It is 0 only where all of them succeeded."""
    statuses = [RaceStatus(race=RACE, state=state, exit_code=code) for state, code in ends]
    assert worst_exit_code(statuses, LocalTransport({})) == worst
