"""The error where nothing can serve a request leads with a reason that is about the request.

Its message alone is the truth: a sweep of acceptance shows no hint.
"""

import pytest

from rv.errors import ErrorKind, RvError
from rv.models.request import Request
from rv.models.site import Site
from rv.planner import plan, require_feasible
from tests.unit.planner.clusters import (
    CATALOGUE,
    FAMILIES,
    GIB,
    campus,
    nodes,
    partition,
    reasons,
    snapshot,
)

TOO_MUCH = 9999 * GIB
AVOIDED = Site(avoided={"a1": "failed acceptance (wrong_result)"})


def cluster(**more):
    """Return two A100 nodes, and two V100 nodes, in a partition each."""
    a100 = nodes("a", 2, gres={"a100": 4}, gib=1024, features=("a100_80gb",))
    v100 = nodes("v", 2, gres={"v100": 4}, gib=384)
    return snapshot((partition("alpha", a100, **more), a100), (partition("beta", v100), v100))


def refusal(asked, site=AVOIDED, where=None):
    """Return the error for a request."""
    with pytest.raises(RvError) as caught:
        require_feasible(plan(asked, where or cluster(), CATALOGUE, FAMILIES, site), asked)
    return caught.value


@pytest.mark.parametrize("site", [Site(), AVOIDED], ids=["none avoided", "a1 avoided"])
def test_it_is_about_the_nodes_asked_for(site):
    """Neither about those that were not, nor about one of them that is avoided."""
    error = refusal(Request(gpus=4, only_nodes=("v1",), memory_mib=TOO_MUCH), site)
    wanted = "nothing here can serve 4 GPUs: v100/1x4/beta: 9.765T of memory a node needed"
    assert error.message == f"{wanted}, the largest node has 384G"
    assert error.kind is ErrorKind.INFEASIBLE


def test_a_limit_where_no_node_is_asked_for_is_none_of_the_request():
    """Limits come first among reasons, but only among those that are about the request."""
    closed = cluster(allow_groups=frozenset({"staff"}))
    error = refusal(Request(gpus=4, only_nodes=("v1",), memory_mib=TOO_MUCH), where=closed)
    assert "384G" in error.message
    assert error.kind is ErrorKind.INFEASIBLE
    assert refusal(Request(gpus=4, memory_mib=TOO_MUCH), where=closed).kind is ErrorKind.LIMIT


def test_it_is_about_the_memory_that_no_gpu_has():
    """Not about an avoided node, which has not got it either."""
    error = refusal(Request(gpus=4, min_vram_mib=500 * GIB))
    assert error.message.endswith(": a100-80/alpha: has 80G of memory, 500G asked")
    assert error.hint.endswith("a1: failed acceptance (wrong_result)")


def test_avoided_nodes_that_are_the_reason_are_named():
    """Their pool counts them, and the hint says which, and why."""
    every = Site(avoided=dict.fromkeys(("a1", "a2"), "failed acceptance (ecc)"))
    error = refusal(Request(gpus=4, types=("a100",)), every)
    assert error.message.endswith("2 of 2 nodes are not usable (2 failing acceptance)")
    assert "a1: failed acceptance (ecc)" in error.hint


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        (Request(gpus=4, types=("a100",), only_nodes=("v1",)), "a100-80/alpha"),
        (Request(gpus=0, only_nodes=("gpu-v100-n1",)), "cpu/standard"),
    ],
    ids=["another type", "no GPUs"],
)
def test_no_node_asked_for_has_what_is_asked_for(asked, what):
    """Then that is the reason, of the pools that would serve it."""
    where = cluster() if asked.gpus else campus()
    made = plan(asked, where, CATALOGUE, FAMILIES, Site())
    assert reasons(made) == {what: "it has none of the nodes asked for"}
    assert f": {what}: it has none of" in refusal(asked, Site(), where).message


def test_gpus_beside_slices_are_said_of_the_nodes_asked_for_alone():
    """What no feature tells apart elsewhere is nothing to who names other nodes."""
    slices = nodes("m", 1, gres={"1g.10gb": 7}, features=("a100",))
    whole = nodes("w", 1, gres={"": 4}, features=("a100",))
    v100 = nodes("v", 1, gres={"v100": 4})
    mixed = (*slices, *whole)
    where = snapshot((partition("alpha", mixed), mixed), (partition("beta", v100), v100))
    error = refusal(Request(gpus=4, only_nodes=("v1",), memory_mib=TOO_MUCH), Site(), where)
    assert ": v100/1x4/beta: " in error.message
    assert "no feature tells" not in f"{error.message} {error.hint}"
    named = refusal(Request(gpus=4, only_nodes=("w1",)), Site(), where)
    assert "no feature tells its GPUs from the MIG slices" in named.message
