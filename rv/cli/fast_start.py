"""Ask the cluster while the command line is still being read: both take a tenth of a second."""

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from rv.errors import RvError
from rv.models.snapshot import Snapshot
from rv.workflow.cluster import Cluster, locate

_OTHERWISE: Final = ("--help", "-h", "--cluster", "--snapshot")

_asked: list[Cluster] = []


def ask(arguments: Sequence[str]) -> None:
    """Begin to ask the usual cluster, unless the arguments name another or only want help.

    What goes wrong here goes wrong again, and is told, when the answer is wanted.
    """
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if any(word.startswith(_OTHERWISE) for word in own):
        return
    try:
        target = locate("", os.environ)
    except RvError:
        return
    answer: Future[Snapshot] = Future()
    # A daemon: a command line with an error in it is not kept waiting for the answer.
    threading.Thread(target=_fill, args=(answer, target), daemon=True).start()
    _asked.append(replace(target, answer=answer))


def asked(cluster: str) -> Cluster | None:
    """Return the target of an answer on its way, where it is the cluster that is wanted."""
    return _asked[0] if _asked and not cluster else None


def _fill(answer: Future[Snapshot], target: Cluster) -> None:
    try:
        answer.set_result(target.take_snapshot())
    except BaseException as failure:  # noqa: BLE001 - raised where the answer is wanted
        answer.set_exception(failure)
