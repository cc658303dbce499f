"""CPUs, memory and walltime of a job."""

from datetime import timedelta

import pytest

from rv.models.request import DEFAULT_WALLTIME, Request
from tests.unit.planner.clusters import nodes, partition, planned, reasons, snapshot

GIB = 1024


def site(*, cpus=128, gib=512, per_node=8, **limits):
    """Return two alike nodes in one partition with the limits given."""
    members = nodes("n", 2, gres={"a40": per_node}, cpus=cpus, gib=gib)
    return snapshot((partition("gpu", members, **limits), members))


def only(cluster, **asked):
    """Return the single-node strategy of a request."""
    made = planned(Request(**asked), cluster)
    return next(strategy for strategy in made.strategies if strategy.nodes == 1)


@pytest.mark.parametrize(
    ("gpus", "cpus", "expected"),
    [(1, 128, 4), (4, 128, 16), (8, 128, 32), (8, 24, 24), (2, 24, 6), (1, 4, 1)],
)
def test_four_cpus_a_gpu_up_to_32_and_the_share_of_the_node(gpus, cpus, expected):
    """Never more than the node has in proportion, never less than one."""
    assert only(site(cpus=cpus), gpus=gpus).cpus_per_task == expected


def test_memory_in_proportion_leaves_room():
    """Half the GPUs ask for a little under half the memory."""
    strategy = only(site(gib=512), gpus=4)
    assert 0.85 * 256 * GIB <= strategy.memory_mib < 256 * GIB


def test_the_smallest_node_decides_where_they_differ():
    """A strategy fits every node that it names."""
    small = nodes("s", 1, gres={"a40": 8}, cpus=16, gib=64)
    large = nodes("l", 1, gres={"a40": 8}, cpus=128, gib=512)
    cluster = snapshot((partition("gpu", small + large), small + large))
    strategy = only(cluster, gpus=8)
    assert (strategy.cpus_per_task, len(strategy.node_names)) == (16, 2)
    assert strategy.memory_mib <= 64 * GIB


def test_the_users_own_figures_count():
    """Both are a node's, and leave out the nodes that are too small."""
    strategy = only(site(), gpus=1, cpus=20, memory_mib=100 * GIB)
    assert (strategy.cpus_per_task, strategy.memory_mib) == (20, 100 * GIB)
    assert reasons(planned(Request(cpus=200), site())) == {
        "a40/gpu": "200 CPUs a node needed, the largest node has 128"
    }
    assert reasons(planned(Request(memory_mib=1024 * GIB), site())) == {
        "a40/gpu": "1T of memory a node needed, the largest node has 512G"
    }


def test_memory_per_cpu_caps_the_default():
    """Slurm would add CPUs by itself, unseen."""
    strategy = only(site(max_memory_per_cpu_mib=2000), gpus=1)
    assert (strategy.cpus_per_task, strategy.memory_mib) == (4, 8000)


def test_memory_above_it_raises_the_cpus_in_the_open():
    """The plan asks for them itself and says so."""
    made = planned(Request(memory_mib=32 * GIB), site(max_memory_per_cpu_mib=4000))
    assert made.strategies[0].cpus_per_task == 9
    assert made.notes == ("gpu: 32G takes 9 CPUs a node, because MaxMemPerCPU is 4000M",)


def test_memory_above_it_contradicts_cpus_that_the_user_gave():
    """Neither of the user's figures is changed."""
    made = planned(Request(memory_mib=32 * GIB, cpus=4), site(max_memory_per_cpu_mib=4000))
    expected = "32G needs 9 CPUs at MaxMemPerCPU 4000M of partition gpu, 4 asked"
    assert reasons(made) == {"a40/gpu": expected}


def test_limits_a_node():
    """They cap what rv chooses, and refuse what the user gave."""
    limits = {"max_cpus_per_node": 2, "max_memory_per_node_mib": 9000}
    strategy = only(site(**limits), gpus=1)
    assert (strategy.cpus_per_task, strategy.memory_mib) == (2, 9000)
    assert reasons(planned(Request(cpus=3), site(**limits))) == {
        "a40/gpu": "partition gpu allows 2 CPUs a node, 3 needed"
    }
    assert reasons(planned(Request(memory_mib=10 * GIB), site(**limits))) == {
        "a40/gpu": "partition gpu allows 8.789G of memory a node, 10G asked"
    }


def test_nodes_that_declare_no_memory():
    """RealMemory=1, Slurm's default, asks for whatever there is."""
    members = nodes("n", 1, gres={"a40": 1}, gib=0)
    assert only(snapshot((partition("gpu", members), members))).memory_mib == 0


def test_the_default_walltime_is_cut_and_a_given_one_is_not():
    """A partition of one hour serves a request without --time, and refuses one of two hours."""
    short = site(max_time=timedelta(hours=1))
    assert only(short).walltime == timedelta(hours=1)
    assert only(site()).walltime == DEFAULT_WALLTIME
    made = planned(Request(walltime=timedelta(hours=2), walltime_given=True), short)
    assert reasons(made) == {"a40/gpu": "2h is above MaxTime of partition gpu: 1h"}
    assert made.excluded[0].by_limit
