"""Ask the usual cluster what a command will need, before the command is read.

This is imported before nearly all of rv: the cluster answers while the rest is being loaded.
"""

import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

from rv.errors import RvError

if TYPE_CHECKING:
    from rv.transport.kept_command import Kept
    from rv.workflow.cluster import Cluster

_READERS: Final = {
    "ps": ("tarfile", "rv.slurm.squeue", "rv.workflow.known_races", "rv.workflow.names")
}
"""What reads the answer, by command."""

_NEEDS_NO_ANSWER: Final = ("--help", "-h", "--cluster", "--snapshot")


def ask_early(arguments: Sequence[str]) -> None:
    """Begin to ask the usual cluster, unless the arguments name another or only want help.

    An error here is raised, and shown, when the answer is used.
    """
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if any(word.startswith(_NEEDS_NO_ANSWER) for word in own):
        return
    name = own[0]
    try:
        cluster = _located(name)
    except RvError as failure:
        from rv.cli.caller import keep_failure

        keep_failure("", failure)
        return
    if not cluster.login:  # one that is elsewhere was asked in the first trip
        cluster = _with_queue(cluster) if name == "ps" else _with_snapshot(cluster)
    from rv.cli.caller import keep_located  # only now: what it loads asks nothing

    keep_located("", cluster)


def _located(name: str) -> "Cluster":
    """Find the usual cluster, which is asked meanwhile. Raises what `locate` raises."""
    if name != "ps":
        return _locate(name, None)
    from rv.transport.kept_command import Kept

    kept = Kept()  # before anything else is loaded
    try:
        return _locate(name, kept)
    finally:
        kept.end()


def _locate(name: str, kept: "Kept | None") -> "Cluster":
    from rv.workflow.cluster import Early
    from rv.workflow.locate import locate

    early = Early.RACES_AND_QUEUE if name == "ps" else Early.PLAN
    return locate("", os.environ, early, lambda: _load(name), kept)


def _load(name: str) -> None:
    """Import what a command needs, and what reads the answer, while that travels."""
    from rv.cli.app import command_module

    command_module(name)
    for module in _READERS.get(name, ()):
        import_module(module)


def _with_queue(cluster: "Cluster") -> "Cluster":
    """Return a cluster of this machine that is being asked for the user's queue."""
    from dataclasses import replace

    from rv.transport.ahead import Ahead

    return replace(cluster, asking=Ahead(cluster.ask_queue).answer)


def _with_snapshot(cluster: "Cluster") -> "Cluster":
    """Return a cluster of this machine that is being asked for a snapshot."""
    from dataclasses import replace

    from rv.transport.ahead import Ahead
    from rv.transport.query_retry import Patience

    once = replace(cluster, patience=Patience(limit_s=0))
    return replace(cluster, answer=Ahead(once.take_snapshot).answer)
