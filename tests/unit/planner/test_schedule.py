"""Backfill windows and planned starts, from who runs, who is planned, and what is reserved."""

from dataclasses import replace
from datetime import timedelta

import pytest

from rv.models.job import JobState
from rv.models.performance import Source
from rv.models.plan import Mode
from rv.models.request import Request
from rv.models.snapshot import QueuedJob
from rv.planner.capacity import FOREVER, Window
from rv.planner.schedule import backfill_window, earliest_start
from tests.unit.planner.clusters import NOON, nodes, partition, planned, snapshot

HOUR = timedelta(hours=1)


def running(node: str, ends_in: timedelta, gpus: int = 4) -> QueuedJob:
    """A job of somebody's that holds a node's GPUs until its limit."""
    return QueuedJob(
        job_id="1",
        user="other",
        partition="gpu",
        state=JobState.RUNNING,
        nodes=(node,),
        start=NOON - HOUR,
        end=NOON + ends_in,
        cpus=128,
        gpus=gpus,
        gpu_type="t4",
    )


def waiting(*on: str, starts_in: timedelta | None = None, gpus: int = 8) -> QueuedJob:
    """A job of somebody's that waits, with or without a plan of Slurm's."""
    start = None if starts_in is None else NOON + starts_in
    return QueuedJob(
        job_id="2",
        user="other",
        partition="gpu",
        state=JobState.PENDING,
        planned_nodes=on,
        start=start,
        end=start + HOUR if start else None,
        cpus=8,
        gpus=gpus,
        gpu_type="t4",
    )


def plan_of(*jobs: QueuedJob, gpus: int = 4, hours: float = 1, busy: int = 1, free: int = 1):
    """Plan on a partition of nodes b1… that are full and f1… that are free."""
    full = nodes("b", busy, gres={"t4": 4}, states=("ALLOCATED",), used=4)
    full = tuple(replace(node, cpus_used=node.cpus) for node in full)
    every = full + nodes("f", free, gres={"t4": 4})
    cluster = replace(snapshot((partition("gpu", every), every)), jobs=jobs)
    request = Request(gpus=gpus, walltime=HOUR * hours, walltime_given=True)
    return {s.id: s for s in planned(request, cluster).strategies}


def test_a_job_that_fits_before_the_planned_one_has_a_hole():
    """Free now, planned from 90 minutes on: one hour fits."""
    jobs = running("b1", HOUR * 1.5), waiting("b1", "f1", starts_in=HOUR * 1.5)
    strategy = plan_of(*jobs)["t4/1x4/gpu"]
    assert (strategy.estimate.source, strategy.mode) == (Source.BACKFILL_WINDOW, Mode.BACKFILL)
    assert strategy.estimate.start_in == timedelta(0)
    assert strategy.estimate.window == HOUR * 1.5


@pytest.mark.parametrize(("minutes", "fits"), [(90, True), (91, False)])
def test_the_hole_is_judged_by_now_plus_walltime(minutes, fits):
    """At most the planned start: 24 of 24 on a real Slurm."""
    jobs = running("b1", HOUR * 1.5), waiting("b1", "f1", starts_in=HOUR * 1.5)
    strategy = plan_of(*jobs, hours=minutes / 60)["t4/1x4/gpu"]
    assert (strategy.estimate.source is Source.BACKFILL_WINDOW) is fits


def test_what_does_not_fit_the_hole_starts_after_the_planned_job():
    """Slurm's plan for the other ends an hour after it starts."""
    jobs = running("b1", HOUR * 1.5), waiting("b1", "f1", starts_in=HOUR * 1.5)
    strategy = plan_of(*jobs, hours=2)["t4/1x4/gpu"]
    assert strategy.mode is Mode.DIRECT
    assert strategy.estimate.source is Source.PLANNED
    assert strategy.estimate.start_in == HOUR * 2.5


def test_full_nodes_start_when_their_jobs_end():
    """By the jobs' limits, which is when they end at the latest."""
    strategy = plan_of(running("b1", HOUR * 3), free=0)["t4/1x4/gpu"]
    assert strategy.estimate.source is Source.PLANNED
    assert strategy.estimate.start_in == HOUR * 3


def test_an_unplanned_waiter_makes_later_starts_unknown_and_free_ones_holes():
    """It could take any place that comes free; what is free now backfill may still give."""
    found = plan_of(running("b1", HOUR * 3), waiting(gpus=16), free=0)
    assert found["t4/1x4/gpu"].estimate.source is Source.UNKNOWN
    found = plan_of(running("b1", HOUR * 3), waiting(gpus=16))
    assert found["t4/1x4/gpu"].estimate.source is Source.BACKFILL_WINDOW
    assert found["t4/1x4/gpu"].estimate.window is None


def test_waiters_that_fit_beside_are_no_queue():
    """A job that came a moment ago, for which there is room as well, makes nobody wait."""
    found = plan_of(running("b1", HOUR * 3), waiting(gpus=2), gpus=2)
    assert found["t4/1x2/gpu"].estimate.source is Source.IDLE
    found = plan_of(running("b1", HOUR * 3), waiting(gpus=3), gpus=2)
    assert found["t4/1x2/gpu"].estimate.source is Source.BACKFILL_WINDOW


def test_jobs_that_cannot_be_seen_never_end():
    """With PrivateData the node is full, and nobody says until when."""
    strategy = plan_of(free=0)["t4/1x4/gpu"]
    assert strategy.estimate.source is Source.UNKNOWN


def test_several_nodes_must_be_free_at_once():
    """Two nodes whose jobs end at different times serve 2x4 from the later on."""
    jobs = running("b1", HOUR), running("b2", HOUR * 4)
    found = plan_of(*jobs, gpus=8, busy=2, free=0)
    assert found["t4/2x4/gpu"].estimate.start_in == HOUR * 4


def test_earliest_and_holes_of_windows():
    """The sweep that joins the nodes' windows."""
    windows = {"a": [Window(0, 100), Window(300, FOREVER)], "b": [Window(50, 400)]}
    assert earliest_start(windows, 1, timedelta(seconds=100)) == 0
    assert earliest_start(windows, 2, timedelta(seconds=50)) == 50
    assert earliest_start(windows, 2, timedelta(seconds=51)) == 300
    assert earliest_start(windows, 2, timedelta(seconds=101)) is None
    assert earliest_start(windows, 3, timedelta(seconds=1)) is None
    assert (backfill_window(windows, 1), backfill_window(windows, 2)) == (100, 0.0)
