"""How fast products are: 2 M N K / t, at given shapes or at the best one that a search finds.

The search goes from coarse to fine, as Bekman's mamf-finder does: M in steps at N = K fixed, then
climbing from the best three in each direction as long as it gets faster. The rates and digests of
devices of one model are then compared with each other.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from _harness import timing
from contract.schema import HIGHER, better_rate, metric
from contract.stats import odd_ones, slow_ones
from contract.verdicts import NotPassed

from .dtypes import Factors, factors
from .exact import require_small
from .timed import Products

if TYPE_CHECKING:
    from .dtypes import Kind


Shape = tuple[int, int, int]
ROUNDS, QUICK_ROUNDS = 100, 30
LONG_ENOUGH = 0.5
"""Seconds of products that are timed on a GPU, at least."""
LEAST_ROUNDS, SLOW_S = 5, 0.1
"""Of products that take a GPU longer than this fewer are timed, but so many at least."""
SMALL, LARGE = 4096, 8192
"""The sides of squares that are timed on a GPU; references hold from the first on."""
TOO_LONG_S = 0.5
"""A large product that takes longer is left out: of fp64 on GPUs made for less, not of any other
type, whose clocks then do not decide from run to run."""


def random_factors(torch: Any, kind: Kind, device: str, shape: Shape, seed: int) -> Factors:
    """Draw factors on the device; zeros would draw less power and look 13 % faster."""
    m, n, k = shape
    generator = torch.Generator(device).manual_seed(seed)
    a, b = (
        torch.randn(rows, columns, device=device, generator=generator)
        for rows, columns in ((m, k), (k, n))
    )
    return factors(torch, kind, a, b, device)


def fits(torch: Any, kind: Kind, device: str, shape: Shape) -> bool:
    """Return whether factors, product and their making fit into half of the free memory."""
    return device == "cpu" or _needs(kind, shape) < torch.cuda.mem_get_info(device)[0] / 2


def require_room(torch: Any, kind: Kind, device: str, shape: Shape) -> None:
    """Raise NotPassed where a shape has no room: a SKIP on a device that is too small for it."""
    if fits(torch, kind, device, shape):
        return
    torch.cuda.empty_cache()  # what torch keeps of earlier tests is free
    if fits(torch, kind, device, shape):
        return
    free, total = torch.cuda.mem_get_info(device)
    size = f"{'x'.join(map(str, shape))} in {kind.name}"
    if is_too_small(torch, kind, device, shape):
        raise NotPassed("SKIP", "unsupported", f"{device} is too small for {size}")
    reason = f"{device} has {free >> 20} of {total >> 20} MiB free, too little for {size}"
    raise NotPassed("ERROR", "out_of_memory", reason)


def is_too_small(torch: Any, kind: Kind, device: str, shape: Shape) -> bool:
    """Return whether a shape has no room on a GPU though nothing else is there."""
    return bool(_needs(kind, shape) >= torch.cuda.mem_get_info(device)[1] / 2)


def _needs(kind: Kind, shape: Shape) -> int:
    m, n, k = shape
    size = 8 if kind.name == "fp64" else 4
    return (m * k + k * n) * 2 * size + m * n * size


def usual_sides(torch: Any, kind: Kind, device: str, seed: int, *, quick: bool) -> list[int]:
    """Return the sides to time on a GPU: a large one and, unless quick, half of it.

    The half alone where the large one takes too long, or is too large for the device, such as a
    small MIG slice. Raises NotPassed where there is no room for the half.
    """
    shape = (SMALL, SMALL, SMALL)
    require_room(torch, kind, device, shape)
    if is_too_small(torch, kind, device, (LARGE, LARGE, LARGE)):
        return [SMALL]
    if _one_product_s(torch, kind, device, shape, seed) * (LARGE // SMALL) ** 3 > TOO_LONG_S:
        return [SMALL]
    return [LARGE] if quick else [SMALL, LARGE]


def _one_product_s(torch: Any, kind: Kind, device: str, shape: Shape, seed: int) -> float:
    """Return the seconds of a product, the best of three behind one that loads what it needs."""
    given = random_factors(torch, kind, device, shape, seed)
    out, taken = given.product(), list[float]()
    for _ in range(3):
        timing.synchronize(torch, device)
        start = time.perf_counter()
        given.multiply(out)
        timing.synchronize(torch, device)
        taken.append(time.perf_counter() - start)
    return min(taken)


class Speed(NamedTuple):
    """What timing products came to: metrics, and shares that ought to be 1.

    `of_bare` is the rate as a part of a plain loop's, `of_median` of what the median of single
    products promises. `is_fed` is whether the device never waited for this process: where it did,
    the rate is the host's, and its metric is not judged.
    """

    metrics: list[dict[str, Any]]
    of_bare: float
    of_median: float
    is_fed: bool = True


def measure(
    work: Products, device: str, *, quick: bool, slow: float, stretch: float = 1.0
) -> Speed:
    """Time products, and a plain loop of them before and after: `bare`.

    The rate is that of the whole span, by the clock; the median and the spread beside it are of
    single products. A program that shares the GPU lengthens the span and not the products, which
    fit between its own. `slow` and `stretch` are injected factors on all times, and on the span's.

    Raises NotPassed where a product is wrong: all are compared, between the times that are taken,
    but of each plain loop only the last ones, as many as there are slots.
    """
    given, torch = work.given, work.torch
    warm = _warmed(torch, device, work, _warmth(device, quick=quick))
    rounds = _at_most(device, warm, QUICK_ROUNDS if quick else ROUNDS)
    before = _plain_loop(torch, device, work, rounds)
    rounds = _enough(device, before, rounds)
    work.compare()
    timed = timing.time_all(torch, device, work, rounds, between=work.between)
    work.compare()
    bare = min(before, _plain_loop(torch, device, work, rounds))
    work.require_right()
    m, n, k = given.shape
    flops = 2.0 * m * n * k / 1e12
    rates = [flops / (slow * each) for each in timed.each]
    shape = f"{m}x{n}x{k}"
    # A CPU always has others, which says nothing of it.
    whole = timed.whole if device != "cpu" else statistics.median(timed.each) * len(timed.each)
    rate = flops * len(rates) / (slow * stretch * whole)
    of_median = rate / statistics.median(rates) if timed.is_fed else 1.0
    of_bare, how = rate * bare / flops, {"shape": shape, "dtype": given.kind.name}
    about = {"data": "randn", "whole_s": whole, "made": work.made, "compared": work.compared}
    metrics = [
        metric(
            "tflops", rates, "TFLOPS", better_rate(is_fed=timed.is_fed), value=rate, **how, **about
        ),
        metric("bare_ratio", [of_bare], "ratio", HIGHER, **how),
    ]
    return Speed(metrics, of_bare, of_median, timed.is_fed)


def _warmed(torch: Any, device: str, work: Products, seconds: float) -> float:
    """Warm up for so many seconds, three products at least; return the seconds of one."""
    start = time.perf_counter()
    done = timing.warm_up(torch, device, work.watched, seconds=seconds, rounds=3)
    return (time.perf_counter() - start) / done


def _at_most(device: str, one_s: float, usual: int) -> int:
    """Return how many rounds there is time for: the usual number, or fewer of very long ones."""
    if device == "cpu":
        return usual
    return timing.rounds_for(SLOW_S * usual, one_s, LEAST_ROUNDS, usual)


def _enough(device: str, one_s: float, usual: int) -> int:
    """Return how many rounds to time: few of long ones on a CPU, many of short ones on a GPU.

    A GPU changes its clocks for tens of milliseconds after a pause: what is shorter is luck.
    """
    if device == "cpu":
        return timing.rounds_for(10.0, one_s, 3, usual)
    return timing.rounds_for(LONG_ENOUGH, one_s, usual, 10 * usual)


def _warmth(device: str, *, quick: bool) -> float:
    if device == "cpu":
        return 0.05
    return 0.5 if quick else 3.0


def _plain_loop(torch: Any, device: str, work: Any, rounds: int) -> float:
    """Return the seconds of a product in a loop that nothing interrupts."""
    rounds = min(rounds, 10) if device == "cpu" else rounds
    timing.synchronize(torch, device)
    start = time.perf_counter()
    for _ in range(rounds):
        work()
    timing.synchronize(torch, device)
    return (time.perf_counter() - start) / rounds


def search(torch: Any, kind: Kind, device: str, seconds: float, seed: int) -> dict[str, Any]:
    """Find the fastest shape within so many seconds; return it, and all that were tried."""
    step, side = (64, 256) if device == "cpu" else (1024, 4096)
    deadline, tried = time.perf_counter() + seconds, dict[Shape, float]()

    def visit(shape: Shape) -> float:
        if shape not in tried and min(shape) > 0 and fits(torch, kind, device, shape):
            tried[shape] = _rate(torch, kind, device, shape, seed)
        return tried.get(shape, 0.0)

    for m in range(step, 16 * step + 1, step):
        if not tried or time.perf_counter() < deadline:
            visit((m, side, side))
    for start in sorted(tried, key=tried.__getitem__, reverse=True)[:3]:
        _climb(start, visit, step // 4, deadline)
    best = max(tried, key=tried.__getitem__)
    geometric = statistics.geometric_mean(tried.values())
    shapes = {"x".join(map(str, shape)): round(rate, 3) for shape, rate in tried.items()}
    return {"best": best, "tflops": tried[best], "geometric_mean": geometric, "shapes": shapes}


def _climb(start: Shape, visit: Any, step: int, deadline: float) -> None:
    here, better = start, True
    while better and time.perf_counter() < deadline:
        m, n, k = here
        around: list[Shape] = []
        for by in (step, -step):
            around += [(m + by, n, k), (m, n + by, k), (m, n, k + by)]
        best = max(around, key=visit)
        better = visit(best) > visit(here)
        here = best if better else here


def _rate(torch: Any, kind: Kind, device: str, shape: Shape, seed: int) -> float:
    given = random_factors(torch, kind, device, shape, seed)
    work = Products(given, device)
    require_small(given, work.reference, device, seed)
    rounds = _at_most(device, _warmed(torch, device, work, 0.0), 10)
    times = timing.time_each(torch, device, work, rounds=rounds, between=work.between)
    work.require_right()
    m, n, k = shape
    return 2.0 * m * n * k / statistics.median(times) / 1e12


CPU_BOUNDS = {"warn": 0.5, "fail": 0.75}  # losses: CPUs are shared, and of two nothing is said


class Reading(NamedTuple):
    """What one device gave in one type; `where` names it for people: `cuda:1 on node7`.

    `tflops` is 0 where no rate of its own is known.
    """

    where: str
    model: str
    kind: str
    digest: str
    tflops: float
    rank: int
    host: str
    device: str = ""


def strange_digests(readings: list[Reading]) -> list[Reading]:
    """Return the devices whose product has other bits than most devices of their model give."""
    return [
        group[at]
        for group in _alike(readings)
        for at in odd_ones([reading.digest for reading in group])
    ]


def outliers(readings: list[Reading]) -> list[tuple[str, Reading, float]]:
    """Return (status, device, share of its peers' rate) of devices slower than their peers."""
    return [
        (status, group[at], share)
        for group in _alike(rated(readings))
        for at, status, share in slow_ones(
            [reading.tflops for reading in group],
            **(CPU_BOUNDS if group[0].where.startswith("cpu") else {}),
        )
    ]


def rated(readings: list[Reading]) -> list[Reading]:
    """Return the readings that have a rate."""
    return [reading for reading in readings if reading.tflops > 0]


def _alike(readings: list[Reading]) -> list[list[Reading]]:
    groups: dict[tuple[Any, ...], list[Reading]] = defaultdict(list)
    for reading in readings:
        groups[reading.model, reading.kind].append(reading)
    return list(groups.values())
