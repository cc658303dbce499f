"""The state of a chain between its segments: state files and Slurm's records in, one state out."""

from dataclasses import replace
from datetime import timedelta

import pytest

from rv.models.job import JobState
from rv.models.race import NEXT, Chain, Claim, Ended, RaceState, Segment, StateFiles
from rv.models.request import Request
from rv.race.directory import read_state_files
from rv.race.sources import Sources, without_segment
from rv.race.status import is_known, resolve, unaccounted
from tests.unit.race.test_status import RACE, T0, record

S = RaceState
CHAINED = replace(RACE, chain=Chain(total=timedelta(hours=12)))
NAME = "rv-abcdefgh-next"
FIRST = Claim(job_id=11, restart=0, submission=1, nodes="a1", host="a1", started_at=T0 + 5)
SECOND = replace(FIRST, job_id=13, segment=2, job_name=NAME, started_at=T0 + 99, elapsed_s=90.0)
AGAIN = Ended(owner="11.0", code=0, signal="", ended_at=T0 + 95, next="again")
CRASHED = replace(AGAIN, code=3, next="crashed")
IDS = ((0, (13,)), (1, (11,)))


def chained(claim=FIRST, *ends, **changes):
    """State files of a chain whose segments have these claims and ends."""
    claims = (FIRST,) if claim is FIRST else (FIRST, claim)
    found = [
        Segment(number=number, claim=one, ended=ends[number - 1] if number <= len(ends) else None)
        for number, one in enumerate(claims, 1)
    ]
    return StateFiles(**{"job_ids": IDS, "claim": claim, "segments": tuple(found), **changes})


SENT = chained(FIRST, AGAIN)
SENT = replace(SENT, segments=(replace(SENT.segments[0], next_job_ids=(13,)),))
ENDED_LATELY = chained(FIRST, AGAIN, unended_since=T0 + 441)


BOTH_ENDED = chained(SECOND, AGAIN, replace(AGAIN, owner="13.0"), job_ids=((0, (12, 13)),))


def state(files, *records):
    """Decide."""
    return resolve(CHAINED, files, Sources(records=records, now_s=T0 + 500, queue_answered=True))


def after(word, **changes):
    """A record of the next segment's job."""
    return record(word, **{"name": NAME, "job_id": 13, **changes})


@pytest.mark.parametrize(
    ("files", "records", "expected", "why"),
    [
        (chained(), [record("RUNNING")], S.RUNNING, ""),
        (chained(), [record("RUNNING"), after("PENDING", reason="Dependency")], S.RUNNING, ""),
        (
            chained(FIRST, AGAIN),
            [record("COMPLETED"), after("PENDING", reason="Resources")],
            S.PENDING,
            "segment 2 waits: Resources",
        ),
        (chained(FIRST, AGAIN), [record("COMPLETING")], S.PENDING, "segment 2 is starting"),
        (chained(FIRST, AGAIN), [record("COMPLETED"), after("RUNNING")], S.PENDING, "segment 2"),
        # Killed outright, with the next one already waiting for its end.
        (chained(), [record("TIMEOUT"), after("PENDING")], S.PENDING, "segment 2 waits"),
        # A node failed: Slurm has put the same job back.
        (chained(), [record("PENDING", restarts=1)], S.PENDING, "segment 1 waits"),
        (chained(FIRST, AGAIN), [record("PENDING", restarts=1)], S.PENDING, "segment 2 waits"),
        # It runs again and checks its node: the claim is still the old one's.
        *(
            (chained(), [record(word, restarts=1)], S.PENDING, "segment 1 is starting")
            for word in ("CONFIGURING", "RUNNING", "COMPLETING")
        ),
        (chained(FIRST, AGAIN), [record("RUNNING", restarts=1)], S.PENDING, "segment 2 is"),
        # Killed without a word; the one that it had sent checks its node.
        *(
            (chained(), [record(word), after("RUNNING")], S.PENDING, "segment 2 is starting")
            for word in ("NODE_FAIL", "TIMEOUT", "FAILED")
        ),
        (chained(), [record("NODE_FAIL")], S.LOST, "NODE_FAIL"),
        (chained(FIRST, AGAIN), [record("PREEMPTED")], S.PENDING, "preempted"),
        # It saved its work, and its job had no time left to send the next one, or to stop itself.
        (chained(FIRST, AGAIN), [record("TIMEOUT")], S.PENDING, "at its time limit"),
        (chained(), [record("TIMEOUT")], S.TIMEOUT, "Slurm says TIMEOUT"),
        # A TERM that was no cancel of the job's: its shell left the next one to Slurm.
        (chained(FIRST, AGAIN), [record("FAILED")], S.PENDING, "the next is to be sent"),
        (ENDED_LATELY, [record("COMPLETED")], S.UNKNOWN, "no next one shows yet"),
        (
            replace(ENDED_LATELY, unended_since=T0 + 440),
            [record("COMPLETED")],
            S.PENDING,
            "the next is to be sent",
        ),
        (SENT, [record("FAILED"), after("CANCELLED")], S.CANCELLED, "ended before it began"),
        # What Slurm says is known: it is never taken for unknown.
        *(
            (chained(FIRST, CRASHED), [record(word)], S.FAILED, f"Slurm says {word}")
            for word in ("FAILED", "LAUNCH_FAILED", "RECONFIG_FAIL")
        ),
        (SENT, [record("TIMEOUT"), after("CANCELLED")], S.CANCELLED, "ended before it began"),
        (
            chained(FIRST, replace(AGAIN, signal="TERM"), job_ids=((1, (11,)),)),
            [record("CANCELLED")],
            S.CANCELLED,
            "Slurm says CANCELLED",
        ),
        (
            chained(FIRST, AGAIN),
            [record("COMPLETED"), after("CANCELLED")],
            S.CANCELLED,
            "job 13 of segment 2 ended before it began",
        ),
        # What a client sent after a preemption was cancelled by hand: it is not sent again.
        (
            SENT,
            [record("PREEMPTED"), after("CANCELLED")],
            S.CANCELLED,
            "job 13 of segment 2 ended before it began",
        ),
        (SENT, [record("PREEMPTED"), after("CANCELLED", job_id=14)], S.PENDING, "preempted"),
        (SENT, [record("PREEMPTED"), after("PENDING")], S.PENDING, "segment 2 waits"),
        # An earlier segment's job is not the next one's.
        (
            chained(SECOND, AGAIN, replace(AGAIN, owner="13.0")),
            [after("COMPLETED"), after("COMPLETED", job_id=11), after("PENDING", job_id=14)],
            S.PENDING,
            "segment 3 waits",
        ),
        # Nor is one that was sent before the winner, or beside it, and ran no segment.
        (BOTH_ENDED, [after("TIMEOUT"), after("COMPLETED", job_id=12)], S.PENDING, "time limit"),
        (BOTH_ENDED, [after("COMPLETED"), after("COMPLETED", job_id=12)], S.UNKNOWN, "no next one"),
        (
            replace(
                BOTH_ENDED,
                job_ids=((0, (13, 14)),),
                segments=(
                    replace(BOTH_ENDED.segments[0], next_job_ids=(14,)),
                    BOTH_ENDED.segments[1],
                ),
            ),
            [after("TIMEOUT"), after("COMPLETED", job_id=14)],
            S.PENDING,
            "time limit",
        ),
        (
            replace(BOTH_ENDED, job_ids=((0, (13, 14)),)),
            [after("COMPLETED"), after("CANCELLED", job_id=14)],
            S.CANCELLED,
            "job 14 of segment 3 ended before it began",
        ),
        (chained(SECOND, AGAIN), [after("RUNNING")], S.RUNNING, ""),
        (chained(FIRST, AGAIN, again=(0,)), [], S.PENDING, "segment 2 is starting"),
    ],
)
def test_a_chain_between_its_segments(files, records, expected, why):
    """Nothing is over before the chain says so, or Slurm that nothing comes any more."""
    said = state(files, *records)
    assert (said.state, why in said.why) == (expected, True), said.why


def test_a_chain_ends_with_its_exit_file():
    """The segments before it have ended, with `again`, and are no end."""
    end = Ended(owner="13.0", code=0, signal="", ended_at=T0 + 200, next="done")
    said = state(chained(SECOND, AGAIN, end, ended=end))
    assert (said.state, said.exit_code) == (S.COMPLETED, 0)
    assert said.started_at == T0 + 5
    assert said.elapsed_s == pytest.approx(90 + 101)


def test_time_run_out_is_a_timeout_with_the_chains_own_sentence():
    """Whatever the code."""
    why = "the whole time of 12:00:00 is used, in 2 segments"
    end = Ended(owner="13.0", code=0, signal="TIME", ended_at=T0 + 200, next="crashed", why=why)
    said = state(chained(SECOND, AGAIN, end, ended=end), after("COMPLETED"))
    assert (said.state, said.why) == (S.TIMEOUT, why)


def test_the_next_job_is_listed_and_asked_for():
    """It is one of the race's jobs, under a name and a number of its own."""
    said = state(chained(FIRST, AGAIN), record("COMPLETED"), after("PENDING"))
    assert [(job.number, job.job_id, job.state) for job in said.jobs if job.number == 0] == [
        (0, 13, JobState.PENDING)
    ]
    assert unaccounted(CHAINED, chained(FIRST, AGAIN), ()) == (0, 1)
    assert unaccounted(CHAINED, chained(SECOND, AGAIN), (after("RUNNING"),)) == ()


def test_the_state_files_of_a_chain_are_read():
    """From the files that its jobs write; what is none of them is left alone."""
    claim = (
        "13.0\nsubmission=1\nnodes=a1\nstarted=5\nsegment=2\nelapsed=90\nname=rv-x-next\nwhole\n"
    )
    end = "13.0\ncode=0\nsignal=\nnext=again\nwhy=\nended=200.5\n"
    files = read_state_files(
        {
            "claim": claim.encode(),
            "segments/2": claim.encode(),
            "segments/2.ended": end.encode(),
            "segments/2.next": b"14\n",
            "segments/x": b"13.0\n",
            "segments/3": b"\xff\x1b[31m",
            "jobs/0.id": b"13\n14\n",
        }
    )
    (segment,) = files.segments
    assert (segment.number, segment.claim.segment, segment.claim.elapsed_s) == (2, 2, 90.0)
    assert segment.ended is not None
    assert (segment.ended.next, segment.ended.ended_at) == ("again", 200.5)
    assert files.job_ids == ((0, (13, 14)),)


def test_a_job_that_was_sent_again_need_not_show_at_once():
    """The one before it left a node that failed the check: it completed, and nothing is lost."""
    files = replace(SENT, segments=(replace(SENT.segments[0], next_job_ids=(20,)),))
    known = [record("COMPLETED"), after("COMPLETED")]

    assert state(files, *known).state is S.UNKNOWN
    assert state(files, *known, after("PENDING", job_id=20)).state is S.PENDING


SWITCHES = replace(CHAINED, request=Request(checkpoint=True, switch=True))
SWITCHING = replace(
    SENT,
    job_ids=((0, (13, 21, 22, 13)), (1, (11,))),
    segments=(replace(SENT.segments[0], next_job_ids=(13, 21, 22)),),
)
"""A chain whose next segment has this layout's job, and two of faster ones."""


@pytest.mark.parametrize(
    ("records", "expected", "why"),
    [
        ([after("PENDING"), after("PENDING", job_id=21)], S.PENDING, "segment 2 waits"),
        ([after("PENDING"), after("RUNNING", job_id=22)], S.PENDING, "segment 2 is starting"),
        ([after("CANCELLED"), after("PENDING", job_id=21)], S.PENDING, "segment 2 waits"),
        ([after("PENDING"), after("CANCELLED", job_id=21)], S.PENDING, "segment 2 waits"),
        ([after("CANCELLED"), after("CANCELLED", job_id=21)], S.CANCELLED, "ended before it began"),
    ],
)
def test_of_several_jobs_for_the_next_segment_the_foremost_counts(records, expected, why):
    """One that begins before one that waits, and that before one that ended."""
    found = resolve(
        SWITCHES,
        SWITCHING,
        Sources(records=[record("COMPLETED"), *records], now_s=T0 + 500, queue_answered=True),
    )
    assert (found.state, why in found.why) == (expected, True), found.why


def test_the_jobs_that_lost_a_segment_say_nothing_of_the_next():
    """A faster one runs it; the others were cancelled, or saw that and ended."""
    winner = replace(SECOND, job_id=21)
    files = chained(winner, AGAIN, job_ids=SWITCHING.job_ids)
    files = replace(files, segments=(SWITCHING.segments[0], files.segments[1]))
    lost = [after("CANCELLED"), after("COMPLETED", job_id=22)]
    assert state(files, record("COMPLETED"), after("RUNNING", job_id=21), *lost).state is S.RUNNING
    assert without_segment(SWITCHES, files) == {13, 22}
    assert without_segment(CHAINED, files) == set()
    again = replace(files.segments[1], next_job_ids=(13, 22))
    known = replace(files, segments=(files.segments[0], again))
    assert without_segment(SWITCHES, known) == set(), "sent for the segment after it, too"
    ended = replace(AGAIN, owner=winner.owner)
    over = replace(files, segments=(files.segments[0], replace(files.segments[1], ended=ended)))
    for others in (lost, [after("PENDING"), after("PENDING", job_id=22)]):
        records = [after("TIMEOUT", job_id=21), *others]
        found = resolve(
            SWITCHES, over, Sources(records=records, now_s=T0 + 500, queue_answered=True)
        )
        assert (found.state, "time limit" in found.why) == (S.PENDING, True), found.why


def test_a_chain_that_goes_back_is_told_by_the_layout_that_it_goes_back_to():
    """The command failed on another, whose claim is the latest."""
    read = read_state_files(
        {
            "claim": b"12.0\nsubmission=1\nsegment=2\nstrategy=h100/1x1/p\n",
            "segments/2": b"12.0\nsubmission=1\nsegment=2\nstrategy=h100/1x1/p\n",
            "segments/2.ended": b"12.0\ncode=3\nsignal=\nnext=again\nback=2\nended=9.0\n",
            "segments/2.next": b"13\n",
            "jobs/0.id": b"12\n13\n",
        }
    )
    assert (read.next_submission, read.next_job_ids) == (2, (13,))
    records = [record("COMPLETED", job_id=12), after("PENDING", reason="Resources")]
    (job,) = [job for job in state(read, *records).jobs if job.number == NEXT]
    assert job.strategy == CHAINED.entry(2).strategy


THIRD = replace(SECOND, segment=3)
ON_THIRD = chained(THIRD, AGAIN, job_ids=((0, (12, 13)), (1, (11,))))


def test_the_loss_of_a_later_segments_job_is_noticed():
    """The job of the segment before bore the same name; its end is not the winner's."""
    gone = [after("COMPLETED", job_id=12, source="sacct"), after("RUNNING", source="sacct")]

    assert unaccounted(CHAINED, ON_THIRD, gone[:1]) == (NEXT,)
    assert not is_known(CHAINED, ON_THIRD, NEXT, gone)
    assert is_known(CHAINED, ON_THIRD, NEXT, [gone[0], after("RUNNING")])
    assert is_known(CHAINED, ON_THIRD, NEXT, [gone[0], after("TIMEOUT", source="sacct")])
    assert state(ON_THIRD, *gone).state is S.RUNNING
    assert state(replace(ON_THIRD, winner_absent_since=T0), *gone).state is S.ENDED


def test_the_very_job_that_was_sent_next_is_asked_for():
    """One before it of the same name has ended, and says nothing of it."""
    files = replace(SENT, job_ids=((0, (12, 13)), (1, (11,))))
    known = [record("COMPLETED"), after("COMPLETED", job_id=12)]

    assert unaccounted(CHAINED, files, known) == (NEXT,)
    assert not is_known(CHAINED, files, NEXT, known)
    assert is_known(CHAINED, files, NEXT, [*known, after("CANCELLED")])
    third = [*ON_THIRD.segments[:1], Segment(number=3, claim=THIRD, next_job_ids=(14,))]
    on_third = replace(ON_THIRD, segments=tuple(third))
    assert unaccounted(CHAINED, on_third, [after("RUNNING")]) == (NEXT,)
    assert unaccounted(CHAINED, on_third, [after("RUNNING"), after("PENDING", job_id=14)]) == ()
    assert is_known(CHAINED, on_third, NEXT, [after("RUNNING")]), "the winner is not lost"


def test_the_absence_of_the_next_job_is_not_the_winners():
    """Where Slurm falls silent, the segment that runs has not vanished."""
    absent = replace(SENT, absent_since=((NEXT, T0),))
    silent = Sources(records=(), now_s=T0 + 500)

    assert resolve(CHAINED, absent, silent).state is S.UNKNOWN
    assert resolve(CHAINED, replace(absent, winner_absent_since=T0), silent).state is S.ENDED
