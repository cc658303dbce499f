"""A race: what was staged, what its directory holds, and its status."""

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from rv.dataclass import dataclass
from rv.models.code import Code
from rv.models.job import JobState
from rv.models.performance import Source
from rv.models.request import Request, Work
from rv.models.sweep import NO_RUNS, Sweep, TaskCounts, TaskRuns

if TYPE_CHECKING:
    from rv.models.gpu_use import GpuUse


class RaceState(StrEnum):
    """The documented states of a race, in `rv ps` and in JSON.

    STAGED: nothing is known to have been submitted yet. PENDING: waiting, or starting. RUNNING:
    the command runs. COMPLETED, FAILED: it ended by itself, with an exit code. LOST: its job
    claimed the race, and then its node failed or lost touch, Slurm restarted the job, or a chain's
    next segment ended before it began. ENDED: it is over, and no source says how. DECLINED: every
    node failed the node check. REFUSED: Slurm took none of its jobs. UNKNOWN: no source says
    anything now. The others are Slurm's own job states.
    """

    STAGED = "STAGED"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    PREEMPTED = "PREEMPTED"
    DEADLINE = "DEADLINE"
    LOST = "LOST"
    ENDED = "ENDED"
    DECLINED = "DECLINED"
    REFUSED = "REFUSED"
    UNKNOWN = "UNKNOWN"

    @property
    def is_over(self) -> bool:
        """Whether nothing more can happen to the race."""
        return self not in _OPEN


_OPEN: Final = frozenset(
    {RaceState.STAGED, RaceState.PENDING, RaceState.RUNNING, RaceState.UNKNOWN}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
    """How a command that can resume is run, in one segment after the other.

    `total` is its whole time; `signal` (without SIG) tells it that a segment's time is over.
    """

    total: timedelta
    signal: str = "USR1"


NEXT: Final = 0
"""The number under which the job of the next segment is known, beside the submissions' own."""


NAME_PREFIX: Final = "rv-"
"""What the name of every job that rv submits begins with."""


def job_name(race_id: str, number: int) -> str:
    """Name a submission: fixed, so that it can be looked up whatever happened to sbatch."""
    return f"{NAME_PREFIX}{race_id}-{number}"


def next_job_name(race_id: str) -> str:
    """Name the job of a later segment; one at a time waits or runs."""
    return f"{NAME_PREFIX}{race_id}-next"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One submission of a race as it was staged; cost is what the whole walltime would cost.

    `cost_unit` is what the site calls the unit of costs, "" where it has no name for it. A merged
    one has the ids of its strategies joined by "|". `instead_of` is not 0 for its parts: they are
    sent only where the submission of that number comes to nothing. `source` is how its start was
    known when it was planned, None in records of an older rv; `predicted_s` and `predicted_run_s`
    are the seconds to the start, and of the run, as the rates and Slurm's plan said: None for not
    known.
    """

    number: int
    name: str
    strategy: str
    gpu: str = ""
    gpus: int = 0
    nodes: int = 1
    partition: str = ""
    walltime: timedelta = timedelta(0)
    cost: float | None = None
    cost_unit: str = ""
    instead_of: int = 0
    source: Source | None = None
    predicted_s: float | None = None
    predicted_run_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Race:
    """What was staged before the first sbatch. `submitted_at` is seconds since the epoch.

    `cluster` is the key of the cluster that the race runs on; `waves` are submission numbers;
    `chain` is None for a command that cannot resume, `request` in records of an rv that did not
    record it. `retry_of` is the race that this one starts again, "" for most; `resumes` is the
    chain whose checkpoints it began with, "" for most.
    `payload_hash` names the folder of the payloads that its jobs run, "" where they run none.
    `card_sizes` is the memory, in MiB, of the GPU models that the cluster has.
    `code` is what was sent for it, None where its command runs in a directory of the user's.
    `workdir` is where the command runs. `work` is what there was to compute, None where nobody
    said. `sweep` is None for a race of one command.
    """

    race_id: str
    directory: str
    cluster: str
    name: str
    command: str
    payload: str
    is_shell: bool
    submitted_at: float
    min_job_age: timedelta
    message_timeout: timedelta
    entries: tuple[Entry, ...]
    waves: tuple[tuple[int, ...], ...]
    chain: Chain | None = None
    request: Request | None = None
    retry_of: str = ""
    payload_hash: str = ""
    card_sizes: tuple[int, ...] = ()
    code: Code | None = None
    workdir: str = ""
    resumes: str = ""
    work: Work | None = None
    sweep: Sweep | None = None

    @property
    def typed_command(self) -> str:
        """The command as the user typed it; "" for a shell."""
        asked = self.request.command if self.request else None
        return (asked and asked.typed) or self.command

    @property
    def next_name(self) -> str:
        """The name of the jobs of later segments, "" where the command cannot resume."""
        return next_job_name(self.race_id) if self.chain else ""

    @property
    def job_names(self) -> tuple[str, ...]:
        """The names of its jobs, by which they can always be found."""
        names = tuple(entry.name for entry in self.entries)
        return (*names, self.next_name) if self.chain else names

    def entry(self, number: int) -> Entry | None:
        """The submission of that number."""
        return next((entry for entry in self.entries if entry.number == number), None)

    def name_of(self, number: int) -> str:
        """The job name of that submission, "" where the race has none of that number."""
        if number == NEXT:
            return self.next_name
        entry = self.entry(number)
        return entry.name if entry else ""

    def number_of(self, claim: "Claim") -> int:
        """The number under which the winner's job is known: of a later segment NEXT."""
        is_later = bool(claim.job_name) and claim.job_name == self.next_name
        return NEXT if is_later else claim.submission

    def parts_of(self, number: int) -> tuple[int, ...]:
        """The submissions that are sent where Slurm refuses this merged one."""
        parts = (entry for entry in self.entries if entry.instead_of)
        return tuple(entry.number for entry in parts if entry.instead_of == number)

    def strategy_of(self, number: int, claim: "Claim | None") -> str:
        """The strategy of a submission; of a merged one that won, what it turned out to be."""
        if claim and claim.submission == number and claim.strategy:
            return claim.strategy
        entry = self.entry(number)
        return entry.strategy if entry else ""

    def winner(self, claim: "Claim") -> Entry | None:
        """The submission that won; of a merged one that part of it which the job became."""
        became = (entry for entry in self.entries if entry.strategy == claim.strategy)
        return next(became, None) or self.entry(claim.submission)


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """Who won: the job and its restart, the submission, and where it runs.

    `strategy` is the one that the job turned out to be. Of a chain it is the latest segment's:
    `elapsed_s` is what those before it ran, `total_s` the whole time on its layout, 0 for not
    known, `used_s` what of that was used up before, None for as much as it ran; `job_name` is the
    name of its job, "" for a submission's own. `token`, a dot and what is random, tells two jobs of
    one id apart: a controller that lost its state gives ids out again. rv 0.1.0 wrote none.
    """

    job_id: int
    restart: int
    submission: int
    nodes: str
    host: str
    started_at: float
    segment: int = 1
    elapsed_s: float = 0.0
    total_s: float = 0.0
    used_s: float | None = None
    job_name: str = ""
    strategy: str = ""
    token: str = ""

    @property
    def owner(self) -> str:
        """The first line of the claim."""
        return f"{self.job_id}.{self.restart}{self.token}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """What the winner wrote when its command ended; `signal` is what ended it, "" by itself.

    Of a segment, `next` says what follows; `why` is the job's own sentence where there is one, and
    `signal` is then TIME where the chain's time or number of segments is used up. `back` is the
    submission whose layout the chain goes back to, 0 where it goes on as before.
    """

    owner: str
    code: int
    signal: str
    ended_at: float
    next: str = ""
    why: str = ""
    back: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """One segment of a chain: who ran it, and its end, None where none is known (yet).

    `next_job_ids` are the jobs that were sent for the segment after it: the first of them that
    starts runs it. The first here has this segment's layout, or that which the chain goes back to.
    """

    number: int
    claim: Claim
    ended: Ended | None = None
    next_job_ids: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class StateFiles:
    """The state files of a race, by submission number or node.

    `sent` is when sbatch was last called (epoch seconds on the clock there), written just before;
    `job_ids` are from its answer; `refused` is Slurm's message; `absent_since` is when a healthy
    controller first did not know a job. `declined` are nodes that failed the node check.
    `closed` is why a client, and no person, stopped it: none of its jobs could start any more.
    `winner_absent_since` says so of the winner of a chain, whose number other jobs had before.
    `unclaimed_since` is when a job was first seen that had completed while no claim showed,
    `unended_since` when the winner of a chain was first seen over while no end of that showed,
    `unsent_since` when a client first saw that nothing of the race was sent.
    `tasks` are those of a sweep that were started.
    """

    claim: Claim | None = None
    ended: Ended | None = None
    lost: str = ""
    stopped: bool = False
    closed: str = ""
    job_ids: tuple[tuple[int, tuple[int, ...]], ...] = ()
    sent: tuple[tuple[int, float], ...] = ()
    refused: tuple[tuple[int, str], ...] = ()
    declined: tuple[tuple[str, str], ...] = ()
    exhausted: tuple[tuple[int, str], ...] = ()
    again: tuple[int, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()
    absent_since: tuple[tuple[int, float], ...] = ()
    winner_absent_since: float | None = None
    segments: tuple[Segment, ...] = ()
    unclaimed_since: float | None = None
    unended_since: float | None = None
    unsent_since: float | None = None
    tasks: TaskRuns = NO_RUNS
    deleted: bool = False
    """The directory was deleted since: the others are what was read before."""

    @property
    def next_job_ids(self) -> tuple[int, ...]:
        """The jobs that were sent for the segment after the one that the claim names."""
        number = self.claim.segment if self.claim else 0
        return next((one.next_job_ids for one in self.segments if one.number == number), ())

    @property
    def next_job_id(self) -> int:
        """Of these the one that goes on as before, 0 for none."""
        return next(iter(self.next_job_ids), 0)

    @property
    def next_submission(self) -> int:
        """The submission of that job: the claim's, or one that the chain goes back to."""
        if self.claim is None:
            return 0
        ends = (one.ended for one in self.segments if one.claim.owner == self.claim.owner)
        back = next((end.back for end in ends if end), 0)
        return back or self.claim.submission


@dataclass(frozen=True, kw_only=True, slots=True)
class JobStatus:
    """One submission's job as far as known; `job_id` 0 where none was ever seen.

    `planned_wait` is from its submission to the start that Slurm plans, None where it plans none.
    """

    number: int
    name: str
    strategy: str
    job_id: int
    state: JobState
    reason: str = ""
    nodes: str = ""
    planned_wait: timedelta | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RaceStatus:
    """The state of a race; `why` is the reason in a sentence, times seconds since the epoch.

    `exit_code` is the command's own (128+n for a signal), None where it is not known. `saved_at` is
    when a chain's latest checkpoint was written, None where there is none or it is not known.
    `gpu_use` is known of a race that is over, None where nothing was measured. `tasks` are those of
    a sweep, None for a race of one command.
    """

    race: Race
    state: RaceState
    jobs: tuple[JobStatus, ...] = ()
    claim: Claim | None = None
    exit_code: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    why: str = ""
    warnings: tuple[str, ...] = ()
    segments: tuple[Segment, ...] = ()
    saved_at: float | None = None
    gpu_use: "GpuUse | None" = None
    tasks: TaskCounts | None = None

    @property
    def has_started(self) -> bool:
        """Whether the command runs or ran, or a task of a sweep did."""
        return self.claim is not None or self.started_at is not None

    @property
    def elapsed_s(self) -> float | None:
        """Seconds that the command ran in all segments that have ended; None if it never started.

        The segment that runs does not count: there is no clock here.
        """
        if self.claim is None:
            return None
        ends = [one.ended for one in self.segments if one.claim.owner == self.claim.owner]
        ended = next((end.ended_at for end in ends if end), self.ended_at)
        here = max(0.0, ended - self.claim.started_at) if ended else 0.0
        return self.claim.elapsed_s + here

    @property
    def used_s(self) -> float | None:
        """Of `total_s` what is used up by the segments that have ended, as this layout counts."""
        if self.claim is None or self.elapsed_s is None or self.claim.used_s is None:
            return self.elapsed_s
        return self.claim.used_s + self.elapsed_s - self.claim.elapsed_s

    @property
    def total_s(self) -> float:
        """The whole time of a chain in seconds, on the layout that it has; 0 for any other race."""
        chain = self.race.chain
        longest_s = chain.total.total_seconds() if chain else 0.0
        return (self.claim.total_s if self.claim else 0.0) or longest_s
