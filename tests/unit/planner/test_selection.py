"""Words that name nothing are errors that name the nearest; words that fit nothing say so."""

import pytest

from rv.errors import ErrorKind, RvError
from rv.models.request import Request
from rv.models.snapshot import Association
from rv.planner import require_feasible
from tests.unit.planner.clusters import campus, ids, nodes, partition, planned, reasons, snapshot


def refused(cluster=None, **asked):
    """Return the error of planning a request."""
    with pytest.raises(RvError) as caught:
        planned(Request(**asked), cluster or campus())
    return caught.value


def infeasible(cluster=None, **asked):
    """Return the error of requiring a job for a request."""
    request = Request(**asked)
    with pytest.raises(RvError) as caught:
        require_feasible(planned(request, cluster or campus()), request)
    return caught.value


def test_unknown_type_names_the_nearest():
    """And lists the types that are here."""
    error = refused(types=("a1000",))
    assert (error.kind, error.message) == (
        ErrorKind.USAGE,
        "unknown GPU type 'a1000', nearest: a100",
    )
    assert "h200" in error.hint


def test_known_type_that_is_not_here():
    """A model of the catalogue is infeasible, not a slip of the pen."""
    error = refused(types=("b200",))
    assert error.kind is ErrorKind.INFEASIBLE
    assert "no b200" in error.message
    assert "a100-80" in error.hint


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"partitions": ("gpu-v10",)}, "there is no partition 'gpu-v10', nearest: gpu-v100"),
        ({"qos": "h20"}, "there is no QOS 'h20', nearest: h200"),
        ({"exclude_nodes": ("rtx9",)}, "there is no node 'rtx9', nearest: rtx2"),
        ({"gpus": -1}, "-1 is no number of GPUs"),
    ],
)
def test_unknown_names(asked, message):
    """Each kind of name is checked against what the cluster has."""
    error = refused(**asked)
    assert (error.kind, error.message) == (ErrorKind.USAGE, message)


def test_unknown_account():
    """Accounts are the user's own."""
    members = nodes("n", 1, gres={"t4": 1})
    mine = (Association(account="physics"),)
    cluster = snapshot((partition("gpu", members), members), associations=mine)
    error = refused(cluster, account="fysics")
    assert error.message == "there is no account of yours 'fysics', nearest: physics"


def test_vram_filters_and_takes_the_marketing_figure():
    """`--vram 40G` takes 40 GB cards, `48G` takes cards that report 45 GiB, and no smaller ones."""
    forty = planned(Request(min_vram_mib=40 * 1024), campus())
    assert {s.gpu for s in forty.strategies} == {"a6000", "a40", "a100-40", "a100-80", "h200"}
    assert reasons(forty)["v100/gpu-v100"] == "has 32G of memory, 40G asked"
    more = planned(Request(min_vram_mib=48 * 1024), campus())
    assert {s.gpu for s in more.strategies} == {"a6000", "a40", "a100-80", "h200"}
    assert {s.vram_mib for s in more.strategies} == {48 * 1024}


def test_vram_of_an_unknown_model_is_not_known():
    """An unknown type is not assumed to be large enough."""
    members = nodes("n", 1, gres={"weird": 1})
    made = planned(Request(min_vram_mib=1024), snapshot((partition("gpu", members), members)))
    assert reasons(made) == {"weird/gpu": "its memory is not known, 1G asked"}


def test_partition_limits_the_choice():
    """`-p` keeps the others out without a word, and a partition without GPUs with one."""
    made = planned(Request(partitions=("gpu-a40", "standard")), campus())
    assert ids(made) == ["a40/1x1/gpu-a40"]
    assert reasons(made) == {"standard": "the partition has no GPUs"}


def test_impossible_count_is_infeasible():
    """No cluster has a thousand of them; the sentence counts what there is."""
    error = infeasible(gpus=1000, types=("a40",))
    assert error.kind is ErrorKind.INFEASIBLE
    assert "1000 a40 GPUs" in error.message
    assert "a node has at most 8 GPUs" in error.message


def test_a_limit_is_a_limit():
    """Where a QOS speaks the kind says so."""
    error = infeasible(gpus=8, types=("h200",))
    assert error.kind is ErrorKind.LIMIT
    assert "QOS h200 allows 4 GPUs per user, 8 asked" in error.message


def test_a_cluster_without_gpus():
    """Nothing to name, still one sentence."""
    members = nodes("c", 1)
    error = infeasible(snapshot((partition("cpu", members), members)))
    assert (error.kind, error.message) == (
        ErrorKind.INFEASIBLE,
        "this cluster has no GPUs to offer",
    )


def test_a_feasible_plan_raises_nothing():
    """The check is silent where there is a job."""
    request = Request()
    require_feasible(planned(request, campus()), request)


def test_no_gpus_asked():
    """A job without GPUs goes to the nodes without GPUs."""
    (strategy,) = planned(Request(gpus=0, cpus=8), campus()).strategies
    assert (strategy.gpu, strategy.gres, strategy.partition) == ("cpu", "", "standard")
    assert (strategy.gpus, strategy.nodes, strategy.cpus_per_task) == (0, 1, 8)
