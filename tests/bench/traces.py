"""Loads in the shape of published workloads, scaled to a sandbox. Pure: a seed gives the same jobs.

Nothing of a trace itself is here: jobs are drawn from what papers say of it, and a small first-fit
queue is run on them until the cluster is as it would be on an ordinary day. What that leaves running
and waiting, and what arrives afterwards, is the load.

Taken from others:
 - hpc: Lublin and Feitelson's model of batch jobs (J. Parallel Distrib. Comput. 63(11), 2003), fitted
   to logs of the Parallel Workloads Archive: sizes, run times and inter-arrival times of rush hours,
   with the parameters of its published program.
 - philly: durations as the program of Narayanan et al. (Gavel, OSDI 2020) draws them after
   Microsoft's Philly trace (Jeon et al., USENIX ATC 2019): 10^x minutes, x even in 1.5 to 3 for 80 %
   of the jobs, else in 3 to 4; and its sizes, but for how its 25 % with two to four GPUs are shared:
   70 % of jobs have one GPU, 5 % eight.
 - helios: after Hu et al. (SC 2021): GPU jobs last 6,652 s on average and 206 s in the median, most
   have one GPU and less than a tenth eight or more; not checked against the trace itself.

Synthesised here: a lognormal with helios' mean and median; how sizes spread between one GPU and
eight; Poisson arrivals of philly and helios; no times of day; each job's partition; limits, which
are asked for too long; the scale. A job's mean is made MEAN_S, cut at LONGEST_S, and jobs arrive
as fast as keeps BUSY of the GPUs in use (hpc, whose gaps have a heavy tail, 10 to 20 % less).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.bench.load import LoadJob, Role, Shape

MEAN_S: Final = 45.0
SHORTEST_S: Final = 2.0
LONGEST_S: Final = 165.0
BUSY: Final = 0.95
WARM_UP_S: Final = 900.0
AFTER_S: Final = 60.0
"""For so long after the typing jobs keep arriving."""
LEAD_S: Final = 7.0
"""From the load's first job to the typing: what runs then began so much sooner."""
MOST_WAITING: Final = 12
_OVERASKED: Final = (1.0, 2.5)
_SAMPLE: Final = 4000

Drawn = tuple[int, float]
"""GPUs, and seconds or what is proportional to them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """How jobs are drawn: GPUs with a run time, and the time until the next one in any unit."""

    job: Callable[[Random], Drawn]
    gap: Callable[[Random], float]


def _hpc_job(dice: Random) -> Drawn:
    """Lublin and Feitelson's batch job on a cluster of eight processors, each taken for a GPU."""
    serial, power_of_two, low, middle, high, small = 0.244, 0.576, 0.8, 1.5, 3.0, 0.86
    die = dice.random()
    size = 1
    if die > serial:
        first = dice.random() <= small
        exponent = dice.uniform(low, middle) if first else dice.uniform(middle, high)
        size = round(2 ** (round(exponent) if die <= serial + power_of_two else exponent))
    share = min(1.0, max(0.0, -0.0054 * size + 0.78))
    shape, scale = (4.2, 0.94) if dice.random() <= share else (312.0, 0.03)
    return size, math.exp(min(12.0, dice.gammavariate(shape, scale)))


def _hpc_gap(dice: Random) -> float:
    return math.exp(min(12.0, dice.gammavariate(10.2303, 0.4871)))


def _philly_job(dice: Random) -> Drawn:
    gpus = dice.choices((1, 2, 4, 8), (0.70, 0.125, 0.125, 0.05))[0]
    span = (1.5, 3.0) if dice.random() < 0.8 else (3.0, 4.0)
    return gpus, 60 * 10 ** dice.uniform(*span)


def _helios_job(dice: Random) -> Drawn:
    mean, median = 6652.0, 206.0
    gpus = dice.choices((1, 2, 4, 8), (0.60, 0.16, 0.15, 0.09))[0]
    spread = math.sqrt(2 * math.log(mean / median))
    return gpus, dice.lognormvariate(math.log(median), spread)


def _poisson(dice: Random) -> float:
    return dice.expovariate(1.0)


WORKLOADS: Final[Mapping[str, Workload]] = {
    "hpc": Workload(job=_hpc_job, gap=_hpc_gap),
    "philly": Workload(job=_philly_job, gap=_poisson),
    "helios": Workload(job=_helios_job, gap=_poisson),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrival:
    """A job as it arrives: `limit_s` is what it asks for, `seconds` what it takes."""

    at: float
    partition: str
    nodes: int
    gpus: int
    seconds: float
    limit_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A job that has begun, and where."""

    job: Arrival
    began: float
    places: tuple[str, ...]

    @property
    def ends(self) -> float:
        """When it ends, in seconds from the beginning."""
        return self.began + self.job.seconds


def arrivals(workload: Workload, dice: Random, shape: Shape, size: int) -> Iterator[Arrival]:
    """Yield jobs without end, as fast as they keep the wanted part of the GPUs busy."""
    probe = Random(1)
    mean = sum(workload.job(probe)[1] for _ in range(_SAMPLE)) / _SAMPLE
    scale = MEAN_S / mean
    used = sum(
        min(gpus, 2 * size) * _cut(seconds * scale)
        for gpus, seconds in (workload.job(probe) for _ in range(_SAMPLE))
    )
    gap = sum(workload.gap(probe) for _ in range(_SAMPLE)) / _SAMPLE
    every_s = used / _SAMPLE / (BUSY * size * sum(map(len, shape.values())))
    names = sorted(shape)
    at = 0.0
    while True:
        at += workload.gap(dice) / gap * every_s
        gpus, seconds = workload.job(dice)
        name = dice.choices(names, [len(shape[name]) for name in names])[0]
        nodes = min(len(shape[name]), max(1, gpus // size))
        length = _cut(seconds * scale)
        yield Arrival(
            at=at,
            partition=name,
            nodes=nodes,
            gpus=size if nodes > 1 else min(gpus, size),
            seconds=length,
            limit_s=60 * math.ceil(length * dice.uniform(*_OVERASKED) / 60),
        )


def ordinary_day(
    workload: Workload, dice: Random, shape: Shape, size: int
) -> tuple[tuple[LoadJob, ...], int, int]:
    """Return the load after the warm-up, and the GPUs and minutes of one more user's request."""
    source = arrivals(workload, dice, shape, size)
    waiting: list[Arrival] = []
    running: list[Running] = []
    for job in source:
        running = _until(job.at, running, waiting, shape, size)
        if job.at > WARM_UP_S:
            break
        waiting.append(job)
        running = _begin(job.at, running, waiting, shape, size)
    later = [job] if job.at <= WARM_UP_S + AFTER_S else []
    for job in source:
        if job.at > WARM_UP_S + AFTER_S:
            break
        later.append(job)
    moment = min(WARM_UP_S, later[0].at) if later else WARM_UP_S
    jobs = [load for one in running for load in _runs(one, moment)]
    jobs += [_job(job, Role.WAITS) for job in waiting[:MOST_WAITING]]
    jobs += [_job(job, Role.LATER, after=job.at - moment) for job in later]
    gpus = min(size, workload.job(dice)[0])
    return tuple(jobs), gpus, dice.randint(1, 3)


def _until(
    moment: float, running: list[Running], waiting: list[Arrival], shape: Shape, size: int
) -> list[Running]:
    """Let jobs end, and others begin in their place, up to a moment."""
    while running and min(one.ends for one in running) <= moment:
        at = min(one.ends for one in running)
        running = [one for one in running if one.ends > at]
        running = _begin(at, running, waiting, shape, size)
    return running


def _begin(
    at: float, running: list[Running], waiting: list[Arrival], shape: Shape, size: int
) -> list[Running]:
    """Begin whatever fits, first come first: nothing that fits is left waiting."""
    used = {node: 0 for nodes in shape.values() for node in nodes}
    for one in running:
        for node in one.places:
            used[node] += one.job.gpus
    begun = list(running)
    for job in tuple(waiting):
        free = [node for node in shape[job.partition] if used[node] + job.gpus <= size]
        if len(free) >= job.nodes:
            places = tuple(free[: job.nodes])
            for node in places:
                used[node] += job.gpus
            begun.append(Running(job=job, began=at, places=places))
            waiting.remove(job)
    return begun


def _runs(one: Running, moment: float) -> Iterator[LoadJob]:
    """Write what is left of a running job, one for each of its nodes."""
    left_s = one.ends - moment + LEAD_S
    limit_s = one.began + one.job.limit_s - moment + LEAD_S
    for node in one.places:
        yield LoadJob(
            partition=one.job.partition,
            node=node,
            gpus=one.job.gpus,
            minutes=math.ceil(max(left_s, limit_s) / 60),
            seconds=left_s,
        )


def _job(job: Arrival, role: Role, after: float = 0.0) -> LoadJob:
    return LoadJob(
        partition=job.partition,
        gpus=job.gpus,
        nodes=job.nodes,
        minutes=math.ceil(job.limit_s / 60),
        seconds=job.seconds,
        role=role,
        after=after,
    )


def _cut(seconds: float) -> float:
    return min(LONGEST_S, max(SHORTEST_S, seconds))
