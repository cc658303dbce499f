"""The loads of the time-to-start bench are what their names say."""

from collections import Counter
from pathlib import Path

import pytest

from rv.sandbox.schema import load_profile
from tests.bench.load import Role, gpus_per_node, sbatch_words, shape_of
from tests.bench.scenarios import SCENARIOS, draw

PROFILE = load_profile(str(Path(__file__).parents[1] / "bench" / "starts.yaml"))
SHAPE = shape_of(PROFILE)
SIZE = gpus_per_node(PROFILE)
SEEDS = range(1, 31)


def free(name: str, seed: int) -> dict[str, int]:
    """GPUs free on each node when the contender types."""
    taken = Counter({node: 0 for nodes in SHAPE.values() for node in nodes})
    for job in draw(name, seed, SHAPE, SIZE).jobs:
        if job.role is Role.RUNS:
            taken[job.node] += job.gpus
    return {node: SIZE - count for node, count in taken.items()}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_seed_gives_one_load_and_running_jobs_fit(name: str) -> None:
    loads = [draw(name, seed, SHAPE, SIZE) for seed in SEEDS]
    assert loads == [draw(name, seed, SHAPE, SIZE) for seed in SEEDS]
    assert len({load.jobs for load in loads}) > 20
    for seed, load in zip(SEEDS, loads, strict=True):
        assert all(count >= 0 for count in free(name, seed).values())
        assert all(job.node for job in load.jobs if job.role is Role.RUNS)
        assert all(job.seconds <= 60 * job.minutes for job in load.jobs)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_model_is_full_and_others_have_room(seed: int) -> None:
    left = free("one model full", seed)
    assert any(all(left[node] == 0 for node in nodes) for nodes in SHAPE.values())
    assert 2 <= sum(count == SIZE for count in left.values()) <= 3


@pytest.mark.parametrize("seed", SEEDS)
def test_fragmented_has_two_halves_of_one_model_and_no_whole_node(seed: int) -> None:
    left = {node: count for node, count in free("fragmented 2+2", seed).items() if count}
    assert sorted(left.values()) == [2, 2]
    assert len({node[0] for node in left}) == 1
    assert draw("fragmented 2+2", seed, SHAPE, SIZE).gpus == 4


@pytest.mark.parametrize("seed", SEEDS)
def test_the_decoy_has_more_idle_gpus_and_too_short_a_hole(seed: int) -> None:
    load = draw("short holes", seed, SHAPE, SIZE)
    left = free("short holes", seed)
    idle = {name: sum(left[node] for node in nodes) for name, nodes in SHAPE.items()}
    big = [job for job in load.jobs if job.role is Role.PLANNED]
    assert {job.partition: job.nodes for job in big} == {
        name: len(SHAPE[name]) for name in idle if idle[name]
    }
    decoy = max(idle, key=lambda name: idle[name])
    limits = {job.partition: job.minutes for job in load.jobs if job.role is Role.RUNS}
    assert (
        limits[decoy]
        <= load.minutes
        < limits[next(j.partition for j in big if j.partition != decoy)]
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_the_remnant_of_a_backlog_lies_where_the_queue_is_longest(seed: int) -> None:
    load = draw("fair-share backlog", seed, SHAPE, SIZE)
    left = {node: count for node, count in free("fair-share backlog", seed).items() if count}
    (remnant,) = left
    queues = Counter(job.partition for job in load.jobs if job.role is Role.WAITS)
    longest, _ = queues.most_common(1)[0]
    assert remnant in SHAPE[longest]
    assert len(queues) == len(SHAPE) - 1
    assert any(job.role is Role.LATER for job in load.jobs)


def test_a_job_of_the_load_is_somebody_elses() -> None:
    job = draw("short holes", 1, SHAPE, SIZE).jobs[0]
    words = sbatch_words(job, 7)
    assert "--uid=nobody" in words
    assert f"--nodelist={job.node}" in words
    assert f"--time={job.minutes}" in words
