"""The state of a race, as a table: state files and Slurm's records in, one state out."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rv.models.job import JobRecord, JobState, is_live, job_state
from rv.models.race import Claim, Ended, Entry, Race, RaceState, StateFiles
from rv.race.rules import STAGED_GRACE_S
from rv.race.sources import KEPT_S, Sources, forgotten, to_resend
from rv.race.status import awaits_code, resolve, unaccounted

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
SENT = StateFiles(job_ids=IDS)
WON = StateFiles(job_ids=IDS, claim=CLAIM)


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


def won(**changes: Any) -> StateFiles:
    return replace(WON, **changes)


def sent(**changes: Any) -> StateFiles:
    return replace(SENT, **changes)


def asked(*numbers: int, at: float = T0, **changes: Any) -> StateFiles:
    """State files of submissions that were sent."""
    return replace(StateFiles(sent=tuple((n, at) for n in numbers)), **changes)


LATE = T0 + STAGED_GRACE_S + 1
TABLE: list[tuple[str, StateFiles, list[JobRecord], float, RaceState, int | None]] = [
    # Before anybody won.
    ("staged", StateFiles(), [], T0 + 1, S.STAGED, None),
    ("never submitted", StateFiles(unsent_since=T0), [], LATE, S.CANCELLED, None),
    ("staged by a clock far behind, seen just now", StateFiles(unsent_since=LATE), [], LATE, S.STAGED, None),
    ("staged long ago, and nobody can note it", StateFiles(), [], LATE, S.STAGED, None),
    ("staged two days ago", StateFiles(), [], T0 + 2 * 86400, S.CANCELLED, None),
    ("its id was lost, its name is there", StateFiles(), [record("PENDING")], LATE, S.PENDING, None),
    ("stopped before sbatch", StateFiles(stopped=True), [], T0 + 1, S.CANCELLED, None),
    ("all refused", StateFiles(refused=((1, "bad"), (2, "bad"))), [], LATE, S.REFUSED, None),
    ("one refused, one waits", StateFiles(refused=((1, "bad"),), job_ids=((2, (12,)),)),
     [record("PENDING", 2)], T0 + 1, S.PENDING, None),
    ("pending", SENT, [record("PENDING"), record("PENDING", 2)], T0 + 1, S.PENDING, None),
    ("running, not claimed yet", SENT, [record("RUNNING")], T0 + 1, S.PENDING, None),
    ("configuring", SENT, [record("CONFIGURING")], T0 + 1, S.PENDING, None),
    ("absent, once", SENT, [], T0 + 9, S.UNKNOWN, None),
    ("absent since a moment", sent(absent_since=((1, T0 + 8), (2, T0 + 8))), [], T0 + 9, S.UNKNOWN, None),
    ("absent beyond MinJobAge", sent(absent_since=((1, T0 + 1), (2, T0 + 1))), [], T0 + 9, S.UNKNOWN, None),
    ("absent for long", sent(absent_since=((1, T0 + 1), (2, T0 + 1))), [], T0 + 29, S.ENDED, None),
    ("one of two absent for long", sent(absent_since=((1, T0 + 1),)), [], T0 + 9, S.UNKNOWN, None),
    ("an unknown word", SENT, [record("HIBERNATING")], T0 + 9, S.UNKNOWN, None),
    ("both cancelled outside", SENT, [record("CANCELLED by 0"), record("CANCELLED", 2)], T0 + 9, S.CANCELLED, None),
    ("ended without a start", SENT, [record("FAILED"), record("FAILED", 2)], T0 + 9, S.FAILED, None),
    ("one ended, one waits", SENT, [record("FAILED"), record("PENDING", 2)], T0 + 9, S.PENDING, None),
    ("declined everywhere", sent(exhausted=((1, "x"), (2, "x")), declined=(("a1", "no GPU"),)), [], T0 + 9, S.DECLINED, None),
    ("declined, to be sent again", sent(again=(1,)), [record("COMPLETED")], T0 + 9, S.PENDING, None),
    ("requeued for another node", SENT, [record("REQUEUED", restarts=1)], T0 + 9, S.PENDING, None),
    ("stopped, still ending", sent(stopped=True), [record("COMPLETING")], T0 + 9, S.PENDING, None),
    ("stopped", sent(stopped=True), [record("CANCELLED")], T0 + 9, S.CANCELLED, None),
    # Sent, and nobody heard the answer.
    ("sent a moment ago", asked(1), [], T0 + 1, S.STAGED, None),
    ("sent an hour ago, and nobody looked since", asked(1, at=T0), [], T0 + 3600, S.STAGED, None),
    ("sent by a clock an hour ahead", asked(1, at=T0 + 3600), [], LATE, S.STAGED, None),
    ("sent two days ago", asked(1, at=T0), [], T0 + 2 * 86400, S.CANCELLED, None),
    ("sent, and found in the queue", asked(1), [record("PENDING")], T0 + 9, S.PENDING, None),
    ("sent, and over already", asked(1, 2), [record("CANCELLED"), record("CANCELLED", 2)], T0 + 9, S.CANCELLED, None),
    ("one sent, one waits", asked(2, job_ids=IDS[:1]), [record("PENDING")], T0 + 9, S.PENDING, None),
    ("one sent, one is over", asked(2, job_ids=IDS[:1]), [record("FAILED")], T0 + 9, S.PENDING, None),
    ("one sent, one was refused", asked(1, 2, refused=((2, "bad"),)), [], T0 + 9, S.STAGED, None),
    ("sent, then stopped", asked(1, stopped=True), [], T0 + 9, S.CANCELLED, None),
    ("sent, and it won", asked(1, claim=CLAIM), [record("RUNNING")], T0 + 9, S.RUNNING, None),
    ("sent, and declined everywhere", asked(1, exhausted=((1, "x"),), declined=(("a1", "no GPU"),)), [record("COMPLETED")], T0 + 9, S.DECLINED, None),
    # What other hands do.
    ("moved to another partition", SENT, [record("PENDING", partition="other")], T0 + 9, S.PENDING, None),
    ("held by its user", SENT, [record("PENDING", reason="JobHeldUser")], T0 + 9, S.PENDING, None),
    ("alive in accounting alone", SENT, [record("PENDING", source="sacct")], T0 + 9, S.UNKNOWN, None),
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
    ("requeued between its claim and requeue=0", won(ended=ended(143, "TERM")), [record("PENDING", restarts=1)], T0 + 9, S.LOST, None),
    ("requeued so, and over since", won(ended=ended(143, "TERM")), [record("COMPLETED", restarts=1)], T0 + 9, S.LOST, None),
    ("its own code, and restarted since", won(ended=ended(3)), [record("RUNNING", restarts=1)], T0 + 9, S.FAILED, 3),
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
    ("killed, and the queue has no code", WON, [record("FAILED"), record("FAILED", exit_code=0, signal=9, source="scontrol")], T0 + 9, S.FAILED, 137),
    ("cancelled by root", WON, [record("CANCELLED by 0", reason="by uid 0", source="sacct")], T0 + 9, S.CANCELLED, None),
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
    ("its end has not reached accounting", WON, [record("RUNNING", source="sacct")], T0 + 9, S.RUNNING, None),
    ("its end has not reached accounting, just forgotten", won(absent_since=((1, T0 + 1),)), [record("RUNNING", source="sacct")], T0 + 9, S.RUNNING, None),
    ("its end never reached accounting", won(absent_since=((1, T0),)), [record("RUNNING", source="sacct")], T0 + 900, S.ENDED, None),
    ("noted by a clock an hour ahead", won(absent_since=((1, T0 + 3600),)), [], T0 + 9, S.UNKNOWN, None),
    # Other jobs' records.
    ("a recycled id", WON, [record("FAILED", name="somebody", exit_code=1)], T0 + 9, S.UNKNOWN, None),
    ("a recycled id that runs", WON, [record("RUNNING", name="rv-zzzzzzzz-1")], T0 + 9, S.UNKNOWN, None),
    ("a duplicate of the winner's name failed", WON, [record("FAILED", job_id=99, exit_code=1)], T0 + 9, S.UNKNOWN, None),
    ("a duplicate waits while the winner runs", WON, [record("PENDING", job_id=99), record("RUNNING")], T0 + 9, S.RUNNING, None),
    ("a sibling failed", WON, [record("FAILED", 2, exit_code=1), record("RUNNING")], T0 + 9, S.RUNNING, None),
    # Job 11 left its node where Slurm could not be called; a client sent job 21 in its place.
    ("its second job was cancelled", sent(job_ids=((1, (11, 21)),)), [record("COMPLETED"), record("CANCELLED", job_id=21)], T0 + 9, S.CANCELLED, None),
    ("its second job failed", sent(job_ids=((1, (11, 21)),)), [record("COMPLETED"), record("FAILED", job_id=21)], T0 + 9, S.FAILED, None),
    ("its second job does not show", sent(job_ids=((1, (11, 21)),), unclaimed_since=T0 - 99), [record("COMPLETED")], T0 + 9, S.UNKNOWN, None),
    ("its first job won all the same", won(job_ids=((1, (11, 21)),)), [record("TIMEOUT"), record("CANCELLED", job_id=21)], T0 + 9, S.TIMEOUT, None),
    ("its file of ids is empty", sent(job_ids=((1, ()),)), [record("CANCELLED"), record("CANCELLED", 2)], T0 + 9, S.CANCELLED, None),
    ("an ended record before a live one", SENT, [record("COMPLETED"), record("PENDING", job_id=21)], T0 + 9, S.PENDING, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "records", "now", "state", "code"),
    [row[1:] for row in TABLE],
    ids=[row[0].replace(" ", "-") for row in TABLE],
)
def test_resolve(
    files: StateFiles, records: list[JobRecord], now: float, state: RaceState, code: int | None
) -> None:
    status = resolve(RACE, files, Sources(records=records, now_s=now, queue_answered=True))
    assert (status.state, status.exit_code) == (state, code), status.why
    assert status.why or state in (S.RUNNING, S.COMPLETED, S.PENDING)
    assert len(status.jobs) == 2


@pytest.mark.parametrize(
    ("records", "state"),
    [
        ([], J.COMPLETED),
        ([record("RUNNING")], J.COMPLETED),
        ([record("CANCELLED")], J.CANCELLED),
        ([record("COMPLETED")], J.COMPLETED),
    ],
    ids=["not known", "not noticed yet", "cancelled as it ended", "noticed"],
)
def test_a_job_with_no_node_left_is_over(records: list[JobRecord], state: JobState) -> None:
    """As what, Slurm says once it knows."""
    files = sent(exhausted=((1, "x"),))
    status = resolve(RACE, files, Sources(records=records, now_s=T0 + 9, queue_answered=True))
    assert status.jobs[0].state is state


ABSENT = st.sampled_from([(), ((1, T0),), ((1, T0), (2, T0)), ((1, T0 + 9_999),)])
STATE_FILES = st.builds(
    StateFiles,
    claim=st.none() | st.just(CLAIM) | st.just(replace(CLAIM, submission=9)),
    ended=st.none()
    | st.builds(
        ended, st.integers(0, 255), st.sampled_from(["", "TERM"]), st.sampled_from(["11.0", "12.0"])
    ),
    lost=st.sampled_from(["", "restarted"]),
    stopped=st.booleans(),
    sent=st.sampled_from([(), ((1, T0),), ((1, T0), (2, T0 + 9_000)), ((9, T0), (0, T0))]),
    job_ids=st.sampled_from([(), IDS, IDS[:1], ((7, (11,)),)]),
    refused=st.sampled_from([(), ((1, "bad"),), ((1, "bad"), (2, "bad"))]),
    exhausted=st.sampled_from([(), ((1, "x"),)]),
    again=st.sampled_from([(), (1,), (9,)]),
    absent_since=ABSENT,
    unsent_since=st.sampled_from([None, T0, T0 + 9_999]),
)
RECORDS = st.lists(
    st.builds(
        record,
        st.sampled_from(JobState),
        st.sampled_from([1, 2]),
        job_id=st.sampled_from([11, 12, 99]),
        source=st.sampled_from(["squeue", "scontrol", "sacct"]),
        reason=st.sampled_from(["", "JobHeldUser", "launch failed requeued held", "by uid 0"]),
        exit_code=st.none() | st.integers(0, 255),
        signal=st.none() | st.integers(0, 64),
        restarts=st.integers(0, 2),
    ),
    max_size=4,
)
FORGOTTEN = st.sampled_from([(), (1,), (1, 2)])


def said_of(files: StateFiles, records: list[JobRecord]) -> set[JobState]:
    """The states that count: of the winner by name and id, of a race without one all of them."""
    claim = files.claim
    name = RACE.name_of(claim.submission) if claim else ""
    return {r.state for r in records if not claim or (r.name, r.job_id) == (name, claim.job_id)} - {
        J.UNKNOWN
    }


def has_source(state: RaceState, files: StateFiles, records: list[JobRecord], now: float) -> bool:
    """Whether there is a reason to call a race over in this way."""
    words = said_of(files, records)
    claim, own = files.claim, files.ended
    own = own if own and claim and own.owner == claim.owner else None
    absent = any(now - at > RACE.min_job_age.total_seconds() for _, at in files.absent_since)
    later = any(r.restarts > claim.restart for r in records) if claim else False
    ours = any(RACE.entry(number) for number, _ in files.job_ids)
    since = files.unsent_since
    never = not ours and (since is not None and now - since > STAGED_GRACE_S)
    never = never or (not ours and now - RACE.submitted_at > KEPT_S)
    ends = any(word.is_terminal for word in words)
    return {
        S.COMPLETED: bool(own) or J.COMPLETED in words,
        S.FAILED: bool(own) or ends or bool(files.exhausted),
        S.CANCELLED: files.stopped or bool(own) or ends or never,
        S.LOST: bool(files.lost) or later or bool(words & {J.NODE_FAIL, J.BOOT_FAIL}),
        S.ENDED: absent or J.ENDED in words,
        S.DECLINED: bool(files.exhausted),
        S.REFUSED: len(files.refused) == len(RACE.entries),
    }.get(state, bool(own) or J[state] in words if state in J.__members__ else False)


@settings(max_examples=600, derandomize=True)
@given(STATE_FILES, RECORDS, st.floats(T0, T0 + 200_000), st.booleans(), FORGOTTEN)
def test_every_state_has_its_sources(
    files: StateFiles,
    records: list[JobRecord],
    now: float,
    queue_answered: bool,
    lost: tuple[int, ...],
) -> None:
    """Nothing raises, whatever the mixture; what is over has a reason; UNKNOWN is for silence."""
    sources = Sources(records=records, now_s=now, queue_answered=queue_answered, forgotten=lost)
    status = resolve(RACE, files, sources)
    if status.state.is_over:
        assert has_source(status.state, files, records, now), status
    if status.exit_code is not None:
        assert status.claim is not None
    if status.state is S.UNKNOWN:
        assert status.why
        if files.claim:
            assert not said_of(files, records)
        else:
            quiet = {1, 2} - {n for n, _ in files.exhausted}
            words = {r.name for r in records if r.state.is_terminal}
            assert any(RACE.name_of(n) not in words for n in quiet)
            live = {r.name for r in records if is_live(r.state) and r.source != "sacct"}
            assert not live & {RACE.name_of(n) for n in quiet}
    unaccounted(RACE, files, records)
    to_resend(RACE, files, records, now)
    forgotten(RACE, files, records, now, accounting_answered=queue_answered)


@given(STATE_FILES, RECORDS, st.floats(-7200, 7200))
def test_no_clock_of_a_node_decides(
    files: StateFiles, records: list[JobRecord], shift: float
) -> None:
    """One that is an hour ahead or behind its cluster changes no state."""
    sources = Sources(records=records, now_s=T0 + 60, queue_answered=True)
    claim, end = files.claim, files.ended
    moved = replace(
        files,
        claim=replace(claim, started_at=claim.started_at + shift) if claim else None,
        ended=replace(end, ended_at=end.ended_at + shift) if end else None,
    )
    found, told = resolve(RACE, moved, sources), resolve(RACE, files, sources)
    assert (found.state, found.exit_code) == (told.state, told.exit_code)


def test_what_holds_a_job_and_how_to_let_it_go() -> None:
    """By its user, by an administrator, after a failed start; with the job's own number."""
    for reason, who in (
        ("JobHeldUser", "by its user"),
        ("JobHeldAdmin", "by an administrator"),
        ("launch failed requeued held", "after a failed start"),
    ):
        rows = [record("PENDING", reason=reason), record("PENDING", 2, reason="Resources")]
        said = resolve(RACE, SENT, Sources(records=rows, now_s=T0 + 9, queue_answered=True)).why
        assert said.startswith("Resources, job 11 is held "), said
        assert who in said
        assert "scontrol release 11" in said


def test_what_is_unconfirmed_is_said_beside_what_waits() -> None:
    """With the submission's number and the time since it was sent."""
    files = asked(2, at=T0 + 2, job_ids=IDS[:1])
    rows = [record("PENDING", reason="Resources")]
    status = resolve(RACE, files, Sources(records=rows, now_s=T0 + 9, queue_answered=True))
    assert status.why == (
        "Resources, job 2 is unconfirmed: it was sent 7 s ago and no answer was heard"
    )
    assert [job.reason for job in status.jobs] == ["Resources", "unconfirmed"]


def test_a_winner_that_failed_is_asked_for_its_code() -> None:
    """squeue calls it FAILED and has no codes; scontrol has."""
    assert unaccounted(RACE, WON, [record("FAILED")]) == (1,)
    assert unaccounted(RACE, WON, [record("FAILED", job_id=99)]) == (1,), "not the winner's record"
    assert unaccounted(RACE, won(ended=ended(1)), [record("FAILED")]) == ()
    failed = resolve(
        RACE, WON, Sources(records=[record("FAILED")], now_s=T0 + 9, queue_answered=True)
    )
    assert (failed.state, failed.exit_code) == (S.FAILED, None)
    assert awaits_code(failed, [record("FAILED")])
    told = [record("FAILED"), record("FAILED", exit_code=0, signal=9, source="scontrol")]
    assert not awaits_code(resolve(RACE, WON, Sources(records=told, now_s=T0 + 9)), told)


def test_only_what_still_matters_is_asked_for() -> None:
    """Not a race with an exit file, not what the queue knows, of a claimed race the winner."""
    assert unaccounted(RACE, won(ended=ended()), ()) == ()
    assert unaccounted(RACE, WON, ()) == (1,)
    assert unaccounted(RACE, WON, [record("RUNNING")]) == ()
    assert unaccounted(RACE, SENT, [record("PENDING", 2)]) == (1,)
    sent = StateFiles(sent=((1, T0), (2, T0)), refused=((2, "bad"),))
    assert unaccounted(RACE, sent, ()) == (1,), "the submitter may have died inside sbatch"
    assert unaccounted(RACE, StateFiles(), ()) == (), "what was not written down was not sent"


def test_a_silent_controller_proves_no_absence():
    """Nothing was heard of the race for an hour, but nobody answered either."""
    unsent = StateFiles(unsent_since=RACE.submitted_at)
    silent = resolve(RACE, unsent, Sources(records=(), now_s=RACE.submitted_at + 3600))
    assert silent.state is RaceState.STAGED
    heard = Sources(records=(), now_s=RACE.submitted_at + 3600, queue_answered=True)
    assert resolve(RACE, unsent, heard).state is RaceState.CANCELLED


def test_a_time_out_is_known_before_slurm_says_so():
    """The job is still COMPLETING: that its whole walltime has passed says enough."""
    hour = replace(
        RACE, entries=tuple(replace(e, walltime=timedelta(hours=1)) for e in RACE.entries)
    )
    for ran, state in ((3580, RaceState.TIMEOUT), (1800, RaceState.CANCELLED)):
        ended = Ended(owner=CLAIM.owner, code=143, signal="TERM", ended_at=CLAIM.started_at + ran)
        files = StateFiles(job_ids=IDS, claim=CLAIM, ended=ended)
        found = resolve(hour, files, Sources(records=[record("COMPLETING")], now_s=T0))
        assert (found.state, found.exit_code) == (state, 143)


def test_why_a_signal_came_only_slurm_knows():
    """A job that ended by itself needs no more asking; one that Slurm ended does."""
    for signal, asked in (("", ()), ("TERM", (CLAIM.submission,))):
        ended = Ended(owner=CLAIM.owner, code=143, signal=signal, ended_at=T0)
        files = StateFiles(job_ids=IDS, claim=CLAIM, ended=ended)
        assert unaccounted(RACE, files, ()) == asked
