"""The sweep over a node's claims against its definition, read off second by second."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rv.models.job import JobState
from rv.models.snapshot import ClusterConfig, QueuedJob, Reservation
from rv.planner.capacity import FOREVER, NodeDemand, Window
from rv.planner.schedule import NodeSchedule
from tests.unit.planner.clusters import NOON, nodes, partition, snapshot

LAST = 12
"""Nothing changes after this second."""

small = st.integers(0, 4)
types = st.sampled_from(["", "t4", "a40"])


def at(second):
    """A moment on Slurm's clock."""
    return NOON + timedelta(seconds=second)


@st.composite
def queued(draw):
    """A job that runs or is planned on n1, maybe on n2 too; its end may be unknown or over."""
    where = draw(st.sampled_from([("n1",), ("n1", "n2"), ("n2",)]))
    runs = draw(st.booleans())
    start = draw(st.integers(-3, LAST))
    length = draw(st.none() | st.integers(-2, LAST - max(start, 0)))
    return QueuedJob(
        job_id="1",
        user="other",
        partition="gpu",
        state=JobState.RUNNING if runs else JobState.PENDING,
        nodes=where if runs else (),
        planned_nodes=() if runs else where,
        start=at(min(start, 0) if runs else start),
        end=None if length is None else at(start + length),
        cpus=draw(small),
        memory_mib=draw(small),
        gpus=draw(small),
        gpu_type=draw(types),
    )


reservations = st.builds(
    lambda start, length: Reservation(
        name="r", nodes=("n1",), start=at(start), end=at(start + length)
    ),
    st.integers(-3, LAST - 4),
    st.integers(-1, 4),
)


unplanned = st.builds(
    QueuedJob,
    job_id=st.sampled_from(["2", "3_[1-4]"]),
    user=st.just("other"),
    partition=st.sampled_from(["gpu", "else", "else,gpu"]),
    state=st.just(JobState.PENDING),
    planned_nodes=st.sampled_from([(), ("n2",)]),
    start=st.none() | st.just(at(1)),
)
"""Jobs that wait and have no plan on n1 that could be seen."""


@st.composite
def clusters(draw):
    """Two nodes of which some is in use, not always by jobs that can be seen."""
    states = draw(st.sampled_from([("MIXED",), ("ALLOCATED",), ("MIXED", "PLANNED"), ("IDLE",)]))
    found = nodes("n", 2, cpus=4, states=states)
    used = {"cpus_used": draw(small), "memory_mib": 4, "memory_used_mib": draw(small)}
    private = draw(st.sampled_from([(), ("jobs",)]))
    return replace(
        snapshot((partition("gpu", found), found), (partition("else", ()), ())),
        config=ClusterConfig(private_data=frozenset(private)),
        nodes=tuple(replace(node, **used) for node in found),
        jobs=tuple(draw(st.lists(queued() | unplanned, max_size=6))),
        reservations=tuple(draw(st.lists(reservations, max_size=1))),
    )


shares = st.builds(
    NodeDemand, cpus=small, memory_mib=small, gpus=small, gpu_type=types, whole=st.booleans()
)


def end_of(job):
    """When a job's claim ends; a running one past its limit ends at no known time."""
    end = FOREVER if job.end is None else (job.end - NOON).total_seconds()
    return FOREVER if job.nodes and end <= 0 else end


def part(amount, job):
    """What a job has on each of its nodes, rounded up."""
    return -(-amount // len(job.nodes or job.planned_nodes))


def may_be_planned(cluster):
    """Whether a job may be planned on n1 of which the queue does not show it."""
    waits = [job for job in cluster.jobs if job.state.is_pending and "gpu" in job.partition]
    plain = [job for job in waits if job.planned_nodes and job.start and "_" not in job.job_id]
    return "jobs" in cluster.config.private_data or plain != waits


def fits(cluster, demand, total, free, second):
    """The definition: used now, less what running jobs gave back, plus what is planned."""
    node = cluster.nodes[0]
    running = [job for job in cluster.jobs if "n1" in job.nodes]
    plans = [job for job in cluster.jobs if "n1" in job.planned_nodes]
    ended = [job for job in running if end_of(job) <= second]
    here = [job for job in plans if job.start <= at(second) and second < end_of(job)]
    closed = [r for r in cluster.reservations if r.start <= at(second) < r.end]

    def gpus(jobs):
        mine = (
            j for j in jobs if "" in (demand.gpu_type, j.gpu_type) or j.gpu_type == demand.gpu_type
        )
        return sum(part(job.gpus, job) for job in mine)

    def has_room(whole, used, asked, name):
        back = sum(part(getattr(job, name), job) for job in ended)
        planned = sum(part(getattr(job, name), job) for job in here)
        return min(whole - used + back, whole) - planned >= asked

    if closed or ("PLANNED" in node.states and not plans and may_be_planned(cluster)):
        return False
    if "ALLOCATED" in node.states and not ended:
        return False
    unseen = node.cpus_used - sum(part(job.cpus, job) for job in ended)
    if demand.whole and (len(ended) < len(running) or here or unseen > 0):
        return False
    return (
        min(free + gpus(ended) - gpus(here), total) >= demand.gpus
        and has_room(node.cpus, node.cpus_used, demand.cpus, "cpus")
        and has_room(node.memory_mib, node.memory_used_mib, demand.memory_mib, "memory_mib")
    )


@settings(max_examples=600)
@given(clusters(), shares, small, small)
def test_windows_are_the_seconds_in_which_the_share_fits(cluster, demand, total, free):
    """Each second is in a window or not, and what touches is one window."""
    windows = NodeSchedule(cluster).windows_for(demand)(cluster.nodes[0], total, free)
    seconds = {s for s in range(LAST + 2) if any(w.start_s <= s < w.end_s for w in windows)}
    assert seconds == {s for s in range(LAST + 2) if fits(cluster, demand, total, free, s)}
    assert all(one.end_s < other.start_s for one, other in pairwise(windows))
    assert all(window.start_s < window.end_s for window in windows)
    assert {w.end_s for w in windows} <= {*range(LAST + 1), FOREVER}


@settings(max_examples=100)
@given(clusters(), st.lists(st.tuples(shares, small, small), max_size=6))
def test_an_answer_does_not_depend_on_what_was_asked_before(cluster, asked):
    """What is kept of one answer serves equal questions only."""
    schedule = NodeSchedule(cluster)
    for demand, total, free in asked:
        for node in cluster.nodes:
            fresh = NodeSchedule(cluster).windows_for(demand)(node, total, free)
            assert schedule.windows_for(demand)(node, total, free) == fresh


@pytest.mark.parametrize("amount", ["cpus", "memory_mib"])
def test_a_node_has_no_more_than_it_has(amount):
    """What a job gives back that the node did not count as used is no room for two."""
    common = {"job_id": "1", "user": "other", "partition": "gpu", amount: 4}
    runs = QueuedJob(state=JobState.RUNNING, nodes=("n1",), end=at(5), **common)
    waits = QueuedJob(
        state=JobState.PENDING, planned_nodes=("n1",), start=at(6), end=at(8), **common
    )
    (node,) = nodes("n", 1, cpus=4)
    node = replace(node, memory_mib=4)
    demand = replace(
        NodeDemand(cpus=0, memory_mib=0, gpus=0, gpu_type="", whole=False), **{amount: 2}
    )
    windows = NodeSchedule(replace(snapshot(), nodes=(node,), jobs=(runs, waits))).windows_for(
        demand
    )(node, 0, 0)
    assert windows == (Window(0, 6), Window(8, FOREVER))
