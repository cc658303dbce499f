"""Start a prepared launch: stage the race, submit its waves, watch it."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rv.errors import ErrorKind, RvError
from rv.models.race import Race, RaceStatus
from rv.models.request import Request
from rv.planner.room import require_room
from rv.race.directory import load_state_files
from rv.race.stage import stage
from rv.race.submit import (
    PARALLEL,
    SubmitOutcome,
    SubmitResult,
    submit,
    submit_together,
)
from rv.workflow.cluster import Cluster
from rv.workflow.known_races import keep_race
from rv.workflow.launch import Launch
from rv.workflow.templates import templates

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rv.race.watch import Sink

HOW_TO_FOLLOW: Final = "rv logs -f {race} follows it, rv stop {race} ends it"
_NOT_TAKEN: Final = (SubmitOutcome.REFUSED, SubmitOutcome.UNSENT)


def start(launch: Launch, cluster: Cluster, sink: "Sink", *, detached: bool) -> Race:
    """Stage the race and send its first wave; detached, the later waves wait in Slurm's own queue.

    Raises `RvError(REFUSED)` when Slurm takes none; nothing is then in the queue.
    """
    race = _stage(launch, cluster)
    cluster.cache.forget()
    if cluster.login:
        keep_race(cluster.cache, race)
    results = list(_send(race, race.waves[0], cluster, sink))
    for wave in race.waves[1:]:
        if detached or _none_taken(results):
            options = _held_back(launch.request, results)
            results.extend(_send(race, wave, cluster, sink, options))
    if _none_taken(results):
        raise _refused(results)
    return race


def start_together(
    launches: Sequence[Launch], cluster: Cluster, sink: "Sink", *, at_once: int = 0
) -> list[Race]:
    """Stage many races and submit them in few round trips, for nobody to watch.

    `at_once` is how many of them may run at one time, 0 for all: each of the others waits in Slurm
    for the end of an earlier one. Raises `RvError(LIMIT)`, before anything is made, where they are
    more than the user may submit, and `RvError` where Slurm takes no job of one of them; then, and
    after Ctrl-C, nothing is left in the queue.
    """
    from concurrent.futures import ThreadPoolExecutor

    require_room([launch.plan for launch in launches])
    staged: list[Future[Race]] = []
    try:
        with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
            staged += [pool.submit(_stage, launch, cluster) for launch in launches]
        races = [each.result() for each in staged]
        cluster.cache.forget()
        first = _send_first_waves(races, at_once or len(races), cluster, sink)
        for race, launch, results in zip(races, launches, first, strict=True):
            _hold_rest(race, launch.request, results, cluster, sink)
    except BaseException:
        from rv.workflow.races import stop_races

        with suppress(RvError):
            stop_races([each.result() for each in staged if not each.exception()], cluster)
        raise
    return races


def _hold_rest(
    race: Race, request: Request, first: Sequence[SubmitResult], cluster: Cluster, sink: "Sink"
) -> None:
    """Send the later waves of a race that nobody watches, for Slurm to hold back."""
    if cluster.login:
        keep_race(cluster.cache, race)
    results = list(first)
    for wave in race.waves[1:]:
        results.extend(_send(race, wave, cluster, sink, _held_back(request, results)))
    if _none_taken(results):
        raise _refused(results)


def _send_first_waves(
    races: Sequence[Race], at_once: int, cluster: Cluster, sink: "Sink"
) -> list[tuple[SubmitResult, ...]]:
    """Send the first wave of each race; of a later batch, each waits for one of that before.

    Each race gets one job into the queue before any gets a second: the user's limit may be near.
    """
    sent: list[tuple[SubmitResult, ...]] = []
    for begin in range(0, len(races), at_once):
        batch = races[begin : begin + at_once]
        waits = [_after(results) for results in sent[begin - at_once :]] if sent else [()] * at_once
        leads = [race.waves[0][: 1 if len(races) > 1 else None] for race in batch]
        rests = [race.waves[0][len(lead) :] for race, lead in zip(batch, leads, strict=True)]
        first = _send_together(batch, leads, waits, cluster, sink)
        others = _send_together(batch, rests, waits, cluster, sink)
        sent += [(*one, *more) for one, more in zip(first, others, strict=True)]
    return sent


def _send_together(
    races: Sequence[Race],
    waves: Sequence[Sequence[int]],
    waits: Sequence[tuple[str, ...]],
    cluster: Cluster,
    sink: "Sink",
) -> list[tuple[SubmitResult, ...]]:
    """Send what there is of each race; return its results, () where there was nothing."""
    each = list(zip(races, waves, waits, strict=False))
    results = iter(submit_together([one for one in each if one[1]], cluster.transport))
    sent = [next(results) if wave else () for _, wave, _ in each]
    for one in filter(None, sent):
        sink.submitted(one)
    return sent


def _after(results: Sequence[SubmitResult]) -> tuple[str, ...]:
    """Return the sbatch option by which a job waits for the end of those jobs."""
    ids = ":".join(str(result.job_id) for result in results if result.job_id)
    return (f"--dependency=afterany:{ids}",) if ids else ()


def _stage(launch: Launch, cluster: Cluster) -> Race:
    # What sending code and building a venv took is no time in which the race sat unsubmitted.
    return stage(
        launch.plan,
        launch.request,
        launch.script,
        replace(launch.context, now_s=time.time()),
        launch.payloads,
        templates(),
        cluster.transport,
    )


def _send(
    race: Race, wave: Sequence[int], cluster: Cluster, sink: "Sink", options: tuple[str, ...] = ()
) -> tuple[SubmitResult, ...]:
    results = submit(race, tuple(wave), cluster.transport, options=options)
    sink.submitted(results)
    return results


def _held_back(request: Request, results: Sequence[SubmitResult]) -> tuple[str, ...]:
    """Return the sbatch option that lets Slurm hold a later wave back, with no client to send it.

    Empty where the first wave failed, and where the user says when the jobs may begin.
    """
    if "begin" in dict(request.sbatch) or (results and _none_taken(results)):
        return ()
    seconds = max(1, round(request.widen_after.total_seconds()))
    return (f"--begin=now+{seconds}",)


def _none_taken(results: Sequence[SubmitResult]) -> bool:
    return all(result.outcome in _NOT_TAKEN for result in results)


def _refused(results: Sequence[SubmitResult]) -> RvError:
    text = results[0].text
    if all(result.outcome is SubmitOutcome.UNSENT for result in results):
        return RvError(ErrorKind.STAGE, text, hint="name another disk with RV_RACE_ROOT=/path")
    kind = ErrorKind.LIMIT if "MaxSubmit" in text or "policy" in text else ErrorKind.REFUSED
    return RvError(
        kind,
        f"Slurm refused every job: {text}",
        hint="rv up --dry-run shows the jobs; -p, -A, --qos and --time change them",
    )


def send_rest(race: Race, request: Request, cluster: Cluster, sink: "Sink") -> None:
    """Send the strategies that were not sent yet, for Slurm to hold back a while."""
    from rv.race.recover import unsent

    left = unsent(race, load_state_files(race, cluster.transport))
    if left:
        _send(race, left, cluster, sink, _held_back(request, []))


def watch(
    race: Race,
    launch: Launch,
    cluster: Cluster,
    sink: "Sink",
    *,
    until_claim: bool,
    patience_s: float = 0.0,
) -> RaceStatus:
    """Watch the race to its end, sending the later waves when the first does not start.

    A lost connection ends that `patience_s` seconds after the transport gave up.
    """
    from rv.race.watch import Watch  # who detaches watches nothing

    return Watch(
        race=race,
        queue=cluster.queue,
        sink=sink,
        waves=list(race.waves[1:]),
        widen_after=launch.request.widen_after,
        wait_timeout=launch.request.wait_timeout,
        until_claim=until_claim,
        patience_s=patience_s,
    ).run()
