"""Time cut to a backfill window: `--min-time`, and segments for commands that can resume."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rv.models.job import JobState
from rv.models.performance import Source
from rv.models.plan import SIGNAL_EARLY, Mode, segments, usable
from rv.models.request import Fanout, Request
from rv.models.snapshot import QueuedJob, Reservation
from rv.planner import require_feasible
from rv.planner.strategies import longest_in
from tests.unit.planner.clusters import NOON, nodes, partition, planned, priced, reasons, snapshot

HOURS = {"walltime_given": True, "walltime": timedelta(hours=12)}


def windowed(minutes, *, extra=None, **limits):
    """Two nodes of a model whose GPUs are free until a planned job takes them in `minutes`."""
    members = nodes("n", 2, gres={"a40": 8})
    waiting = QueuedJob(
        job_id="9",
        user="bob",
        partition="gpu",
        state=JobState.PENDING,
        planned_nodes=("n1", "n2"),
        start=NOON + timedelta(minutes=minutes),
        end=NOON + timedelta(minutes=minutes, days=1),
        cpus=256,
        gpus=16,
    )
    part = partition("gpu", members, billing_weights=priced(10.0), **limits)
    return snapshot((part, members), *(extra or ()), jobs=(waiting,))


def modes(made):
    """Map a plan's strategies to their modes."""
    return {found.id: found.mode for found in made.strategies}


def test_a_window_of_240_minutes_yields_segments_beside_the_whole_time():
    """Test 9 of the findings: --time 12h where 240 minutes are free."""
    made = planned(Request(gpus=2, **HOURS), windowed(240))
    assert modes(made) == {
        "a40/1x2/gpu/checkpoint": Mode.CHECKPOINT,
        "a40/1x2/gpu": Mode.DIRECT,
    }
    (part, whole) = made.strategies
    assert part.walltime == timedelta(minutes=239)
    assert part.total == timedelta(hours=12)
    assert part.segments == 4  # 236 minutes of use each
    assert (part.estimate.source, part.estimate.start_in) == (Source.BACKFILL_WINDOW, timedelta(0))
    assert part.estimate.window == timedelta(minutes=240)
    assert whole.estimate.source is Source.PLANNED
    assert part.cost == whole.cost


def test_segments_are_submitted_only_with_checkpoint():
    """A command that cannot resume must not be cut short."""
    without = planned(Request(gpus=2, **HOURS), windowed(240))
    assert [job.strategy.id for job in without.submissions] == ["a40/1x2/gpu"]
    assert "1 checkpoint strategy is not submitted" in " ".join(without.job_notes)
    made = planned(Request(gpus=2, checkpoint=True, **HOURS), windowed(240))
    assert [job.strategy.id for job in made.submissions] == [
        "a40/1x2/gpu/checkpoint",
        "a40/1x2/gpu",
    ]
    assert all(job.strategy.template == "checkpoint" for job in made.submissions)
    each = planned(Request(gpus=2, fanout=Fanout.EACH, **HOURS), windowed(240))
    assert len(each.submissions) == 1


def test_a_model_that_is_free_for_the_whole_time_yields_none():
    """Nothing is planned on it, so that there is nothing to cut."""
    members = nodes("n", 2, gres={"a40": 8})
    made = planned(Request(gpus=2, **HOURS), snapshot((partition("gpu", members), members)))
    assert list(modes(made).values()) == [Mode.DIRECT]
    assert not made.job_notes


def test_a_checkpoint_strategy_is_never_covered_by_a_direct_one():
    """Finding 8: it starts no later and costs no more, but it is another way."""
    members = nodes("m", 2, gres={"a40": 8})
    beside = ((partition("other", members, billing_weights=priced(1.0)), members),)
    made = planned(Request(gpus=2, **HOURS), windowed(240, extra=beside))
    (part,) = [s for s in made.strategies if s.mode is Mode.CHECKPOINT]
    assert not part.covered_by


@pytest.mark.parametrize(
    ("minutes", "reason"),
    [
        (
            3,
            "a segment of 2m is too short: 120 s - 24 s - 60 s = 36 s of use, at least 60 s wanted",
        ),
        (
            2,
            "a segment of 1m is too short: 60 s - 12 s - 60 s = -12 s of use, at least 60 s wanted",
        ),
    ],
)
def test_segments_too_short_to_be_of_use_are_refused_with_the_arithmetic(minutes, reason):
    """Finding 9: the time left to the command could come out negative."""
    made = planned(Request(gpus=2, **HOURS), windowed(minutes))
    assert reasons(made)["a40/1x2/gpu/checkpoint"] == reason
    assert list(modes(made).values()) == [Mode.DIRECT]


def test_the_users_buffer_counts():
    """A model that takes long to save needs more of each segment."""
    request = Request(gpus=2, checkpoint=True, checkpoint_buffer=timedelta(minutes=30), **HOURS)
    (part, whole) = planned(request, windowed(60)).strategies
    assert (part.buffer, whole.buffer) == (timedelta(minutes=30), timedelta(minutes=30))
    assert part.segments == 26  # 59 - 30 - 1 minutes of use each
    longer = replace(request, checkpoint_buffer=timedelta(minutes=58))
    assert "a40/1x2/gpu/checkpoint" in reasons(planned(longer, windowed(60)))


def test_min_time_takes_the_longest_that_fits():
    """Slurm's own --time-min would cut the job to the minimum, not to the window."""
    request = Request(gpus=2, min_walltime=timedelta(hours=1), **HOURS)
    made = planned(request, windowed(240))
    (short,) = [s for s in made.strategies if s.mode is Mode.BACKFILL]
    assert short.walltime == timedelta(minutes=239)
    assert short.cost < min(s.cost for s in made.strategies if s is not short)
    assert [job.strategy.id for job in made.submissions] == ["a40/1x2/gpu/min-time", "a40/1x2/gpu"]
    assert (
        not planned(replace(request, min_walltime=timedelta(hours=4)), windowed(240))
        .submissions[0]
        .strategy.shortened
    )


def test_a_limit_below_the_whole_time_makes_segments_of_a_resumable_command():
    """Without --checkpoint the partition cannot serve it at all."""
    request = Request(gpus=2, **HOURS)
    limited = windowed(10000, max_time=timedelta(hours=4))
    assert "above" in reasons(planned(request, limited))["a40/gpu"]
    made = planned(replace(request, checkpoint=True), limited)
    require_feasible(made, request)
    (only,) = made.strategies
    assert (only.mode, only.walltime, only.segments) == (Mode.CHECKPOINT, timedelta(hours=4), 4)


def test_maintenance_ends_a_window_too():
    """A reservation of the nodes is as good as a planned job."""
    members = nodes("n", 1, gres={"a40": 8})
    start = NOON + timedelta(hours=2)
    maintenance = Reservation(name="m", nodes=("n1",), start=start, end=start + timedelta(hours=8))
    cluster = snapshot((partition("gpu", members), members), reservations=(maintenance,))
    made = planned(Request(**HOURS), cluster)
    assert modes(made)["a40/1x1/gpu/checkpoint"] is Mode.CHECKPOINT


@given(st.integers(0, 10**6))
def test_a_walltime_for_a_window_fits_it(seconds):
    """In whole minutes, with slack for the time between the look and the submission."""
    window = timedelta(seconds=seconds)
    walltime = longest_in(window)
    assert walltime % timedelta(minutes=1) == timedelta(0)
    assert timedelta(0) <= walltime <= max(timedelta(0), window - timedelta(seconds=30))


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 10**4))
def test_the_segments_hold_the_whole_time(total, walltime, buffer):
    """Their usable times add up to it, and one fewer would not do."""
    times = [timedelta(seconds=value) for value in (total, walltime, buffer)]
    count = segments(*times)
    left = usable(times[1], times[2])
    assert left == times[1] - times[2] - SIGNAL_EARLY
    if count > 1 and left > timedelta(0):
        assert (count - 1) * left < times[0] <= count * left
