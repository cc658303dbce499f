"""What a race knows of its merged submissions: their parts, and what the winner became."""

from dataclasses import replace
from datetime import timedelta

from rv.models.job import JobRecord, JobState
from rv.models.race import NEXT, Claim, Entry, Race, StateFiles
from rv.race.directory import read_record, read_state_files, record_text
from rv.race.recover import due_submissions, unsent
from rv.race.sources import Sources
from rv.race.status import resolve
from rv.race.watch import Watch
from rv.ui.race_views import ending, race_document

VOLTA, AMPERE = "v100/1x4/volta", "a40/1x4/ampere"
RACE = Race(
    race_id="abcdefgh",
    directory="/races/abcdefgh",
    cluster="sandbox",
    name="",
    command="true",
    payload="",
    is_shell=False,
    submitted_at=1000.0,
    min_job_age=timedelta(seconds=60),
    message_timeout=timedelta(seconds=10),
    entries=(
        Entry(number=1, name="rv-abcdefgh-1", strategy=f"{VOLTA}|{AMPERE}"),
        Entry(number=2, name="rv-abcdefgh-2", strategy="l4/1x4/single"),
        Entry(number=3, name="rv-abcdefgh-3", strategy=VOLTA, instead_of=1),
        Entry(
            number=4,
            name="rv-abcdefgh-4",
            strategy=AMPERE,
            instead_of=1,
            cost=10.0,
            walltime=timedelta(hours=1),
        ),
    ),
    waves=((1,), (2,)),
)
CLAIM = Claim(
    job_id=7, restart=0, submission=1, nodes="a1", host="a1", started_at=1002.0, strategy=AMPERE
)


def test_parts_are_sent_only_where_the_merged_one_was_refused():
    """Not with the later waves, and not twice."""
    assert unsent(RACE, StateFiles(job_ids=((1, (7,)),))) == (2,)
    assert unsent(RACE, StateFiles(refused=((1, "no"),))) == (2, 3, 4)
    assert unsent(RACE, StateFiles(refused=((1, "no"), (3, "no")), job_ids=((4, (8,)),))) == (2,)


def owed(*states, reason="", **files):
    """What is owed when jobs 1 and 2 are in these Slurm states."""
    records = tuple(
        JobRecord(job_id=6 + n, name=f"rv-abcdefgh-{n}", state=state, reason=reason, source="squeue",
                  exit_code=None if state is JobState.PENDING else 1)
        for n, state in enumerate(states, 1)
    )  # fmt: skip
    seen = StateFiles(
        **({"job_ids": tuple((n, (6 + n,)) for n in range(1, len(states) + 1))} | files)
    )
    sources = Sources(records=records, now_s=1010.0, queue_answered=True)
    return due_submissions(resolve(RACE, seen, sources), seen)


def test_parts_of_a_job_that_broke_are_sent_at_once():
    """Whatever else still waits; not of one that a person cancelled, or that had no node left."""
    failed, waits, gone = JobState.FAILED, JobState.PENDING, JobState.CANCELLED
    assert owed(failed, waits) == (3, 4)
    assert owed(JobState.NODE_FAIL, waits) == (3, 4)
    assert owed(failed, waits, job_ids=((1, (7,)), (2, (8,)), (3, (9,)))) == (4,)
    assert owed(waits, waits) == ()
    assert owed(gone, waits) == ()
    assert owed(gone, failed) == ()
    assert owed(failed, failed, exhausted=((1, "no node is left"),)) == ()
    assert owed(failed, failed, stopped=True) == ()


def test_parts_of_a_job_that_slurm_holds_after_a_failed_launch_are_sent():
    """A prolog that fails on one node would keep all of them waiting."""
    assert owed(JobState.PENDING, JobState.PENDING, reason="launch_failed_requeued_held") == (3, 4)
    assert owed(JobState.PENDING, reason="Launch failed requeued held") == (3, 4)
    assert owed(JobState.PENDING, JobState.PENDING, reason="JobHeldUser") == ()


def test_parts_that_a_killed_client_stilldue_submissions_are_sent():
    """It wrote the refusal down and died: the next rv command goes on, the later wave waits."""
    assert owed(refused=((1, "no"),)) == (3, 4)
    assert owed(JobState.PENDING, job_ids=((2, (8,)),), refused=((1, "no"),)) == (3, 4)


def test_parts_that_were_taken_hold_the_next_wave_back():
    """The refused one is not all that was tried."""
    seen = StateFiles(refused=((1, "no"),), job_ids=((3, (9,)), (4, (10,))))
    status = resolve(RACE, seen, Sources(records=(), now_s=1001.0))
    watch = Watch(race=RACE, queue=None, sink=None)
    assert not watch._all_refused(status)
    everything = StateFiles(refused=((1, "no"), (3, "no"), (4, "no")))
    assert watch._all_refused(resolve(RACE, everything, Sources(records=(), now_s=1001.0)))


def test_the_next_segment_of_a_chain_has_no_parts():
    """Its number, 0, is what says of other submissions that they are no parts."""
    assert RACE.parts_of(1) == (3, 4)
    assert RACE.parts_of(NEXT) == ()


def test_the_race_is_refused_when_its_parts_are_too():
    """Until then a part may still be taken."""
    refused = tuple((number, "no") for number in (1, 2, 3))
    files = StateFiles(refused=refused)
    assert resolve(RACE, files, Sources(records=(), now_s=1001.0)).state == "STAGED"
    files = StateFiles(refused=(*refused, (4, "no")))
    assert resolve(RACE, files, Sources(records=(), now_s=1001.0)).state == "REFUSED"


def test_the_claim_says_what_the_job_became():
    """The winner's strategy, cost and job are those of the part, wherever a race is shown."""
    status = resolve(RACE, StateFiles(claim=CLAIM), Sources(records=(), now_s=1003.0))
    shown = race_document(status)
    assert shown["winner"]["strategy"] == AMPERE
    assert [job.strategy for job in status.jobs] == [
        AMPERE,
        *(e.strategy for e in RACE.entries[1:]),
    ]
    ended = replace(status, started_at=1002.0, ended_at=1002.0 + 1800)
    assert "cost 5.00" in ending(ended)


def test_a_claim_of_before_has_the_strategy_of_its_submission():
    """Races that older scripts ran in can still be read."""
    single = replace(CLAIM, submission=2, strategy="")
    assert RACE.strategy_of(2, single) == "l4/1x4/single"
    assert RACE.winner(single) == RACE.entries[1]


def test_the_claims_strategy_is_read_from_its_file():
    """A line like the others."""
    text = b"7.0\nsubmission=1\nnodes=a1\nhost=a1\nstarted=1002.0\nstrategy=a40/1x4/ampere\nwhole\n"
    assert read_state_files({"claim": text}).claim == CLAIM


def test_a_record_keeps_the_parts():
    """What was staged is what is read."""
    assert read_record(record_text(RACE), RACE.directory) == RACE
