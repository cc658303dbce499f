"""Compile ranked strategies into the jobs of a race, in the waves in which they are sent."""

from collections.abc import Mapping
from dataclasses import dataclass

from rv.models.plan import Source, Strategy, Submission
from rv.models.request import Fanout, Request
from rv.planner.limits import Owner, submit_room
from rv.planner.usage import Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiled:
    """The jobs, their waves, and what the user should know of those that were left out."""

    submissions: tuple[Submission, ...]
    waves: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...]


def compile_jobs(
    ranked: tuple[Strategy, ...],
    request: Request,
    owners: Mapping[str, tuple[Owner, ...]],
    usage: Usage,
) -> Compiled:
    """Choose the strategies to submit, in rank order, within the cap and the MaxSubmit headroom.

    `owners` holds the owners of limits of each strategy, by its id.
    """
    each = request.fanout is Fanout.EACH
    left: dict[str, int | None] = {}
    chosen: list[Strategy] = []
    beyond = in_segments = 0
    full: dict[str, int] = {}
    for strategy in ranked:
        if strategy.covered_by and not each:
            continue
        if strategy.segments > 1 and not request.checkpoint:
            in_segments += 1
            continue
        blocking = _take(owners.get(strategy.id, ()), left, usage)
        if blocking:
            full[blocking] = full.get(blocking, 0) + 1
        elif len(chosen) >= request.max_submissions:
            beyond += 1
        else:
            _book(owners.get(strategy.id, ()), left)
            chosen.append(strategy)
    jobs = tuple(Submission(number=n, strategies=(s,)) for n, s in enumerate(chosen, 1))
    return Compiled(
        submissions=jobs,
        waves=_waves(jobs, each=each),
        notes=(*_notes(beyond, full, request.max_submissions), *_unasked(in_segments)),
    )


def _take(order: tuple[Owner, ...], left: dict[str, int | None], usage: Usage) -> str:
    """Name the owner that has no room for another job; "" where all have."""
    for owner in order:
        room = left.setdefault(owner.name, submit_room(owner, usage))
        if room == 0:
            return owner.name
    return ""


def _book(order: tuple[Owner, ...], left: dict[str, int | None]) -> None:
    for owner in order:
        room = left[owner.name]
        if room is not None:
            left[owner.name] = room - 1


def _waves(jobs: tuple[Submission, ...], *, each: bool) -> tuple[tuple[int, ...], ...]:
    numbers = tuple(job.number for job in jobs)
    if not numbers:
        return ()
    idle = jobs[0].strategy.estimate.source is Source.IDLE
    if each or not idle or len(numbers) == 1:
        return (numbers,)
    return (numbers[:1], numbers[1:])


def _unasked(in_segments: int) -> tuple[str, ...]:
    if not in_segments:
        return ()
    plural = "strategy is" if in_segments == 1 else "strategies are"
    why = "add --checkpoint for a command that can resume"
    return (f"{in_segments} checkpoint {plural} not submitted: {why}",)


def _notes(beyond: int, full: Mapping[str, int], cap: int) -> tuple[str, ...]:
    notes = []
    if beyond:
        plural = "strategy is" if beyond == 1 else "strategies are"
        notes.append(f"{beyond} {plural} not submitted: a race has at most {cap} jobs")
    for owner, count in sorted(full.items()):
        plural = "strategy is" if count == 1 else "strategies are"
        notes.append(
            f"{count} {plural} not submitted: {owner} has no room for more jobs (MaxSubmit)"
        )
    return tuple(notes)
