"""A cluster's GPUs, looked at again and again: as seldom as one answer is shared."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from rv.errors import ErrorKind, RvError
from rv.models.plan import PoolView
from rv.transport.query_retry import Patience
from rv.workflow.cluster import Cluster
from rv.workflow.queries import free_gpus


@dataclass(kw_only=True, slots=True)
class PoolsWatch:
    """One client's watch over the GPUs of a cluster; `clock` is seconds since the epoch.

    `silent_since_s` is when Slurm was first asked in vain, None while it answers.
    """

    cluster: Cluster
    clock: Callable[[], float] = time.time
    silent_since_s: float | None = None
    _pools: tuple[PoolView, ...] | None = None

    def look(self) -> tuple[PoolView, ...]:
        """Return what there is now, or was when Slurm last answered.

        Raises `RvError` where it never did, and for anything but silence.
        """
        began_s = self.clock()
        try:
            self._pools = free_gpus(self.cluster)
        except RvError as failure:
            if self._pools is None or failure.kind is not ErrorKind.UNREACHABLE:
                raise
            self.silent_since_s = self.silent_since_s or began_s
            return self._pools
        self.silent_since_s = None
        # What was on its way when rv began has been used, and what is said now has a place.
        self.cluster = replace(self.cluster, answer=None, patience=Patience())
        return self._pools
