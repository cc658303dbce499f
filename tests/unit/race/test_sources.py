"""Unconfirmed submissions: what is asked, what is sent again, and what is left alone."""

import random
from dataclasses import replace

import pytest

from rv.models.race import StateFiles
from rv.race.directory import read_state_files
from rv.race.observe import RaceSnapshot
from rv.race.sources import (
    Sources,
    confirmation_limit_s,
    forgotten,
    to_resend,
    unconfirmed,
    unconfirmed_for_s,
)
from rv.race.status import resolve
from rv.race.verdict_file import _is_final
from rv.transport.query_retry import RETRY_FOR_S, retry_query
from tests.unit.race.test_status import CLAIM, IDS, RACE, SENT, T0, WON, asked, ended, record, won

SOON, LATER, LATE = T0 + 5, T0 + confirmation_limit_s(RACE) + 1, T0 + 2 * 86400


def test_the_file_of_a_sent_submission_is_read() -> None:
    """The last try counts; what is no number counts as absent."""
    files = {"jobs/1.sent": b"5\n70\n", "jobs/2.sent": b"soon\n", "jobs/x.sent": b"7\n"}
    assert read_state_files(files).sent == ((1, 70),)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (StateFiles(), ()),
        (asked(1, 2), (1, 2)),
        (asked(1, 2, job_ids=IDS[:1]), (2,)),
        (asked(1, 2, refused=((2, "bad"),)), (1,)),
        (asked(1, 2, exhausted=((1, "no node"),), again=(2,)), ()),
        (asked(1, 2, claim=CLAIM), (2,)),
        (asked(0, 9), ()),
    ],
)
def test_unconfirmed_is_what_was_sent_and_not_acknowledged(
    files: StateFiles, expected: object
) -> None:
    """By its id, by Slurm's refusal, or by any sign that its own job left."""
    assert unconfirmed(RACE, files) == expected
    assert unconfirmed(RACE, files, [record("COMPLETED"), record("PENDING", 2)]) == ()


def test_an_unconfirmed_submission_is_sent_again_once_slurm_has_dealt_with_it() -> None:
    """Not sooner, not where a job of that name is known, and not for ever."""
    files = asked(1)
    assert to_resend(RACE, files, [], SOON) == ()
    assert to_resend(RACE, files, [], LATER) == (1,)
    assert to_resend(RACE, files, [record("CANCELLED", source="sacct")], LATER) == ()
    assert to_resend(RACE, files, [], LATE) == ()


def test_how_long_it_is_unconfirmed_is_no_matter_of_another_machines_clock() -> None:
    """One that is ahead of ours says nothing; then it counts from our first look in vain."""
    ahead = asked(1, at=T0 + 3600)
    assert unconfirmed_for_s(ahead, 1, LATER) == 0
    assert unconfirmed_for_s(replace(ahead, absent_since=((1, T0),)), 1, LATER) == LATER - T0
    assert to_resend(RACE, replace(ahead, absent_since=((1, T0),)), [], LATER) == (1,)


ABSENT_JOBS = replace(SENT, absent_since=((1, T0), (2, T0)))


@pytest.mark.parametrize(
    ("files", "records", "expected"),
    [
        (ABSENT_JOBS, [], (1, 2)),
        (SENT, [], ()),
        (ABSENT_JOBS, [record("PENDING")], (2,)),
        (ABSENT_JOBS, [record("CANCELLED", source="sacct")], (2,)),
        (ABSENT_JOBS, [record("PENDING", source="sacct")], (1, 2)),
        (ABSENT_JOBS, [record("REQUEUED", source="sacct")], (2,)),
        (replace(ABSENT_JOBS, exhausted=((1, "x"),), again=(2,)), [], ()),
        (replace(ABSENT_JOBS, stopped=True), [], ()),
        (replace(ABSENT_JOBS, claim=CLAIM), [], ()),
        (replace(ABSENT_JOBS, job_ids=((1, (11, 12, 13, 14, 15)),)), [], ()),
        (replace(ABSENT_JOBS, job_ids=((0, (11,)), (9, (11,)))), [], ()),
        (replace(ABSENT_JOBS, job_ids=((1, (11, 21)),)), [record("COMPLETED")], (1,)),
        (replace(ABSENT_JOBS, job_ids=((1, (11, 21)),)), [record("COMPLETED", job_id=21)], ()),
    ],
)
def test_forgotten_is_what_has_neither_a_place_nor_an_end(
    files: StateFiles, records: list[object], expected: object
) -> None:
    """Accounting answers and knows of no end; what a person ended is not sent again."""
    assert forgotten(RACE, files, records, LATER, accounting_answered=True) == expected  # type: ignore[arg-type]


def test_without_accounting_an_id_that_another_job_bears_is_the_proof() -> None:
    """A controller that lost a job gives its id to the next; without either nothing is known."""
    assert forgotten(RACE, ABSENT_JOBS, [], LATER, accounting_answered=False) == ()
    again = forgotten(
        RACE, ABSENT_JOBS, [], LATER, accounting_answered=False, recycled=frozenset({12, 99})
    )
    assert again == (2,)
    requeued = [record("REQUEUED", source="sacct")]
    recycled = frozenset({11})
    assert forgotten(
        RACE, ABSENT_JOBS, requeued, LATER, accounting_answered=True, recycled=recycled
    ) == (1, 2)
    assert forgotten(RACE, ABSENT_JOBS, [], SOON, accounting_answered=True) == ()


def seen(
    files: StateFiles, *records: object, accounting_answered: bool, now: float = T0 + 60
) -> RaceSnapshot:
    """A look at the race."""
    sources = Sources(records=records, now_s=now, queue_answered=True)  # type: ignore[arg-type]
    return RaceSnapshot(
        status=resolve(RACE, files, sources),
        files=files,
        records=records,  # type: ignore[arg-type]
        reachable=True,
        accounting_answered=accounting_answered,
        now_s=now,
    )


def test_a_verdict_is_kept_when_no_source_may_say_more() -> None:
    """Not an unknown end while accounting is silent or behind; not FAILED without its code."""
    vanished = won(absent_since=((1, T0),))
    assert not _is_final(seen(vanished, accounting_answered=False))
    assert _is_final(seen(vanished, accounting_answered=True))
    assert _is_final(seen(vanished, accounting_answered=False, now=T0 + 90_000)), "a day is enough"
    unclaimed = seen(ABSENT_JOBS, accounting_answered=False, now=T0 + 600)
    assert unclaimed.status.state == "ENDED"
    assert not _is_final(unclaimed)
    assert _is_final(seen(ABSENT_JOBS, accounting_answered=True, now=T0 + 600))
    behind = record("RUNNING", source="sacct")
    assert not _is_final(seen(vanished, behind, accounting_answered=True, now=T0 + 600))
    assert not _is_final(seen(WON, record("FAILED"), accounting_answered=False))
    assert _is_final(
        seen(WON, record("FAILED", exit_code=3, source="scontrol"), accounting_answered=False)
    )
    assert _is_final(seen(won(ended=ended()), record("COMPLETED"), accounting_answered=False))
    assert not _is_final(seen(won(ended=ended()), record("COMPLETING"), accounting_answered=False))


class Clock:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_question_is_repeated_until_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """With waits that nobody else has."""
    clock, answers = Clock(), iter([None, None, "yes", "again"])
    assert retry_query(lambda: next(answers), clock=clock, sleep=clock.sleep) == "yes"
    assert 0 < clock.now <= RETRY_FOR_S
    assert next(answers) == "again"
    waits = set()
    for seed in range(5):
        random.seed(seed)
        clock, answers = Clock(), iter([None, None, None, "yes"])
        retry_query(lambda: next(answers), clock=clock, sleep=clock.sleep)  # noqa: B023
        waits.add(clock.now)
    assert len(waits) == 5


def test_a_question_that_took_its_time_is_asked_once() -> None:
    """The budget is for all tries together."""
    clock, calls = Clock(), []

    def slow() -> None:
        calls.append(clock.now)
        clock.sleep(RETRY_FOR_S + 1)

    assert retry_query(slow, clock=clock, sleep=clock.sleep) is None
    assert calls == [0.0]
