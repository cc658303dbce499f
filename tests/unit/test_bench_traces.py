"""Loads in the shape of published workloads: what the papers say of them holds of what is drawn."""

import statistics
from collections import Counter
from itertools import islice, takewhile
from pathlib import Path
from random import Random

import pytest

from rv.sandbox.schema import load_profile
from tests.bench.load import Role, gpus_per_node, shape_of
from tests.bench.traces import BUSY, LONGEST_S, WORKLOADS, arrivals, ordinary_day

PROFILE = load_profile(str(Path(__file__).parents[1] / "bench" / "starts.yaml"))
SHAPE = shape_of(PROFILE)
SIZE = gpus_per_node(PROFILE)
GPUS = SIZE * sum(map(len, SHAPE.values()))


def drawn(name: str, count: int = 20_000) -> list[tuple[int, float]]:
    dice = Random(3)
    return [WORKLOADS[name].job(dice) for _ in range(count)]


def test_helios_has_the_papers_mean_and_median() -> None:
    """6,652 s and 206 s; most jobs have one GPU, less than a tenth eight or more."""
    jobs = drawn("helios", 400_000)
    assert statistics.median(seconds for _, seconds in jobs) == pytest.approx(206, rel=0.05)
    assert statistics.fmean(seconds for _, seconds in jobs) == pytest.approx(6652, rel=0.2)
    sizes = Counter(gpus for gpus, _ in jobs)
    assert sizes[1] > len(jobs) / 2
    assert sizes[8] < len(jobs) / 10


def test_philly_has_gavels_sizes_and_durations() -> None:
    """70 % with one GPU, 5 % with eight; four jobs in five last less than 1,000 minutes."""
    jobs = drawn("philly")
    sizes = Counter(gpus for gpus, _ in jobs)
    assert sizes[1] / len(jobs) == pytest.approx(0.70, abs=0.01)
    assert sizes[8] / len(jobs) == pytest.approx(0.05, abs=0.01)
    assert sum(seconds < 60_000 for _, seconds in jobs) / len(jobs) == pytest.approx(0.8, abs=0.01)


def test_hpc_has_the_models_serial_jobs_and_powers_of_two() -> None:
    """24.4 % are serial; most of the others have a power of two."""
    sizes = Counter(gpus for gpus, _ in drawn("hpc"))
    assert sizes[1] / 20_000 == pytest.approx(0.244, abs=0.02)
    assert (sizes[2] + sizes[4] + sizes[8]) / 20_000 > 0.576
    assert set(sizes) <= set(range(1, 9))


@pytest.mark.parametrize("name", WORKLOADS)
def test_jobs_arrive_as_fast_as_keeps_the_gpus_busy(name: str) -> None:
    """Within a quarter: hpc's gaps have so heavy a tail that no sample has their mean."""
    jobs = list(islice(arrivals(WORKLOADS[name], Random(5), SHAPE, SIZE), 20_000))
    used = sum(job.gpus * job.nodes * job.seconds for job in jobs)
    assert used / (GPUS * jobs[-1].at) == pytest.approx(BUSY, rel=0.25)
    assert all(job.seconds <= min(LONGEST_S, job.limit_s) for job in jobs)
    assert list(takewhile(lambda job: job.at < 100, jobs))


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("seed", range(1, 11))
def test_nothing_waits_that_would_fit(name: str, seed: int) -> None:
    """So that Slurm leaves waiting what the load says waits."""
    jobs, gpus, minutes = ordinary_day(WORKLOADS[name], Random(seed), SHAPE, SIZE)
    free = {node: SIZE for nodes in SHAPE.values() for node in nodes}
    for job in jobs:
        if job.role is Role.RUNS:
            free[job.node] -= job.gpus
    assert min(free.values()) >= 0
    for job in jobs:
        if job.role is Role.WAITS:
            room = [node for node in SHAPE[job.partition] if free[node] >= job.gpus]
            assert len(room) < job.nodes
    assert 1 <= gpus <= SIZE
    assert 1 <= minutes <= 3
