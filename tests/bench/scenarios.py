"""The seeded loads that contenders meet. Pure: a seed gives the same jobs for each of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.bench.load import LoadJob, Role, Shape
from tests.bench.traces import WORKLOADS, ordinary_day


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """Jobs, in the order of their submission, and the request that then meets them."""

    jobs: tuple[LoadJob, ...]
    gpus: int
    minutes: int


def idle(dice: Random, shape: Shape, size: int) -> Scenario:
    """A few small jobs on a quiet cluster."""
    nodes = dice.sample(_all_nodes(shape), dice.randint(0, 4))
    jobs = tuple(_busy(place, dice.randint(1, size // 2), 3, 150) for place in nodes)
    return Scenario(jobs=jobs, gpus=dice.choice((1, 2, 4)), minutes=dice.randint(1, 3))


def one_model_full(dice: Random, shape: Shape, size: int) -> Scenario:
    """Every GPU of a model taken and a queue before it; the others have one to three free nodes.

    In half of the seeds somebody else sends a job for a whole node in the same two seconds.
    """
    full = dice.choice(sorted(shape))
    jobs = [_busy((full, node), size, 3, 150) for node in shape[full]]
    others = [place for place in _all_nodes(shape) if place[0] != full]
    free = dice.sample(others, dice.randint(2, 3))
    jobs += [_busy(p, dice.randint(1, size), 3, 150) for p in others if p not in free]
    jobs += [_waiting(full, size, 2, 60) for _ in range(2)]
    if dice.random() < 0.5:
        at = dice.uniform(0, 2)
        jobs.append(_later(free[0][0], size, 2, 60, after=at))
    return Scenario(jobs=tuple(jobs), gpus=size, minutes=2)


def fragmented(dice: Random, shape: Shape, size: int) -> Scenario:
    """Two nodes of one model have half of their GPUs free; every other node is full for a while."""
    split = dice.choice(sorted(shape))
    halves = dice.sample([(split, node) for node in shape[split]], 2)
    jobs = [_busy(place, size // 2, 3, 150) for place in halves]
    whole = [place for place in _all_nodes(shape) if place not in halves]
    jobs += [_busy(place, size, 2, dice.uniform(40, 70)) for place in whole]
    return Scenario(jobs=tuple(jobs), gpus=size, minutes=1)


def short_holes(dice: Random, shape: Shape, size: int) -> Scenario:
    """Big jobs are planned in two partitions, with idle nodes until then.

    The one with more idle GPUs is a decoy: its hole is shorter than the request's walltime.
    """
    decoy = dice.choice([name for name in sorted(shape) if len(shape[name]) > 2])
    real = dice.choice([name for name in sorted(shape) if name != decoy])
    jobs = list(_before_big(decoy, shape[decoy], size, 1, busy=1))
    jobs += _before_big(real, shape[real], size, 3, busy=len(shape[real]) - 1)
    for partition, node in _all_nodes(shape):
        if partition not in (decoy, real):
            jobs.append(_busy((partition, node), size, 3, dice.uniform(60, 150)))
    jobs.sort(key=lambda job: job.role is not Role.RUNS)
    return Scenario(jobs=tuple(jobs), gpus=size, minutes=dice.choice((1, 2)))


def fair_share_backlog(dice: Random, shape: Shape, size: int) -> Scenario:
    """All is taken but a remnant; others wait in most partitions and come before the request.

    More of them come after it, and overtake it too. The remnant lies where the queue is longest.
    """
    names = sorted(shape)
    dice.shuffle(names)
    jobs = [_busy(place, size, 2, dice.uniform(15, 60)) for place in _all_nodes(shape)]
    remnant = next(at for at, job in enumerate(jobs) if job.partition == names[0])
    jobs[remnant] = _busy((names[0], jobs[remnant].node), size - 1, 2, 100)
    for partition, count in zip(names, (3, 2, 1, 0), strict=True):
        jobs += [_waiting(partition, size, 1, dice.uniform(30, 50)) for _ in range(count)]
    for _ in range(dice.randint(1, 3)):
        jobs.append(_later(dice.choice(names), size, 1, 40, after=dice.uniform(1, 15)))
    return Scenario(jobs=tuple(jobs), gpus=size, minutes=1)


def _after_trace(
    workload: str,
) -> Callable[[Random, Shape, int], Scenario]:
    """An ordinary day of a published workload."""

    def drawn(dice: Random, shape: Shape, size: int) -> Scenario:
        jobs, gpus, minutes = ordinary_day(WORKLOADS[workload], dice, shape, size)
        return Scenario(jobs=jobs, gpus=gpus, minutes=minutes)

    return drawn


SCENARIOS: Final[Mapping[str, Callable[[Random, Shape, int], Scenario]]] = {
    "idle": idle,
    "one model full": one_model_full,
    "fragmented 2+2": fragmented,
    "short holes": short_holes,
    "fair-share backlog": fair_share_backlog,
    **{f"like {name}": _after_trace(name) for name in WORKLOADS},
}


def draw(name: str, seed: int, shape: Shape, size: int) -> Scenario:
    """The load of a scenario and a seed on a cluster of `size` GPUs a node."""
    return SCENARIOS[name](Random(f"{name}/{seed}"), shape, size)


Place = tuple[str, str]


def _all_nodes(shape: Shape) -> list[Place]:
    return [(partition, node) for partition, nodes in shape.items() for node in nodes]


def _busy(place: Place, gpus: int, minutes: int, seconds: float) -> LoadJob:
    partition, node = place
    return LoadJob(partition=partition, node=node, gpus=gpus, minutes=minutes, seconds=seconds)


def _waiting(partition: str, gpus: int, minutes: int, seconds: float) -> LoadJob:
    return LoadJob(
        partition=partition, gpus=gpus, minutes=minutes, seconds=seconds, role=Role.WAITS
    )


def _later(partition: str, gpus: int, minutes: int, seconds: float, *, after: float) -> LoadJob:
    return LoadJob(
        partition=partition,
        gpus=gpus,
        minutes=minutes,
        seconds=seconds,
        role=Role.LATER,
        after=after,
    )


def _before_big(
    partition: str, nodes: tuple[str, ...], size: int, minutes: int, *, busy: int
) -> Iterator[LoadJob]:
    """Some nodes busy to the end of their limit, and a job for all of them planned after it."""
    for node in nodes[:busy]:
        yield _busy((partition, node), size, minutes, minutes * 60 - 4)
    yield LoadJob(
        partition=partition,
        gpus=size,
        nodes=len(nodes),
        minutes=2,
        seconds=20,
        role=Role.PLANNED,
    )
