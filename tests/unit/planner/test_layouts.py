"""How GPUs are spread over nodes, and who may pin it."""

import pytest

from rv.models.request import Command, Launcher, Layouts, NodeLimit, Pins, Request
from tests.unit.planner.clusters import campus, nodes, partition, planned, reasons, snapshot


def cluster(count=8, per_node=8, **more):
    """Return one partition of alike nodes."""
    members = nodes("n", count, gres={"a40": per_node}, **more)
    return snapshot((partition("gpu", members), members))


def spreads(site, **asked):
    """Return the layouts of a plan, fewest nodes first."""
    made = planned(Request(**asked), site)
    return [f"{s.nodes}x{s.gpus_per_node}" for s in sorted(made.strategies, key=lambda s: s.nodes)]


@pytest.mark.parametrize(
    ("per_node", "gpus", "expected"),
    [
        (8, 1, ["1x1"]),
        (8, 2, ["1x2"]),
        (8, 3, ["1x3"]),
        (8, 4, ["1x4", "2x2"]),
        (8, 6, ["1x6", "2x3"]),
        (8, 8, ["1x8", "2x4"]),
        (4, 8, ["2x4"]),
        (4, 12, ["3x4"]),
        (8, 12, ["2x6"]),
        (2, 8, ["4x2"]),
        (1, 4, []),
        (8, 128, []),
    ],
)
def test_one_node_and_the_narrowest_of_several(per_node, gpus, expected):
    """With at least two GPUs a node."""
    assert spreads(cluster(per_node=per_node), gpus=gpus) == expected


def test_every_divisor():
    """`--layouts all` goes down to one GPU a node."""
    found = spreads(cluster(), gpus=8, layouts=Layouts.ALL)
    assert found == ["1x8", "2x4", "4x2", "8x1"]
    assert spreads(cluster(), gpus=4, layouts=Layouts.ALL) == ["1x4", "2x2", "4x1"]


def test_node_limits_of_the_user():
    """`--single-node` and `--multi-node` keep the other kind out; 2x1 where the user insists."""
    assert spreads(cluster(), gpus=4, node_limit=NodeLimit.SINGLE) == ["1x4"]
    assert spreads(cluster(), gpus=4, node_limit=NodeLimit.MULTI) == ["2x2"]
    assert spreads(cluster(), gpus=2, node_limit=NodeLimit.MULTI) == ["2x1"]


def test_one_gpu_is_never_spread():
    """And the reason says so."""
    made = planned(Request(node_limit=NodeLimit.MULTI), cluster())
    assert reasons(made) == {"a40/gpu": "1 GPU cannot be spread evenly over several nodes"}


@pytest.mark.parametrize(
    ("launcher", "expected"),
    [
        (Launcher.TORCHRUN, ["1x4", "2x2"]),
        (Launcher.PLAIN, ["1x4"]),
        (Launcher.ACCELERATE, ["1x4"]),
        (Launcher.DEEPSPEED, ["1x4"]),
        (Launcher.MPI, ["1x4"]),
    ],
)
def test_several_nodes_only_for_torchrun(launcher, expected):
    """Other launchers would start on one of the nodes; the plan says how to insist."""
    command = Command(line="x", launcher=launcher)
    made = planned(Request(gpus=4, command=command), cluster())
    assert spreads(cluster(), gpus=4, command=command) == expected
    assert any("--multi-node" in note for note in made.notes) == (expected == ["1x4"])
    insisting = {"command": command, "node_limit": NodeLimit.MULTI}
    assert spreads(cluster(), gpus=4, **insisting) == ["2x2"]


@pytest.mark.parametrize(
    ("gpus", "pins", "expected"),
    [
        (4, Pins(processes_per_node=4, flags=("--nproc_per_node=4",)), ["1x4"]),
        (4, Pins(processes_per_node=2, flags=("--nproc_per_node=2",)), ["2x2"]),
        (4, Pins(processes_per_node=1, flags=("--nproc_per_node=1",)), ["4x1"]),
        (8, Pins(nodes=4, flags=("--nnodes=4",)), ["4x2"]),
        (8, Pins(nodes=1, flags=("--standalone",)), ["1x8"]),
        (4, Pins(processes_per_node=3, flags=("--nproc_per_node=3",)), []),
    ],
)
def test_a_command_pins_the_layout(gpus, pins, expected):
    """Processes a node are GPUs a node; the note names the flag."""
    command = Command(line="torchrun x.py", launcher=Launcher.TORCHRUN, pins=pins)
    made = planned(Request(gpus=gpus, command=command), cluster())
    assert spreads(cluster(), gpus=gpus, command=command) == expected
    assert any(pins.flags[0] in note for note in made.notes)
    if not expected:
        reason = "the command pins a layout that 4 GPUs cannot have (--nproc_per_node=3)"
        assert reasons(made) == {"a40/gpu": reason}


def test_one_node_is_too_few_for_several():
    """Where one GPU a node would do, the split is not what is wrong."""
    members = nodes("h", 1, gres={"h100": 4})
    cluster = snapshot((partition("gpu", members), members))
    made = planned(Request(gpus=2, node_limit=NodeLimit.MULTI), cluster)
    assert reasons(made) == {"h100/gpu": "2 nodes asked, there is 1 with 1 GPU or more"}


def test_lost_nodes_are_counted():
    """A layout that fits but for drained nodes says how many."""
    good = nodes("g", 1, gres={"a40": 8})
    bad = nodes("b", 2, gres={"a40": 8}, states=("IDLE", "DRAIN"))
    site = snapshot((partition("gpu", good + bad), good + bad))
    made = planned(Request(gpus=8), site)
    assert [s.id for s in made.strategies] == ["a40/1x8/gpu"]
    assert made.strategies[0].node_names == ("g1",)
    assert reasons(made)["a40/2x4/gpu"] == "2 of 3 nodes are not usable (2 drained)"


@pytest.mark.parametrize("state", ["DOWN", "DRAIN", "FAIL", "MAINT", "RESERVED", "POWERED_DOWN"])
def test_unusable_states(state):
    """None of them takes a job."""
    made = planned(Request(), cluster(count=1, states=("IDLE", state)))
    assert made.strategies == ()
    assert reasons(made)["a40/gpu"].startswith("1 of 1 node is not usable (1 ")


def test_excluded_nodes_are_not_used():
    """`--exclude` of all nodes of a model leaves it out, and is passed on for the others."""
    made = planned(Request(exclude_nodes=("h200n1", "h200n2"), types=("h200", "a40")), campus())
    assert [s.gpu for s in made.strategies] == ["a40"]
    assert made.strategies[0].exclude_nodes == ("h200n1", "h200n2")
    assert reasons(made)["h200/gpu-h200"] == "2 of 2 nodes are not usable (2 excluded)"
