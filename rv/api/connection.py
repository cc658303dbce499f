"""The clusters that this process is connected to: found once, and again after a fork."""

import os
import threading
from dataclasses import replace
from typing import Final

from rv.api.quiet import LOG
from rv.transport.query_retry import Patience
from rv.workflow.cluster import Cluster, Early
from rv.workflow.locate import locate

_PATIENCE_S: Final = 60.0


class _Connections:
    """Connections by name; a child process makes its own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.known: dict[str, Cluster] = {}


_connections: Final = _Connections()
os.register_at_fork(after_in_child=_connections.__init__)  # type: ignore[misc]


def connect(
    cluster: str = "", early: Early = Early.NOTHING, patience_s: float = _PATIENCE_S
) -> Cluster:
    """Find a cluster as `--cluster` names it; a login to one that is elsewhere is kept.

    Raises `RvError` as `rv.workflow.locate.locate` does.
    """
    name = cluster or os.environ.get("RV_CLUSTER", "")
    with _connections.lock:
        found = _connections.known.get(name)
        if found is None:
            found = locate(cluster, os.environ, early)
            if found.login:
                _connections.known[name] = replace(found, answer=None)
    return replace(found, patience=Patience(limit_s=patience_s, say=LOG.info))
