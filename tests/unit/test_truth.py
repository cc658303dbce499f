"""What is true of a race, as a table: marks and Slurm's records in, one state out."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rv.models.job import JobRecord, JobState, job_state
from rv.models.race import Claim, Ended, Entry, Marks, Race, RaceState
from rv.race.truth import STAGED_GRACE_S, Evidence, resolve, unaccounted

T0 = 1_000_000.0
S = RaceState
J = JobState
RACE = Race(
    race_id="abcdefgh",
    directory="/r/abcdefgh",
    cluster="slurm:",
    name="",
    command="true",
    payload="",
    is_shell=False,
    submitted_at=T0,
    min_job_age=timedelta(seconds=2),
    message_timeout=timedelta(seconds=10),
    entries=tuple(Entry(number=n, name=f"rv-abcdefgh-{n}", strategy=f"s{n}") for n in (1, 2)),
    waves=((1,), (2,)),
)
CLAIM = Claim(job_id=11, restart=0, submission=1, nodes="a1", host="a1", started_at=T0 + 5)
IDS = ((1, (11,)), (2, (12,)))
SENT = Marks(job_ids=IDS)
WON = Marks(job_ids=IDS, claim=CLAIM)


def record(state: str, number: int = 1, **changes: Any) -> JobRecord:
    fields = {
        "job_id": 10 + number,
        "name": f"rv-abcdefgh-{number}",
        "state": job_state(state),
        "source": "squeue",
    }
    return JobRecord(**{**fields, **changes})


def ended(code: int = 0, signal: str = "", owner: str = "11.0") -> Ended:
    return Ended(owner=owner, code=code, signal=signal, ended_at=T0 + 9)


def won(**changes: Any) -> Marks:
    return replace(WON, **changes)


def sent(**changes: Any) -> Marks:
    return replace(SENT, **changes)


LATE = T0 + STAGED_GRACE_S + 1
TABLE: list[tuple[str, Marks, list[JobRecord], float, RaceState, int | None]] = [
    # Before anybody won.
    ("staged", Marks(), [], T0 + 1, S.STAGED, None),
    ("never submitted", Marks(), [], LATE, S.CANCELLED, None),
    ("its id was lost, its name is there", Marks(), [record("PENDING")], LATE, S.PENDING, None),
    ("stopped before sbatch", Marks(stopped=True), [], T0 + 1, S.CANCELLED, None),
    ("all refused", Marks(refused=((1, "bad"), (2, "bad"))), [], LATE, S.REFUSED, None),
    ("one refused, one waits", Marks(refused=((1, "bad"),), job_ids=((2, (12,)),)),
     [record("PENDING", 2)], T0 + 1, S.PENDING, None),
    ("pending", SENT, [record("PENDING"), record("PENDING", 2)], T0 + 1, S.PENDING, None),
    ("running, not claimed yet", SENT, [record("RUNNING")], T0 + 1, S.PENDING, None),
    ("configuring", SENT, [record("CONFIGURING")], T0 + 1, S.PENDING, None),
    ("absent, once", SENT, [], T0 + 9, S.UNKNOWN, None),
    ("absent since a moment", sent(absent_since=((1, T0 + 8), (2, T0 + 8))), [], T0 + 9, S.UNKNOWN, None),
    ("absent beyond MinJobAge", sent(absent_since=((1, T0 + 1), (2, T0 + 1))), [], T0 + 9, S.ENDED, None),
    ("one of two absent for long", sent(absent_since=((1, T0 + 1),)), [], T0 + 9, S.UNKNOWN, None),
    ("an unknown word", SENT, [record("HIBERNATING")], T0 + 9, S.UNKNOWN, None),
    ("both cancelled outside", SENT, [record("CANCELLED by 0"), record("CANCELLED", 2)], T0 + 9, S.CANCELLED, None),
    ("ended without a start", SENT, [record("COMPLETED"), record("COMPLETED", 2)], T0 + 9, S.FAILED, None),
    ("one ended, one waits", SENT, [record("FAILED"), record("PENDING", 2)], T0 + 9, S.PENDING, None),
    ("declined everywhere", sent(exhausted=((1, "x"), (2, "x")), declined=(("a1", "no GPU"),)), [], T0 + 9, S.DECLINED, None),
    ("declined, to be sent again", sent(again=(1,)), [record("COMPLETED")], T0 + 9, S.PENDING, None),
    ("requeued for another node", SENT, [record("REQUEUED", restarts=1)], T0 + 9, S.PENDING, None),
    ("stopped, still ending", sent(stopped=True), [record("COMPLETING")], T0 + 9, S.PENDING, None),
    ("stopped", sent(stopped=True), [record("CANCELLED")], T0 + 9, S.CANCELLED, None),
    # While it runs.
    ("running", WON, [record("RUNNING"), record("CANCELLED", 2)], T0 + 9, S.RUNNING, None),
    ("a queue row older than the claim", WON, [record("PENDING")], T0 + 9, S.RUNNING, None),
    ("suspended", WON, [record("SUSPENDED")], T0 + 9, S.RUNNING, None),
    ("completing, no exit file yet", WON, [record("COMPLETING")], T0 + 9, S.RUNNING, None),
    # Its own word.
    ("exit file", won(ended=ended()), [], T0 + 9, S.COMPLETED, 0),
    ("exit file and a stale row", won(ended=ended()), [record("RUNNING")], T0 + 9, S.COMPLETED, 0),
    ("exit file and a failed epilogue", won(ended=ended()), [record("FAILED", exit_code=1)], T0 + 9, S.COMPLETED, 0),
    ("its own code", won(ended=ended(3)), [], T0 + 9, S.FAILED, 3),
    ("its own code, in Slurm's record too", won(ended=ended(3)), [record("FAILED", exit_code=3)], T0 + 9, S.FAILED, 3),
    ("a signal of its own", won(ended=ended(139)), [], T0 + 9, S.FAILED, 139),
    ("ended by Slurm, which has forgotten why", won(ended=ended(143, "TERM")), [], T0 + 9, S.CANCELLED, 143),
    ("time limit", won(ended=ended(143, "TERM")), [record("TIMEOUT")], T0 + 9, S.TIMEOUT, 143),
    ("scancel", won(ended=ended(143, "TERM")), [record("CANCELLED by 1000")], T0 + 9, S.CANCELLED, 143),
    ("preempted", won(ended=ended(143, "TERM")), [record("PREEMPTED")], T0 + 9, S.PREEMPTED, 143),
    ("out of memory", won(ended=ended(137)), [record("OUT_OF_MEMORY", exit_code=0, signal=125)], T0 + 9, S.OUT_OF_MEMORY, 137),
    ("another instance's word", won(ended=ended(0, owner="11.1")), [record("RUNNING")], T0 + 9, S.RUNNING, None),
    ("another job's word", won(ended=ended(0, owner="12.0")), [], T0 + 9, S.UNKNOWN, None),
    # Slurm's word, where it left none of its own.
    ("Slurm says completed", WON, [record("COMPLETED", exit_code=0, signal=0)], T0 + 9, S.COMPLETED, 0),
    ("Slurm says failed", WON, [record("FAILED", exit_code=7, signal=0)], T0 + 9, S.FAILED, 7),
    ("Slurm says killed", WON, [record("FAILED", exit_code=0, signal=9)], T0 + 9, S.FAILED, 137),
    ("Slurm says timeout", WON, [record("TIMEOUT", exit_code=0, signal=0)], T0 + 9, S.TIMEOUT, None),
    ("Slurm says deadline", WON, [record("DEADLINE", exit_code=0, signal=0)], T0 + 9, S.DEADLINE, None),
    ("Slurm says revoked", WON, [record("REVOKED")], T0 + 9, S.CANCELLED, None),
    ("node failed", WON, [record("NODE_FAIL", exit_code=1, signal=0)], T0 + 9, S.LOST, None),
    ("did not boot", WON, [record("BOOT_FAIL")], T0 + 9, S.LOST, None),
    # Lost.
    ("requeued after its claim", WON, [record("PENDING", restarts=1)], T0 + 9, S.LOST, None),
    ("restarted after its claim", WON, [record("RUNNING", restarts=1)], T0 + 9, S.LOST, None),
    ("its second self says lost", won(lost="restarted"), [], T0 + 9, S.LOST, None),
    ("lost, beaten by the exit file", won(lost="restarted", ended=ended()), [], T0 + 9, S.COMPLETED, 0),
    ("lost, beaten by its own code", won(lost="restarted", ended=ended(4)), [record("NODE_FAIL")], T0 + 9, S.FAILED, 4),
    ("claimed by its first restart", replace(WON, claim=replace(CLAIM, restart=1)),
     [record("RUNNING", restarts=1)], T0 + 9, S.RUNNING, None),
    # Vanished.
    ("vanished", WON, [], T0 + 9, S.UNKNOWN, None),
    ("vanished for a moment", won(absent_since=((1, T0 + 8),)), [], T0 + 9, S.UNKNOWN, None),
    ("vanished for good", won(absent_since=((1, T0 + 1),)), [], T0 + 9, S.ENDED, None),
    ("vanished for exactly MinJobAge", won(absent_since=((1, T0 + 7),)), [], T0 + 9, S.UNKNOWN, None),
    ("a word not yet invented", WON, [record("HIBERNATING")], T0 + 9, S.UNKNOWN, None),
    ("a sibling's absence says nothing", won(absent_since=((2, T0 + 1),)), [], T0 + 9, S.UNKNOWN, None),
    # Other jobs' records.
    ("a recycled id", WON, [record("FAILED", name="somebody", exit_code=1)], T0 + 9, S.UNKNOWN, None),
    ("a recycled id that runs", WON, [record("RUNNING", name="rv-zzzzzzzz-1")], T0 + 9, S.UNKNOWN, None),
    ("a duplicate of the winner's name failed", WON, [record("FAILED", job_id=99, exit_code=1)], T0 + 9, S.UNKNOWN, None),
    ("a duplicate waits while the winner runs", WON, [record("PENDING", job_id=99), record("RUNNING")], T0 + 9, S.RUNNING, None),
    ("a sibling failed", WON, [record("FAILED", 2, exit_code=1), record("RUNNING")], T0 + 9, S.RUNNING, None),
    ("an ended record before a live one", SENT, [record("COMPLETED"), record("PENDING", job_id=21)], T0 + 9, S.PENDING, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("marks", "records", "now", "state", "code"),
    [row[1:] for row in TABLE],
    ids=[row[0].replace(" ", "-") for row in TABLE],
)
def test_resolve(
    marks: Marks, records: list[JobRecord], now: float, state: RaceState, code: int | None
) -> None:
    status = resolve(RACE, marks, Evidence(records=records, now=now, is_whole=True))
    assert (status.state, status.exit_code) == (state, code), status.why
    assert status.why or state in (S.RUNNING, S.COMPLETED, S.PENDING)
    assert len(status.jobs) == 2


MARKS = st.builds(
    Marks,
    claim=st.none() | st.just(CLAIM) | st.just(replace(CLAIM, submission=9)),
    ended=st.none() | st.builds(ended, st.integers(0, 255), st.sampled_from(["", "TERM"])),
    lost=st.sampled_from(["", "restarted"]),
    stopped=st.booleans(),
    job_ids=st.sampled_from([(), IDS, IDS[:1], ((7, (11,)),)]),
    refused=st.sampled_from([(), ((1, "bad"),), ((1, "bad"), (2, "bad"))]),
    exhausted=st.sampled_from([(), ((1, "x"),)]),
    again=st.sampled_from([(), (1,), (9,)]),
    absent_since=st.sampled_from([(), ((1, T0),), ((1, T0), (2, T0))]),
)
RECORDS = st.lists(
    st.builds(
        record,
        st.sampled_from(JobState),
        st.sampled_from([1, 2]),
        exit_code=st.none() | st.integers(0, 255),
        signal=st.none() | st.integers(0, 64),
        restarts=st.integers(0, 2),
    ),
    max_size=4,
)


@given(MARKS, RECORDS, st.floats(T0, T0 + 10_000))
def test_failure_and_success_need_evidence(
    marks: Marks, records: list[JobRecord], now: float
) -> None:
    """A terminal record or the winner's own word; and nothing raises, whatever the mixture."""
    status = resolve(RACE, marks, Evidence(records=records, now=now, is_whole=True))
    words = {r.state for r in records}
    spoke = marks.claim is not None and marks.ended is not None
    if status.state is S.COMPLETED:
        assert spoke or J.COMPLETED in words
    if status.state is S.FAILED:
        assert spoke or any(word.is_terminal for word in words)
    if status.exit_code is not None:
        assert status.claim is not None
    unaccounted(RACE, marks, records)


def test_only_what_still_matters_is_asked_for() -> None:
    """Not a race that said its last word, not what the queue knows, of a claimed race the winner."""
    assert unaccounted(RACE, won(ended=ended()), ()) == ()
    assert unaccounted(RACE, WON, ()) == (1,)
    assert unaccounted(RACE, WON, [record("RUNNING")]) == ()
    assert unaccounted(RACE, SENT, [record("PENDING", 2)]) == (1,)
    assert unaccounted(RACE, Marks(), ()) == (1, 2), "the submitter may have died inside sbatch"


def test_a_silent_controller_proves_no_absence():
    """Nothing was heard of the race for an hour, but nobody answered either."""
    silent = resolve(RACE, Marks(), Evidence(records=(), now=RACE.submitted_at + 3600))
    assert silent.state is RaceState.STAGED
    heard = Evidence(records=(), now=RACE.submitted_at + 3600, is_whole=True)
    assert resolve(RACE, Marks(), heard).state is RaceState.CANCELLED


def test_a_time_out_is_known_before_slurm_has_its_word():
    """The job is still COMPLETING: that its whole walltime has passed says enough."""
    hour = replace(
        RACE, entries=tuple(replace(e, walltime=timedelta(hours=1)) for e in RACE.entries)
    )
    for ran, state in ((3580, RaceState.TIMEOUT), (1800, RaceState.CANCELLED)):
        ended = Ended(owner=CLAIM.owner, code=143, signal="TERM", ended_at=CLAIM.started_at + ran)
        marks = Marks(job_ids=IDS, claim=CLAIM, ended=ended)
        found = resolve(hour, marks, Evidence(records=[record("COMPLETING")], now=T0))
        assert (found.state, found.exit_code) == (state, 143)


def test_why_a_signal_came_only_slurm_knows():
    """A job that ended by itself needs no more asking; one that Slurm ended does."""
    for signal, asked in (("", ()), ("TERM", (CLAIM.submission,))):
        ended = Ended(owner=CLAIM.owner, code=143, signal=signal, ended_at=T0)
        marks = Marks(job_ids=IDS, claim=CLAIM, ended=ended)
        assert unaccounted(RACE, marks, ()) == asked
