"""What any rv command decides about races of before: how old they are, and what is sent again."""

import os
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from rv.models.job import JobState
from rv.models.race import Ended, RaceState, RaceStatus, Segment, StateFiles
from rv.models.request import Request
from rv.race.observe import RaceSnapshot
from rv.race.recover import _is_sender, _is_waiting, _needs_next_segment, _read_again
from rv.race.sources import Sources
from rv.race.status import resolve
from rv.transport.local import LocalTransport
from rv.workflow.races import _last_activity_s
from rv.workflow.start import _held_back
from tests.unit.race.test_chain import AGAIN, CHAINED, CRASHED, FIRST, NAME, SECOND, chained
from tests.unit.race.test_status import RACE, T0, record

DAY = 86400.0


def told(**changes: object) -> RaceStatus:
    """A race that was lost."""
    status = RaceStatus(race=RACE, state=RaceState.LOST, jobs=(), claim=FIRST)
    return replace(status, **changes)


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        ({}, T0 + 5),
        ({"ended_at": T0 + 9}, T0 + 9),
        # A chain of a month and a half, whose last node failed just now: its checkpoints are kept.
        ({"segments": (Segment(number=2, claim=replace(SECOND, started_at=T0 + 45 * DAY)),)},
         T0 + 45 * DAY),
        ({"segments": (Segment(number=1, claim=FIRST,
                               ended=Ended(owner="11.0", code=0, signal="", ended_at=T0 + DAY)),)},
         T0 + DAY),
        ({"saved_at": T0 + 44 * DAY}, T0 + 44 * DAY),
    ],
)  # fmt: skip
def test_the_last_sign_of_a_race(changes: dict[str, object], least: float) -> None:
    """Whatever it left last; a race that is young is not forgotten."""
    sign = _last_activity_s(told(race=CHAINED, started_at=T0 + 5, **changes))
    assert least <= sign <= least + DAY


def request(**sbatch: str) -> Request:
    """One for a GPU."""
    return Request(
        gpus=1, walltime=timedelta(hours=1), widen_after=timedelta(seconds=5),
        sbatch=tuple(sbatch.items()),
    )  # fmt: skip


def test_a_later_wave_does_not_begin_before_the_user_said() -> None:
    """`--begin` on sbatch's command line would beat the script's own."""
    assert _held_back(request(), []) == ("--begin=now+5",)
    assert _held_back(request(begin="20:00"), []) == ()


def test_the_file_names_the_nodes_and_the_job_that_left_them() -> None:
    """Older ones name no job; what is no list of nodes is no option."""
    assert _read_again(b"a1,a[2-3]\n17\n") == (["--exclude=a1,a[2-3]"], "17")
    assert _read_again(b"a1\n") == (["--exclude=a1"], "")
    assert _read_again(b"\n17\n") == ([], "17")
    assert _read_again(b"a1 --wrap=x\n17\n") == ([], "17")
    assert _read_again(b"") == ([], "")


def test_the_job_that_left_a_node_is_not_waiting_whatever_an_old_answer_says() -> None:
    """Only another one of its name is."""
    row = record("PENDING")
    status = RaceStatus(race=RACE, state=RaceState.PENDING, jobs=())
    seen = RaceSnapshot(status=status, files=StateFiles(), records=(row,), reachable=True)
    assert row.state is JobState.PENDING
    assert _is_waiting(seen, 1, but="")
    assert _is_waiting(seen, 1, but="12345")
    assert not _is_waiting(seen, 1, but=str(row.job_id))
    assert not _is_waiting(seen, 2, but="")


@pytest.mark.parametrize(
    ("end", "word", "is_needed"),
    [
        (AGAIN, "FAILED", True),
        (AGAIN, "COMPLETED", True),
        (AGAIN, "TIMEOUT", True),
        (AGAIN, "CANCELLED", False),
        (CRASHED, "FAILED", False),
        (CRASHED, "COMPLETED", False),
    ],
)
def test_a_client_sends_the_segment_that_its_job_did_not(
    end: Ended, word: str, *, is_needed: bool
) -> None:
    """A TERM that was no cancel ends the job before it can; Slurm does not put it back."""
    files = chained(FIRST, end, unended_since=T0)
    records, now_s = (record(word),), T0 + 500
    sources = Sources(records=records, now_s=now_s, queue_answered=True)
    status = resolve(CHAINED, files, sources)
    seen = RaceSnapshot(status=status, files=files, records=records, reachable=True)
    assert _needs_next_segment(seen) == is_needed


@pytest.mark.parametrize(
    ("again", "asked", "word", "is_needed"),
    [
        ((1,), Request(switch=True), "COMPLETED", True),
        ((1,), Request(switch=True), "RUNNING", False),
        ((2,), Request(switch=True), "COMPLETED", False),
        ((1,), Request(), "COMPLETED", False),
    ],
    ids=["it waits for the faster alone", "not over yet", "the faster left", "one layout"],
)
def test_a_chain_does_not_wait_for_a_faster_layout_alone(
    again: tuple[int, ...], asked: Request, word: str, *, is_needed: bool
) -> None:
    """The job that was to go on as before left a node without scontrol: a client sends another."""
    race = replace(CHAINED, request=asked)
    files = chained(FIRST, AGAIN, again=again, job_ids=((0, (13, 21, 13)), (1, (11,))))
    files = replace(files, segments=(replace(files.segments[0], next_job_ids=(13, 21)),))
    records = (record(word), record("COMPLETED", name=NAME, job_id=13))
    records = (*records, record("PENDING", name=NAME, job_id=21))
    sources = Sources(records=records, now_s=T0 + 500, queue_answered=True)
    status = resolve(race, files, sources)
    seen = RaceSnapshot(status=status, files=files, records=records, reachable=True)
    assert _needs_next_segment(seen) == is_needed


def test_one_client_sends_the_next_segment(tmp_path: Path) -> None:
    """Until it has had time for it: a killed one is followed by another, and by one alone."""
    race, transport = replace(CHAINED, directory=str(tmp_path)), LocalTransport(dict(os.environ))
    (tmp_path / "segments").mkdir()
    assert [_is_sender(race, FIRST, transport) for _ in range(3)] == [True, False, False]
    assert _is_sender(race, SECOND, transport)
    long_ago = time.time() - 3600
    os.utime(tmp_path / "segments" / "1.sender.1", (long_ago, long_ago))
    assert [_is_sender(race, FIRST, transport) for _ in range(2)] == [True, False]
    names = sorted(path.name for path in (tmp_path / "segments").iterdir())
    assert names == ["1.sender.1", "1.sender.2", "2.sender.1"]
