"""Work grows with the cluster and not with its square: counted in Python's own steps, not timed."""

import sys
from dataclasses import replace
from datetime import timedelta

import pytest

from rv.models.job import JobState
from rv.models.request import Layouts, Request
from rv.models.snapshot import QueuedJob
from rv.slurm.probe import build_snapshot
from rv.slurm.script import parse_outputs
from tests.bench.synthetic import SENTINEL, probe_text
from tests.unit.planner.clusters import NOON, nodes, partition, planned, snapshot


def steps(work, *arguments):
    """Count the bytecode instructions that a call executes, whatever it calls."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 asks before the first call, not in it
    sys.settrace(trace)
    try:
        work(*arguments)
    finally:
        sys.settrace(before)
    return count


def parsed(text):
    """Read a probe's answer."""
    return build_snapshot(parse_outputs(text, SENTINEL), SENTINEL)


@pytest.fixture(scope="module")
def answers():
    """A probe's answer of 100 nodes and one of 1000, with 5 jobs a node."""
    return [probe_text(count, 5 * count) for count in (100, 1000)]


def test_steps_are_counted_in_loops_too():
    """The measure itself: a loop in a loop is seen, also in an expression."""

    def pairs(count):
        return sum(1 for one in range(count) for other in range(count) if one < other)

    assert 80 < steps(pairs, 100) / steps(pairs, 10) < 120


def test_parsing_grows_with_the_answer(answers):
    """Ten times the nodes and jobs take about ten times the steps, not a hundred."""
    few, many = (steps(parsed, answer) for answer in answers)
    assert many < 11 * few


@pytest.mark.parametrize("layouts", Layouts)
def test_planning_grows_with_the_cluster(answers, layouts):
    """Ten times the nodes and jobs take at most about ten times the steps."""
    request = Request(gpus=4, layouts=layouts)
    few, many = (steps(planned, request, parsed(answer)) for answer in answers)
    assert many < 11 * few


def shared(count):
    """Two nodes with so many jobs of one CPU each, half of them planned, in three partitions."""
    common = {"job_id": "1", "user": "other", "partition": "p0", "cpus": 1}
    minutes = [NOON + timedelta(minutes=minute) for minute in range(1, count + 2)]
    runs = [
        QueuedJob(state=JobState.RUNNING, nodes=("n1",), end=minutes[at], **common)
        for at in range(0, count, 2)
    ]
    waits = [
        QueuedJob(
            state=JobState.PENDING,
            planned_nodes=("n1", "n2"),
            start=minutes[at],
            end=minutes[at + 1],
            **common,
        )
        for at in range(1, count, 2)
    ]
    members = nodes("n", 2, gres={"t4": 4}, cpus=1024, cpus_used=count // 2, states=("MIXED",))
    cluster = snapshot(*((partition(f"p{n}", members), members) for n in range(3)))
    return replace(cluster, jobs=(*runs, *waits))


def test_planning_grows_with_the_jobs_of_a_node():
    """Ten times the jobs on a node take about ten times the steps, not a hundred."""
    few, many = (steps(planned, Request(gpus=4), shared(count)) for count in (60, 600))
    assert many < 11 * few


def test_overlapping_partitions_do_not_repeat_the_sweep():
    """A second and a third partition on the same nodes ask what is already known."""
    every = shared(400)
    one = replace(every, partitions=every.partitions[:1])
    assert steps(planned, Request(gpus=4), every) < 1.5 * steps(planned, Request(gpus=4), one)
