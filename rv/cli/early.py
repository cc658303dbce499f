"""Ask the usual cluster what a command will need, before the command is read.

This is imported before nearly all of rv: the cluster answers while the rest is being loaded.
"""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rv.models.snapshot import Snapshot
    from rv.workflow.cluster import Cluster

_NEEDS_NO_ANSWER: Final = ("--help", "-h", "--cluster", "--snapshot")


def ask_early(arguments: Sequence[str]) -> None:
    """Begin to ask the usual cluster, unless the arguments name another or only want help.

    An error here is raised, and shown, when the answer is used.
    """
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if any(word.startswith(_NEEDS_NO_ANSWER) for word in own):
        return
    from rv.cli.caller import keep_failure, keep_located
    from rv.errors import RvError
    from rv.workflow.cluster import Early
    from rv.workflow.locate import locate

    name = own[0]
    early = Early.RACES_AND_QUEUE if name == "ps" else Early.PLAN
    try:
        cluster = locate("", os.environ, early, lambda: _load(name))
    except RvError as failure:
        keep_failure("", failure)
        return
    if not cluster.login:  # one that is elsewhere was asked in the first trip
        cluster = _with_queue(cluster) if name == "ps" else _with_snapshot(cluster)
    keep_located("", cluster)


def _load(name: str) -> None:
    """Import what a command needs, while an answer travels."""
    from rv.cli.app import command_module

    command_module(name)


def _with_queue(cluster: "Cluster") -> "Cluster":
    """Return a cluster of this machine that is being asked for the user's queue."""
    return replace(cluster, asking=_in_background(lambda: _ask_queue(cluster)))


def _with_snapshot(cluster: "Cluster") -> "Cluster":
    """Return a cluster of this machine that is being asked for a snapshot."""
    from concurrent.futures import Future

    from rv.transport.query_retry import Patience

    answer: Future[Snapshot] = Future()
    once = replace(cluster, patience=Patience(limit_s=0))
    _in_background(lambda: _take_snapshot(once, answer))
    return replace(cluster, answer=answer)


def _in_background(ask: Callable[[], None]) -> threading.Thread:
    """Ask in a thread that does not keep a command waiting: its line may have an error."""
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


def _ask_queue(cluster: "Cluster") -> None:
    with suppress(Exception):  # it is asked again, and raised, where it is needed
        cluster.ask_queue()


def _take_snapshot(cluster: "Cluster", answer: "Future[Snapshot]") -> None:
    try:
        answer.set_result(cluster.take_snapshot())
    except BaseException as failure:  # noqa: BLE001 - raised where the answer is used
        answer.set_exception(failure)
