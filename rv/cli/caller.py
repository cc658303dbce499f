"""Who called rv: environment, directory, clock and cluster, which is asked as early as possible.

This is imported before typer, so that the cluster answers while the command line is being read.
"""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from rv.errors import RvError
from rv.transport.query_retry import Patience
from rv.workflow.cluster import Cluster, Early, SavedCluster, saved_cluster
from rv.workflow.locate import locate
from rv.workflow.this_process import working_directory

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rv.models.snapshot import Snapshot

_NEEDS_NO_ANSWER: Final = ("--help", "-h", "--cluster", "--snapshot")

PATIENCE_S: Final = 60.0
"""For how many seconds a controller that is silent is asked again, unless the user says."""

_asked_early: list[Cluster] = []
_located: dict[str, Cluster] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """The process that called rv, read once; `now_s` is in seconds since the epoch."""

    environ: Mapping[str, str]
    workdir: str
    now_s: float
    cluster: Cluster


def current_caller(
    cluster: str, patience_s: float = PATIENCE_S, early: Early = Early.NOTHING
) -> Caller:
    """Read the environment and find the cluster, as `--cluster` names it.

    One that is silent is asked again for `patience_s` seconds, and the user is told.
    """
    from rv.ui import console

    workdir = working_directory()
    environ: Mapping[str, str] = dict(os.environ)
    asked = _asked_early[0] if _asked_early and not cluster else None
    located = asked or _located.get(cluster) or locate(cluster, environ, early)
    if located.login:
        environ, workdir = located.login.environ, located.login.home
    return Caller(
        environ=environ,
        workdir=workdir,
        now_s=now_s(),
        cluster=replace(located, patience=Patience(limit_s=patience_s, say=console.notice)),
    )


def keep_located(name: str, cluster: Cluster) -> None:
    """Keep a cluster that was found by its name: its connection serves this process on."""
    _located[name] = cluster


def planning_cluster(
    cluster: str, snapshot: str, patience_s: float = PATIENCE_S
) -> Cluster | SavedCluster:
    """Find the cluster to look at: the one that `snapshot` saved, where it names a file."""
    return (
        saved_cluster(snapshot)
        if snapshot
        else current_caller(cluster, patience_s, Early.PLAN).cluster
    )


def now_s() -> float:
    """Seconds since the epoch."""
    return time.time()


def start_fast(arguments: Sequence[str]) -> None:
    """Begin to ask the usual cluster, unless the arguments name another or only want help.

    An error here is raised again, and shown, when the answer is used.
    """
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if any(word.startswith(_NEEDS_NO_ANSWER) for word in own):
        return
    try:
        cluster = locate("", os.environ, Early.PLAN)
    except RvError:
        return
    if cluster.answer or cluster.login:  # it was asked in the first trip
        _asked_early.append(cluster)
        return
    from concurrent.futures import Future

    answer: Future[Snapshot] = Future()
    # A daemon: a command line with an error in it is not kept waiting for the answer.
    once = replace(cluster, patience=Patience(limit_s=0))
    threading.Thread(target=_take_snapshot, args=(once, answer), daemon=True).start()
    _asked_early.append(replace(cluster, answer=answer))


def _take_snapshot(cluster: Cluster, answer: "Future[Snapshot]") -> None:
    try:
        answer.set_result(cluster.take_snapshot())
    except BaseException as failure:  # noqa: BLE001 - raised where the answer is used
        answer.set_exception(failure)
