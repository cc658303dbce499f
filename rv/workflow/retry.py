"""Start a race again whose node was lost: the same request, without the nodes that failed."""

from dataclasses import replace

from rv.models.race import RaceState, RaceStatus
from rv.models.site import Site
from rv.race.waiting import NODE_FAILURES
from rv.slurm.hostlist import expand
from rv.workflow.cluster import Cluster
from rv.workflow.launch import Launch, prepare


def may_retry(status: RaceStatus) -> bool:
    """Whether a race ended because of a node: its winner was lost, or no job got over a failure."""
    if status.claim or status.state is not RaceState.FAILED:
        return status.state is RaceState.LOST
    return any(job.state in NODE_FAILURES for job in status.jobs)


def failed_nodes(status: RaceStatus) -> tuple[str, ...]:
    """Name the nodes of the jobs that failed. Of several nodes Slurm does not say which it was."""
    lists = [status.claim.nodes] if status.claim else []
    lists += [job.nodes for job in status.jobs if job.state in NODE_FAILURES]
    return tuple(dict.fromkeys(node for text in lists for node in expand(text)))


def prepare_again(
    launch: Launch, status: RaceStatus, target: Cluster, now: float, site: Site
) -> Launch:
    """Plan the request anew on the cluster as it is now. Raises `RvError` like `prepare`."""
    nodes = dict.fromkeys((*launch.request.exclude_nodes, *failed_nodes(status)))
    target.cache.forget()
    return prepare(
        replace(launch.request, exclude_nodes=tuple(nodes)),
        replace(target, answer=None),
        launch.around.workdir,
        launch.around.environment,
        now,
        site,
        retry_of=status.race.race_id,
    )
