"""Test 3 of the findings: the strategies of the campus, by name and with every name changed."""

from datetime import timedelta

import pytest

from rv.models.performance import Source
from rv.models.request import Request
from tests.unit.planner.clusters import (
    campus,
    ids,
    nodes,
    partition,
    planned,
    reasons,
    renamed,
    snapshot,
)

HALF_HOUR = {"walltime": timedelta(minutes=30), "walltime_given": True}
HOUR = {"walltime": timedelta(hours=1), "walltime_given": True}
DAY = {"walltime": timedelta(hours=24), "walltime_given": True}
ANY_GPU = [
    ({"gpus": 2, **HALF_HOUR}, 7),
    ({"gpus": 4, **HALF_HOUR}, 12),
    ({"gpus": 8, **HOUR}, 9),
    ({"gpus": 8, **DAY}, 9),
]


@pytest.mark.parametrize(("asked", "count"), ANY_GPU)
def test_counts_of_the_findings(asked, count):
    """The campus yields the findings' numbers of strategies."""
    assert len(planned(Request(**asked), campus()).strategies) == count


@pytest.mark.parametrize(("asked", "count"), ANY_GPU)
def test_counts_hold_when_every_name_is_changed(asked, count):
    """Nothing in the counts comes from a name that a table knows."""
    made = planned(Request(**asked), renamed(campus()))
    assert len(made.strategies) == count
    assert all(strategy.gpu.startswith("weird") for strategy in made.strategies)


def test_a100_means_the_80_gb_model_only():
    """`--type a100` follows the alias, not the GRES type that both models share."""
    made = planned(Request(gpus=4, types=("a100",), **HALF_HOUR), campus())
    assert ids(made) == ["a100-80/1x4/gpu-a100-80", "a100-80/2x2/gpu-a100-80"]


def test_campus_spellings_name_either_a100():
    """The site's own words for its models are understood."""
    made = planned(Request(gpus=1, types=("a100_40", "A100_80")), campus())
    assert ids(made) == ["a100-40/1x1/gpu-a100-40", "a100-80/1x1/gpu-a100-80"]


def test_two_h200_have_one_strategy():
    """Two nodes of one GPU each are no layout of two GPUs."""
    made = planned(Request(gpus=2, types=("h200",), **HALF_HOUR), campus())
    assert ids(made) == ["h200/1x2/gpu-h200"]


def test_eight_gpus_leave_out_h200_and_one_v100_node_with_reasons():
    """V100 only spreads, H200 is limited by its QOS, and both are said."""
    made = planned(Request(gpus=8, **HOUR), campus())
    said = reasons(made)
    assert "v100/2x4/gpu-v100" in ids(made)
    assert said["v100/1x8/gpu-v100"] == "a node has at most 4 GPUs, 8 asked"
    assert said["h200/gpu-h200"] == "QOS h200 allows 4 GPUs per user, 8 asked"


def test_four_gpus_leave_out_the_interactive_partition():
    """A per-job limit of the partition's QOS is a reason."""
    said = reasons(planned(Request(gpus=4), campus()))
    assert said["rtx3090/interactive-rtx3090"] == "QOS rtx allows 2 GPUs per job, 4 asked"


def test_a_day_is_too_long_for_the_interactive_partition():
    """A walltime that the user gave is never cut; the partition is left out."""
    said = reasons(planned(Request(gpus=1, **DAY), campus()))
    expected = "1d is above MaxTime of partition interactive-rtx3090: 12h"
    assert said["rtx3090/interactive-rtx3090"] == expected


def test_the_cheapest_idle_one_is_first():
    """All are idle: price decides."""
    made = planned(Request(gpus=4), campus())
    assert ids(made)[0] == "v100/1x4/gpu-v100"
    assert made.strategies[0].cost == pytest.approx(4 * 20.96 * (2 + 59 / 60), abs=0.01)
    assert {strategy.estimate.source for strategy in made.strategies} == {Source.IDLE}


def test_one_partition_of_several_typed_gpus():
    """A differently shaped cluster: one partition, three typed models, one of them on both kinds."""
    small = nodes("s", 3, gres={"nvidia_a10": 2, "tesla_t4": 4})
    large = nodes("l", 2, gres={"nvidia_h100_80gb_hbm3": 8})
    cluster = snapshot((partition("gpu", small + large), small + large))
    assert sorted(ids(planned(Request(gpus=2), cluster))) == [
        "a10/1x2/gpu",
        "h100/1x2/gpu",
        "t4/1x2/gpu",
    ]
    assert sorted(ids(planned(Request(gpus=4), cluster))) == [
        "a10/2x2/gpu",
        "h100/1x4/gpu",
        "h100/2x2/gpu",
        "t4/1x4/gpu",
        "t4/2x2/gpu",
    ]
    assert len(planned(Request(gpus=4), renamed(cluster)).strategies) == 5
