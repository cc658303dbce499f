"""The GPUs of a race: as they are while it runs, and what its jobs measured once it is over."""

from collections.abc import Sequence
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.gpu_use import GpuNow
from rv.models.race import Claim, Race, RaceStatus
from rv.planner.catalogue import mig_profile
from rv.race.gpu_use import RaceGpus, load_gpu_sums
from rv.slurm.hostlist import expand
from rv.slurm.nvidia_smi import NodeGpus, gpus_script, parse_gpus
from rv.slurm.printable import last_line
from rv.slurm.script import new_sentinel
from rv.transport import LOST, ScriptResult, Transport
from rv.transport.query_retry import retry_query
from rv.workflow.cluster import Cluster
from rv.workflow.races import look_at, require_node, winner_of

_ASKING_S: Final = 60.0
_PATIENCE_S: Final = 60.0


def look_at_gpus(race: Race, cluster: Cluster, node: int | None, now_s: float) -> RaceGpus:
    """Look at the GPUs of a race, of one of its nodes or of all.

    Raises `RvError(USAGE)` for a race that has not started, has no GPUs or was not measured, and
    `RvError(REFUSED)` where Slurm or no node at all says anything.
    """
    require_node(race, node)
    if not any(entry.gpus for entry in race.entries):
        raise RvError(ErrorKind.USAGE, f"race {race.race_id} has no GPUs", hint="rv ps lists races")
    status, _ = look_at(race, cluster, now_s)
    if status.state.is_over:
        return _measured(status, node, cluster.transport)
    claim = winner_of(status)
    try:
        return RaceGpus(status=status, now=_ask(race, claim, node, cluster.transport))
    except RvError:
        # It may have ended meanwhile, and then that is the answer.
        status, _ = look_at(race, cluster, now_s)
        if status.state.is_over:
            return _measured(status, node, cluster.transport)
        raise


def _measured(status: RaceStatus, node: int | None, transport: Transport) -> RaceGpus:
    sums = load_gpu_sums(status.race, transport)
    if node is not None and status.claim:
        (name,) = _nodes(status.claim, node)
        sums = tuple(one for one in sums if one.node == name)
    if not sums:
        raise RvError(
            ErrorKind.USAGE,
            f"race {status.race.race_id} is over, and nothing was measured of its GPUs",
            hint="a command of a few seconds is not measured, nor a MIG slice",
        )
    return RaceGpus(status=status, sums=sums)


def _nodes(claim: Claim, node: int | None) -> tuple[str, ...]:
    """Name the nodes of a job, or the one of this number."""
    names = expand(claim.nodes)
    if node is None:
        return names
    if node >= len(names):
        raise RvError(
            ErrorKind.USAGE,
            f"job {claim.job_id} has no node {node}",
            hint=f"it has {claim.nodes}",
        )
    return names[node : node + 1]


def _ask(race: Race, claim: Claim, node: int | None, transport: Transport) -> tuple[NodeGpus, ...]:
    """Ask all nodes at once. Raises `RvError(REFUSED)` where none has an answer."""
    sentinel = new_sentinel()
    script = gpus_script(claim.job_id, _nodes(claim, node), sentinel)
    done = retry_query(lambda: _unless_lost(transport, script), retry_for_s=_PATIENCE_S)
    if done is None:
        raise RvError(
            ErrorKind.UNREACHABLE,
            f"no answer about the GPUs of race {race.race_id}",
            hint="the race goes on; the same command again",
        )
    answers = parse_gpus(done.stdout, sentinel)
    if not answers:
        why = last_line(done.stderr) or ("it did not answer" if done.returncode else "no answer")
        raise RvError(
            ErrorKind.REFUSED,
            f"srun could not look at job {claim.job_id}: {why.removeprefix('srun: error: ')}",
            hint="rv ps says whether it still runs",
        )
    failures = {answer.failure for answer in answers}
    if all(failures):
        names = ", ".join(answer.node for answer in answers)
        raise RvError(
            ErrorKind.REFUSED,
            f"node {names}: {'; '.join(sorted(failures))}",
            hint="rv logs shows what the command says of its GPUs",
        )
    return _with_slices(race, claim, answers)


def _unless_lost(transport: Transport, script: str) -> ScriptResult | None:
    """Run a script that only looks; None where the connection was lost."""
    done = transport.run(script, timeout_s=_ASKING_S)
    return None if done.returncode == LOST else done


def _with_slices(race: Race, claim: Claim, answers: Sequence[NodeGpus]) -> tuple[NodeGpus, ...]:
    """Name the slice where the job has one: what nvidia-smi says is of the whole card."""
    entry = race.winner(claim)
    profile = mig_profile(entry.gpu) if entry else None
    if profile is None:
        return tuple(answers)
    return tuple(
        NodeGpus(
            node=answer.node,
            gpus=(GpuNow(node=answer.node, index=0, model=f"MIG {profile.name}"),),
            failure=answer.failure,
        )
        for answer in answers
    )
