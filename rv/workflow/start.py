"""Start a prepared launch: stage the race, submit its waves, watch it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rv.errors import ErrorKind, RvError
from rv.models.race import Race, RaceStatus
from rv.models.request import Request
from rv.race.directory import load_state_files
from rv.race.stage import stage
from rv.race.submit import SubmitOutcome, SubmitResult, submit
from rv.workflow.cluster import Cluster
from rv.workflow.known_races import keep_race
from rv.workflow.launch import Launch, read_template

if TYPE_CHECKING:
    from rv.race.watch import Sink

HOW_TO_FOLLOW: Final = "rv logs -f {race} follows it, rv stop {race} ends it"
_NOT_TAKEN: Final = (SubmitOutcome.REFUSED, SubmitOutcome.UNSENT)


def start(launch: Launch, cluster: Cluster, sink: "Sink", *, detached: bool) -> Race:
    """Stage the race and send its first wave; detached, the later waves wait in Slurm's own queue.

    Raises `RvError(REFUSED)` when Slurm takes none; nothing is then in the queue.
    """
    race = stage(
        launch.plan,
        launch.request,
        launch.script,
        launch.context,
        launch.payloads,
        read_template,
        cluster.transport,
    )
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
    race: Race, launch: Launch, cluster: Cluster, sink: "Sink", *, until_claim: bool
) -> RaceStatus:
    """Watch the race to its end, sending the later waves when the first does not start."""
    from rv.race.watch import Watch  # who detaches watches nothing

    return Watch(
        race=race,
        queue=cluster.queue,
        sink=sink,
        waves=list(race.waves[1:]),
        widen_after=launch.request.widen_after,
        wait_timeout=launch.request.wait_timeout,
        until_claim=until_claim,
    ).run()
