"""Who called rv: environment, directory, clock and cluster."""

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rv.dataclass import dataclass
from rv.errors import RvError
from rv.models.request import Request
from rv.models.site import Site
from rv.workflow.environments import working_directory
from rv.workflow.saved_cluster import SavedCluster, saved_cluster

if TYPE_CHECKING:
    from rv.workflow.cluster import Cluster, Early

PATIENCE_S: Final = 60.0
"""For how many seconds a controller that is silent is asked again, unless the user says."""

_located: dict[str, "Cluster"] = {}
_failed: dict[str, RvError] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """The process that called rv, read once; `now_s` is in seconds since the epoch."""

    environ: Mapping[str, str]
    workdir: str
    now_s: float
    cluster: "Cluster"


def current_caller(
    cluster: str, patience_s: float = PATIENCE_S, early: "Early | None" = None
) -> Caller:
    """Read the environment and find the cluster, as `--cluster` names it.

    One that is silent is asked again for `patience_s` seconds, and the user is told.
    """
    from rv.transport.query_retry import Patience  # a plan on a saved cluster needs none of this
    from rv.ui import console
    from rv.workflow.cluster import Early
    from rv.workflow.locate import locate

    workdir = working_directory()
    environ: Mapping[str, str] = dict(os.environ)
    if failure := _failed.pop(cluster, None):
        raise failure
    located = _located.get(cluster) or locate(cluster, environ, early or Early.NOTHING)
    if located.login:
        environ, workdir = located.login.environ, located.login.home
    return Caller(
        environ=environ,
        workdir=workdir,
        now_s=now_s(),
        cluster=replace(located, patience=Patience(limit_s=patience_s, say=console.notice)),
    )


def keep_located(name: str, cluster: "Cluster") -> None:
    """Keep a cluster that was found by its name: its connection serves this process on."""
    _located[name] = cluster


def keep_failure(name: str, failure: RvError) -> None:
    """Keep why a cluster was not found by its name: nobody waits for that a second time."""
    _failed[name] = failure


def planning_cluster(
    cluster: str, snapshot: str, patience_s: float = PATIENCE_S
) -> "Cluster | SavedCluster":
    """Find the cluster to look at: the one that `snapshot` saved, where it names a file."""
    if snapshot:
        return saved_cluster(snapshot)
    from rv.workflow.cluster import Early

    return current_caller(cluster, patience_s, Early.PLAN).cluster


def with_rates(site: Site, request: Request | None, cluster: str) -> Site:
    """Return the site with what is known of a cluster's GPUs, where a request needs it."""
    if request is None or not request.is_timed:
        return site
    from rv.accept.rates import rated  # sqlite, and pydantic: most plans need neither

    return rated(site, cluster)


def now_s() -> float:
    """Seconds since the epoch."""
    return time.time()
