"""MIG: one slice, one CPU, and memory that never becomes a second CPU."""

import pytest

from rv.errors import ErrorKind, RvError
from rv.models.request import Request
from tests.unit.planner.clusters import campus, ids, nodes, partition, planned, reasons, snapshot

GIB = 1024


def only(cluster=None, **asked):
    """Return the single strategy of a request."""
    (strategy,) = planned(Request(**asked), cluster or campus()).strategies
    return strategy


def sliced(**limits):
    """Return a cluster with two sizes of slices in one partition, and whole GPUs."""
    cut = nodes("m", 1, gres={"nvidia_a100_1g.10gb": 14, "nvidia_a100_3g.40gb": 4})
    whole = nodes("w", 1, gres={"a100": 4})
    return snapshot((partition("gpu", cut + whole, **limits), cut + whole))


def test_mig_cpu_limit_of_the_findings():
    """One CPU: the site's QOS allows no more, and 16 G at 8000 M a CPU would ask for two."""
    strategy = only(mig=True)
    assert strategy.cpus_per_task == 1
    assert strategy.memory_mib <= 8000
    assert strategy.gres == "gpu:1g.10gb:1"
    assert (strategy.template, strategy.mig_profile) == ("mig", "1g.10gb")


def test_a_slice_is_not_held_to_what_nvidia_smi_says_of_the_card():
    """It names the card, and its memory, or nothing."""
    strategy = only(mig=True)
    assert (strategy.name_pattern, strategy.vram_mib) == ("", 0)


def test_mig_memory_of_the_findings():
    """At most 16 G, whatever the proportion of a 2 TB node is."""
    assert only(sliced(), mig=True).memory_mib == 16 * GIB


def test_less_memory_is_the_users_choice():
    """`--mem` below the ceiling counts."""
    assert only(mig=True, memory_mib=4 * GIB).memory_mib == 4 * GIB


def test_more_memory_than_one_cpu_may_have_is_left_out_with_the_reason():
    """16 G would be three CPUs' worth here, which the QOS forbids: said, not found out in the queue."""
    made = planned(Request(mig=True, memory_mib=20 * GIB), campus())
    assert ids(made) == []
    assert reasons(made)["1g.10gb/gpu-mig"] == "QOS mig allows 1 CPU per job, 3 asked"


def test_the_smallest_slice_is_chosen():
    """And the larger one says why it was not."""
    made = planned(Request(mig=True), sliced())
    assert ids(made) == ["1g.10gb/1x1/gpu"]
    assert reasons(made) == {"3g.40gb/gpu": "the smaller slice 1g.10gb is enough"}


def test_vram_chooses_a_larger_slice():
    """`--mig --vram 20G` needs the 40 GB slice."""
    strategy = only(sliced(), mig=True, min_vram_mib=20 * GIB)
    assert (strategy.gpu, strategy.gres) == ("3g.40gb", "gpu:nvidia_a100_3g.40gb:1")


def test_a_profile_is_a_type():
    """Naming the slice asks for it without --mig."""
    assert only(sliced(), types=("3g.40gb",)).gpu == "3g.40gb"
    assert only(types=("mig",)).gpu == "1g.10gb"


def test_whole_gpus_never_come_from_slices():
    """Without --mig slices are left out, and say how to get them."""
    made = planned(Request(), sliced())
    assert ids(made) == ["a100/1x1/gpu"]
    assert reasons(made)["1g.10gb/gpu"] == "MIG slices are used only with --mig"
    assert reasons(planned(Request(types=("a100",)), sliced())) == {}


@pytest.mark.parametrize(
    ("asked", "kind", "words"),
    [
        ({"mig": True, "gpus": 2}, ErrorKind.USAGE, "one MIG slice"),
        ({"mig": True, "types": ("a40",)}, ErrorKind.USAGE, "exclude each other"),
        ({"types": ("7g.80gb",)}, ErrorKind.INFEASIBLE, "no MIG slice 7g.80gb"),
        ({"mig": True, "partitions": ("gpu-a40",)}, ErrorKind.INFEASIBLE, "no MIG slices"),
    ],
)
def test_wishes_that_no_slice_meets(asked, kind, words):
    """Each has one sentence and the documented kind."""
    with pytest.raises(RvError, match=words) as caught:
        planned(Request(**asked), campus())
    assert caught.value.kind is kind
