"""What is free of one node, and when: what is used now, less what ends, less what is to begin."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from operator import itemgetter
from typing import Final, NamedTuple

from rv.dataclass import dataclass
from rv.models.snapshot import Node

FOREVER: Final = inf


class Window(NamedTuple):
    """A time in which a node has the capacity, in seconds from now; the end may be infinite."""

    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeDemand:
    """What one node's part of a job needs; `gpu_type` is the GRES type, "" where untyped."""

    cpus: int
    memory_mib: int
    gpus: int
    gpu_type: str
    whole: bool

    def fits(self, capacity: "FreeCapacity") -> bool:
        """Whether the capacity is enough."""
        return (
            capacity.gpus >= self.gpus
            and capacity.cpus >= self.cpus
            and capacity.memory_mib >= self.memory_mib
            and (capacity.unused or not self.whole)
        )


class Occupancy(NamedTuple):
    """What a job or a reservation holds of one node between two moments, in seconds from now.

    `whole`: nothing of the node is left for others. GPUs of a job whose type is not known count
    against every type.
    """

    start_s: float
    end_s: float
    cpus: int = 0
    memory_mib: int = 0
    gpus: int = 0
    gpu_type: str = ""
    whole: bool = False
    running: bool = False


_Change = tuple[float, Callable[[Occupancy], None], Occupancy]


class FreeCapacity(NamedTuple):
    """What is free of a node from `start_s` to `end_s`, in seconds from now; GPUs are of one type.

    `unused`: nothing on the node is held by anybody.
    """

    start_s: float
    end_s: float
    cpus: int
    memory_mib: int
    gpus: int
    unused: bool


def open_windows(capacities: Iterable[FreeCapacity], demand: NodeDemand) -> list[Window]:
    """Join the times, one after the other, in which the demand fits."""
    windows: list[Window] = []
    for capacity in filter(demand.fits, capacities):
        if windows and windows[-1].end_s == capacity.start_s:
            windows[-1] = Window(windows[-1].start_s, capacity.end_s)
        else:
            windows.append(Window(capacity.start_s, capacity.end_s))
    return windows


def first_window(capacities: Iterable[FreeCapacity], demand: NodeDemand) -> tuple[Window, ...]:
    """Return the time from which on the demand fits, for nodes on which nothing is to begin.

    What fits there once fits ever after, and no later capacity has to be worked out.
    """
    fitting = next(filter(demand.fits, capacities), None)
    return (Window(fitting.start_s, FOREVER),) if fitting else ()


def free_capacities(occupancies: Sequence[Occupancy], tally: "Tally") -> Iterator[FreeCapacity]:
    """Yield what is free in each time in which the node can be shared at all, in order."""
    since_s = 0.0
    for moment_s, change, occupancy in _changes(occupancies, tally):
        if moment_s > since_s:
            if tally.is_shared:
                yield tally.free(since_s, moment_s)
            since_s = moment_s
        change(occupancy)
    if tally.is_shared:
        yield tally.free(since_s, FOREVER)


def _changes(occupancies: Sequence[Occupancy], tally: "Tally") -> list[_Change]:
    """Count what holds the node now, and return what begins or ends later, in order."""
    changes: list[_Change] = []
    for one in occupancies:
        if one.start_s > 0 and one.start_s < one.end_s:
            changes.append((one.start_s, tally.begin, one))
        elif one.start_s < one.end_s:
            tally.begin(one)
    # At one moment starts come before ends: the sort keeps their order.
    changes += [
        (one.end_s, tally.finish, one) for one in occupancies if one.start_s < one.end_s < FOREVER
    ]
    changes.sort(key=itemgetter(0))
    return changes


class Tally:
    """What is held at one moment: what is used now, less what has ended, plus what is planned."""

    def __init__(self, node: Node, gpu_type: str, total_gpus: int, free_gpus: int) -> None:
        self._cpus, self._mib, self._total_gpus = node.cpus, node.memory_mib, total_gpus
        self._gpu_type = gpu_type
        self._allocated = "ALLOCATED" in node.states
        self._free_cpus = node.cpus - node.cpus_used
        self._free_mib = node.memory_mib - node.memory_used_mib
        self._free_gpus = free_gpus
        self._due_cpus = self._due_mib = self._due_gpus = 0
        self._held = self._whole = 0

    def begin(self, occupancy: Occupancy) -> None:
        """Count an occupancy from its start on; what running jobs hold the node counts itself."""
        self._held += 1
        self._whole += occupancy.whole
        if not occupancy.running:
            self._due_cpus += occupancy.cpus
            self._due_mib += occupancy.memory_mib
            self._due_gpus += self._of_type(occupancy)

    def finish(self, occupancy: Occupancy) -> None:
        """Count an occupancy no more."""
        self._held -= 1
        self._whole -= occupancy.whole
        if occupancy.running:
            self._allocated = False
            self._free_cpus += occupancy.cpus
            self._free_mib += occupancy.memory_mib
            self._free_gpus += self._of_type(occupancy)
        else:
            self._due_cpus -= occupancy.cpus
            self._due_mib -= occupancy.memory_mib
            self._due_gpus -= self._of_type(occupancy)

    def _of_type(self, occupancy: Occupancy) -> int:
        is_of_type = not self._gpu_type or occupancy.gpu_type in ("", self._gpu_type)
        return occupancy.gpus if is_of_type else 0

    @property
    def is_shared(self) -> bool:
        """Whether others may have a part of the node."""
        return not self._whole and not self._allocated

    def free(self, start_s: float, end_s: float) -> FreeCapacity:
        """Return what is free. Jobs that this user may not see end at no known time."""
        cpus = self._free_cpus
        return FreeCapacity(
            start_s,
            end_s,
            cpus=min(cpus, self._cpus) - self._due_cpus,
            memory_mib=min(self._free_mib, self._mib) - self._due_mib,
            gpus=min(self._free_gpus - self._due_gpus, self._total_gpus),
            unused=not self._held and cpus >= self._cpus,
        )
