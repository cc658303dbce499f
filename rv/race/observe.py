"""Look at races: their state files, the queue, and single questions about jobs that left it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from rv.dataclass import dataclass
from rv.errors import RvError
from rv.models.gpu_use import gpu_use
from rv.models.job import JobRecord
from rv.models.race import NEXT, Race, RaceStatus, StateFiles
from rv.race.checkpoints import last_checkpoint
from rv.race.directory import load_all_state_files, load_state_files, write_state_file
from rv.race.first_seen import note_absent, note_unclaimed, note_unended, note_unsent
from rv.race.gpu_use import load_gpu_sums
from rv.race.sources import Sources, confirmation_limit_s, forgotten, is_active
from rv.race.status import is_known, resolve, unaccounted
from rv.race.sweep import ends_of, silent_workers
from rv.race.task_runs import ABSENT, ENDED, worker_job
from rv.slurm.sacct import is_behind, parse_sacct, sacct_script
from rv.slurm.script import new_sentinel
from rv.transport import Transport

_ASKING_S = 50.0
_MOST_ASKED = 5
"""Jobs about which the controller is asked one by one."""

_CLOCK_MARGIN_S = 86400
"""Accounting's clock and time zone need not be this machine's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RaceSnapshot:
    """A race at one moment: status, state files, Slurm's records, and whether Slurm answered.

    `forgotten` are the submissions that Slurm took and has lost; `accounting_answered` is of sacct;
    `now_s` is the moment, seconds since the epoch.
    """

    status: RaceStatus
    files: StateFiles
    records: tuple[JobRecord, ...]
    reachable: bool
    forgotten: tuple[int, ...] = ()
    accounting_answered: bool = False
    now_s: float = 0.0


def observe(
    races: Sequence[Race], transport: Transport, queue: tuple[JobRecord, ...] | None, now_s: float
) -> tuple[RaceSnapshot, ...]:
    """Look at races, with the queue's records, and one more round trip for vanished jobs.

    `queue` is None where no controller answered: then it is not asked anything else.
    """
    files = load_all_state_files(races, transport)
    vanished = {race.race_id: unaccounted(race, files[race.race_id], queue or ()) for race in races}
    answers = None if queue is None else _ask_about(races, files, vanished, transport)
    # Read again: a job writes its exit file before Slurm has its end, and time has passed.
    files = load_all_state_files(races, transport)
    if queue is not None:
        sweeps = [race for race in races if race.sweep]
        files |= _note_ended_workers(sweeps, files, queue, now_s, transport)
    return tuple(
        _snapshot(
            race, files[race.race_id], vanished[race.race_id], queue, answers, now_s, transport
        )
        for race in races
    )


def _snapshot(
    race: Race,
    files: StateFiles,
    vanished: Sequence[int],
    queue: tuple[JobRecord, ...] | None,
    answers: "_Answers | None",
    now_s: float,
    transport: Transport,
) -> RaceSnapshot:
    """Decide one race by its state files, the queue and the answers about vanished jobs."""
    accounting_answered, recycled = False, frozenset[int]()
    records = _of_race(race, queue or ())
    if answers is not None:  # no answer is no absence
        records = (*records, *_of_race(race, answers.records))
        accounting_answered, recycled = answers.accounting_answered, answers.recycled
        missing = [number for number in vanished if not is_known(race, files, number, records)]
        files = note_absent(race, files, missing, now_s, transport)
    if not (race.sweep and any(map(is_active, records))):
        files = note_unclaimed(race, files, records, now_s, transport)
    files = note_unended(race, files, records, now_s, transport)
    files = note_unsent(race, files, queue, records, now_s, transport)
    lost = forgotten(
        race, files, records, now_s, accounting_answered=accounting_answered, recycled=recycled
    )
    sources = Sources(
        records=records, now_s=now_s, queue_answered=queue is not None, forgotten=lost
    )
    status = resolve(race, files, sources)
    if race.chain:
        status = replace(status, saved_at=_saved_at(race, transport))
    if status.state.is_over and status.claim:
        status = replace(status, gpu_use=gpu_use(load_gpu_sums(race, transport)))
    return RaceSnapshot(
        status=status,
        files=files,
        records=records,
        reachable=queue is not None,
        forgotten=lost,
        accounting_answered=accounting_answered,
        now_s=now_s,
    )


def _note_ended_workers(
    sweeps: Sequence[Race],
    files: Mapping[str, StateFiles],
    queue: Sequence[JobRecord],
    now_s: float,
    transport: Transport,
) -> dict[str, StateFiles]:
    """Write down which workers of sweeps have ended without a word, and how Slurm says they did."""
    again: dict[str, StateFiles] = {}
    for race in sweeps:
        ends = _ends_of_workers(race, files[race.race_id], queue, now_s, transport)
        for worker, end in ends.items():
            write_state_file(race, f"{ENDED}/{worker}", f"{end}\n", transport)
        if ends:  # what a worker wrote before its end counts more
            again[race.race_id] = load_state_files(race, transport)
    return again


def _ends_of_workers(
    race: Race, files: StateFiles, queue: Sequence[JobRecord], now_s: float, transport: Transport
) -> dict[str, str]:
    """Return how workers ended, by the queue or, where it does not know them, by other answers."""
    ends = ends_of(files.tasks.unexplained(), race, queue)
    silent = [each for each in silent_workers(files.tasks, queue) if each not in ends]
    if not silent:
        return ends | _vanished(race, files, (), now_s, transport)
    asked = sorted({worker_job(worker)[0] for worker in silent})[:_MOST_ASKED]
    shown = _ask_controller(set(race.job_names), asked, transport)
    if shown is None:
        return ends
    ends |= ends_of(silent, race, [*shown.records, *_accounted(race, silent, shown, transport)])
    in_doubt = set(asked) - {record.job_id for record in shown.records}
    unknown = [each for each in silent if each not in ends and worker_job(each)[0] in in_doubt]
    return ends | _vanished(race, files, unknown, now_s, transport)


def _accounted(
    race: Race, workers: Iterable[str], shown: "_Answers", transport: Transport
) -> Sequence[JobRecord]:
    """Return accounting's records of the workers that the controller does not know."""
    known = {record.job_id for record in shown.records}
    missing = {worker_job(worker)[0] for worker in workers} - known
    if not missing:
        return ()
    own = dict.fromkeys(missing, (race.directory, ""))
    accounted = _ask_accounting(set(race.job_names), own, race.submitted_at, transport)
    return accounted.records if accounted else ()


def _vanished(
    race: Race, files: StateFiles, unknown: Collection[str], now_s: float, transport: Transport
) -> dict[str, str]:
    """Say which of these workers a healthy controller has not known for long; note since when.

    Accounting may be missing, or never hear of an end. One that is known again was there all along.
    """
    limit_s = max(race.min_job_age.total_seconds(), confirmation_limit_s(race))
    since = files.tasks.absent_since
    for worker in since.keys() - {*unknown}:
        write_state_file(race, f"{ABSENT}.{worker}", "", transport)
    for worker in unknown:
        if since.get(worker, now_s + 1) > now_s:  # or by a clock that was ahead of this one
            write_state_file(race, f"{ABSENT}.{worker}", f"{now_s:.0f}\n", transport)
    gone = [worker for worker in unknown if now_s - since.get(worker, now_s) > limit_s]
    return {
        worker: f"Slurm has long not known job {worker_job(worker)[0]}: cause unknown"
        for worker in gone
    }


def _saved_at(race: Race, transport: Transport) -> float | None:
    with suppress(RvError):
        return last_checkpoint(race, transport)
    return None


def _of_race(race: Race, records: Iterable[JobRecord]) -> tuple[JobRecord, ...]:
    names = frozenset(race.job_names)
    return tuple(record for record in records if record.name in names)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answers:
    """What Slurm says of single jobs: `recycled` ids are other jobs' now."""

    records: tuple[JobRecord, ...] = ()
    accounting_answered: bool = False
    recycled: frozenset[int] = frozenset()


def _ask_about(
    races: Sequence[Race],
    files: Mapping[str, StateFiles],
    vanished: Mapping[str, Sequence[int]],
    transport: Transport,
) -> _Answers | None:
    """Ask the controller by id, then accounting by name and id, for jobs that left the queue.

    None where the controller does not answer; accounting may be missing altogether.
    """
    jobs = [(race, number) for race in races for number in vanished[race.race_id]]
    if not jobs:
        return _Answers()
    names: set[str] = set()
    own_jobs: dict[int, tuple[str, str]] = {}
    for race, number in jobs:
        name = race.name_of(number)
        names.add(name)
        own_jobs |= dict.fromkeys(_ids(files[race.race_id], number), (race.directory, name))
    answers = _ask_controller(names, own_jobs, transport)
    if answers is None:
        return None
    names -= {record.name for record in answers.records}
    if not names:
        return answers
    oldest_s = min(race.submitted_at for race, _ in jobs)
    accounted = _ask_accounting(names, own_jobs, oldest_s, transport)
    if accounted is None:
        return answers
    records = (*answers.records, *accounted.records)
    return replace(answers, records=records, accounting_answered=accounted.accounting_answered)


def _ask_controller(names: set[str], ids: Iterable[int], transport: Transport) -> _Answers | None:
    """Ask the controller for jobs by id, and tell those of these names from recycled ids."""
    from rv.slurm.scontrol import parse_show_job, show_job_script  # seldom needed

    sentinel = new_sentinel()
    script = show_job_script(sorted(ids), sentinel)
    shown = parse_show_job(transport.run(script, timeout_s=_ASKING_S).stdout, sentinel)
    if shown is None:
        return None
    return _Answers(
        records=tuple(record for record in shown if record.name in names),
        recycled=frozenset(record.job_id for record in shown if record.name not in names),
    )


def _ask_accounting(
    names: set[str],
    own_jobs: Mapping[int, tuple[str, str]],
    since_s: float,
    transport: Transport,
) -> _Answers | None:
    """Ask accounting for jobs by name and by id; None where it does not answer.

    `known` maps ids to the race directory and the name that rv gave the job.

    A job that was requeued has a record for each run: the newest, which comes last, counts.
    Accounting that has not heard all from the controller says nothing of what it does not know.
    """
    since = datetime.fromtimestamp(since_s - _CLOCK_MARGIN_S)  # noqa: DTZ006 - sacct wants it local
    sentinel = new_sentinel()
    script = sacct_script(sorted(names), since, sentinel, sorted(own_jobs))
    text = transport.run(script, timeout_s=_ASKING_S).stdout
    answer = parse_sacct(text, sentinel)
    if answer is None:
        return None
    named = (_with_own_name(record, own_jobs) for record in answer)
    newest = {record.job_id: record for record in named if record.name in names}
    return _Answers(
        records=tuple(reversed(newest.values())), accounting_answered=not is_behind(text, sentinel)
    )


def _with_own_name(record: JobRecord, own_jobs: Mapping[int, tuple[str, str]]) -> JobRecord:
    """Return accounting's record of a job that its user renamed under the name that rv gave it."""
    directory, name = own_jobs.get(record.job_id, ("", ""))
    return replace(record, name=name) if name and record.directory == directory else record


def _ids(files: StateFiles, number: int) -> tuple[int, ...]:
    """Return the ids of a submission: the last that sbatch gave, and the one that claimed."""
    claim = files.claim
    claimed = (claim.job_id,) if claim and number in (claim.submission, NEXT) else ()
    return (*dict(files.job_ids).get(number, ())[-_MOST_ASKED:], *claimed)
