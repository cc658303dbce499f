"""What a race asked for or got, and how long it has: for its row, its line and its JSON. Pure."""

from rv.models.race import Entry, JobStatus, RaceState, RaceStatus
from rv.slurm.printable import printable


def gpu_count(status: RaceStatus) -> int:
    """Return how many GPUs the race has, or may get at most."""
    return max((entry.gpus for entry in _entries(status)), default=0)


def gpu_models(status: RaceStatus) -> list[str]:
    """Name the GPU model of the winner, without one each that the race may get, the best first."""
    names = (name for entry in _entries(status) if entry.gpus for name in entry.gpu.split("|"))
    return [name for name in dict.fromkeys(names) if name]


def layouts(status: RaceStatus) -> list[str]:
    """Name layouts likewise, nodes by GPUs on each: `2x4`; a node without GPUs has none."""
    entries = [entry for entry in _entries(status) if entry.gpus or entry.nodes > 1]
    shapes = (f"{e.nodes}x{e.gpus // e.nodes}" for e in entries if e.nodes > 0)
    return list(dict.fromkeys(shapes))


def _entries(status: RaceStatus) -> list[Entry]:
    """The submission that won; before, those that may win, but not the parts of merged ones."""
    won = status.race.winner(status.claim) if status.claim else None
    return [won] if won else [entry for entry in status.race.entries if not entry.instead_of]


def typed_command(status: RaceStatus) -> str:
    """Return the command as the user typed it, on one line; "" for a shell."""
    return " ".join(printable(status.race.typed_command).split())


def ends_by_s(status: RaceStatus) -> float | None:
    """When the walltime of the job that runs is over, in seconds since the epoch."""
    claim = status.claim
    entry = status.race.winner(claim) if claim else None
    if claim is None or entry is None or status.state is not RaceState.RUNNING:
        return None
    if not entry.walltime or not claim.started_at:
        return None
    return claim.started_at + entry.walltime.total_seconds()


def ran_s(status: RaceStatus) -> float | None:
    """How long the command ran, in seconds; None where it has not ended, or nobody knows."""
    return status.elapsed_s if status.started_at and status.ended_at else None


def planned_start_s(job: JobStatus, status: RaceStatus, now_s: float) -> float | None:
    """Return in how many seconds Slurm plans to start a job, None where it says nothing.

    A plan whose moment has passed is none: Slurm makes another when it looks again.
    """
    if job.planned_wait is None or not job.state.is_pending:
        return None
    left_s = status.race.submitted_at + job.planned_wait.total_seconds() - now_s
    return left_s if left_s > 0 else None
