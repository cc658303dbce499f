"""A seeded stretch of everyday load, and the questions asked meanwhile. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.bench.load import LoadJob, Role, Shape

_SHORTEST, _LONGEST = 15.0, 150.0
_OVERASKED: Final = (1.0, 2.5)
"""People overestimate: a limit is the real length times something in between, in whole minutes."""
_BIG: Final = 0.12
"""The share of jobs that want several whole nodes: they make holes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A request, asked so many seconds after the load began; `pick` draws the strategy."""

    after: float
    gpus: int
    minutes: int
    pick: float


def arrivals(
    dice: Random, shape: Shape, size: int, seconds: float, *, busy: float
) -> Iterator[LoadJob]:
    """Jobs at random moments, so many that they would keep this share of the GPUs busy."""
    nodes = [(name, len(members)) for name, members in shape.items()]
    gpus = size * sum(count for _, count in nodes)
    after = 0.0
    while after < seconds:
        name, count = dice.choices(nodes, weights=[count for _, count in nodes])[0]
        big = dice.random() < _BIG
        wanted = size if big else dice.choice([n for n in (1, 1, 2, 4) if n <= size])
        width = dice.randint(2, count) if big else 1
        length = dice.uniform(_SHORTEST, _LONGEST)
        limit = math.ceil(length * dice.uniform(*_OVERASKED) / 60)
        yield LoadJob(
            partition=name,
            gpus=wanted,
            nodes=width,
            minutes=limit,
            seconds=length,
            role=Role.LATER,
            after=after,
        )
        # The next comes when this one's GPU-seconds are used up, on average.
        after += dice.expovariate(busy * gpus / (wanted * width * length))


def questions(dice: Random, begin: float, end: float, every: float) -> Iterator[Question]:
    """Requests at random moments, one in so many seconds on average."""
    after = begin + dice.expovariate(1 / every)
    while after < end:
        yield Question(
            after=after,
            gpus=dice.choice((1, 2, 4, 8)),
            minutes=dice.randint(1, 3),
            pick=dice.random(),
        )
        after += dice.expovariate(1 / every)
