"""Which nodes a request may have: constraints, nodes asleep, reservations."""

from datetime import timedelta

import pytest

from rv.errors import RvError
from rv.models.performance import Source
from rv.models.request import Request
from rv.models.snapshot import (
    ClusterConfig,
    Reservation,
)
from rv.planner.eligibility import meets, parse_constraint
from tests.unit.planner.clusters import (
    A40,
    NOON,
    nodes,
    one_partition,
    planned,
    reasons,
)


@pytest.mark.parametrize(
    ("expression", "features", "met"),
    [
        ("a", "a b", True),
        ("a&b", "a", False),
        ("a|b", "b", True),
        ("(a|b)&c", "b c", True),
        ("(a|b)&c", "b", False),
        # From the left, as 22.05 was seen to read it: (h|a)&r.
        ("h|a&r", "h", False),
        ("a&r|h", "h", True),
    ],
)
def test_what_an_expression_of_features_allows(expression, features, met):
    """AND, OR and parentheses, in Slurm's order."""
    assert meets(frozenset(features.split()), expression) is met


@pytest.mark.parametrize("text", ["a&", "(a", "a b", "a*x", "[a|b]&c", "a*2&b*2", "a;b", "[]"])
def test_what_is_no_constraint(text):
    """Slurm would refuse it, or read something else: rv says what can be written."""
    with pytest.raises(RvError, match="is no constraint"):
        parse_constraint(text)


def racks():
    """Return GPU nodes of one model in two racks."""
    near = nodes("r", 2, gres=A40, features=("a40", "rack1"))
    far = nodes("s", 1, gres=A40, features=("a40", "rack2", "fast"))
    return one_partition(near, far)


@pytest.mark.parametrize(
    ("constraint", "wanted"),
    [
        ("rack1", {"1x4": "rack1", "2x2": "rack1"}),
        ("rack1&fast", {}),
        ("rack1|fast", {"1x4": "rack1|fast", "2x2": "rack1|fast"}),
        ("[rack1|rack2]", {"1x4/rack1": "rack1", "1x4/rack2": "rack2", "2x2/rack1": "rack1"}),
        ("[rack1*1&rack2*1]", {"2x2": "[rack1*1&rack2*1]"}),
        ("rack1*2", {"2x2": "rack1*2"}),
        ("rack2*2", {}),
    ],
)
def test_the_users_own_constraint(constraint, wanted):
    """It picks nodes, splits into one strategy for each of `[a|b]`, and counts nodes."""
    made = planned(Request(gpus=4, constraint=constraint), racks())
    found = {s.id.removeprefix("a40/").replace("/gpu", ""): s.constraint for s in made.strategies}
    assert found == wanted
    assert wanted or made.excluded


def test_a_constraint_joins_the_one_that_tells_models_apart():
    """Both hold; a count is then of nodes of that model, and counts them all."""
    old = nodes("v", 2, gres={"": 4}, features=("v100", "rack1"))
    new = nodes("h", 2, gres={"": 4}, features=("h100", "rack1"))
    cluster = one_partition(old, new)
    plain = planned(Request(constraint="rack1|h100"), cluster).strategies
    assert {s.constraint for s in plain} == {"(rack1|h100)&v100", "(rack1|h100)&h100"}
    counted = planned(Request(gpus=4, constraint="[rack1*2]"), cluster).strategies
    assert {(s.nodes, s.constraint) for s in counted} == {
        (2, "[(rack1&v100)*2]"),
        (2, "[(rack1&h100)*2]"),
    }
    assert {s.estimate.source for s in counted} == {Source.UNKNOWN}


def test_an_unknown_feature_names_the_nearest():
    """A slip of the pen is no reason to wait for ever."""
    with pytest.raises(RvError, match=r"no node feature 'rack3', nearest: rack\d"):
        planned(Request(constraint="rack3"), racks())


def asleep(*states):
    """Return two nodes awake, and two of the given states."""
    awake = nodes("n", 2, gres=A40)
    return one_partition(awake, nodes("c", 2, gres={"a40": 8}, states=("IDLE", "CLOUD", *states)))


@pytest.mark.parametrize("state", ["POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN"])
def test_nodes_that_sleep_are_left_alone(state):
    """Slurm would wake them for a job that does not leave them out."""
    (one,) = planned(Request(gpus=1), asleep(state)).strategies
    assert (one.node_names, one.exclude_nodes) == (("n1", "n2"), ("c1", "c2"))
    said = reasons(planned(Request(gpus=8), asleep(state)))
    reason = "2 of 2 nodes are not usable (2 powered down); --power-up wakes nodes"
    assert said["a40/1x8/gpu"] == reason
    woken = planned(Request(gpus=8, power_up=True), asleep(state)).strategies
    (single,) = [s for s in woken if s.nodes == 1]
    assert (single.node_names, single.exclude_nodes) == (("c1", "c2"), ())
    assert single.estimate.source is Source.UNKNOWN


def test_nodes_that_a_new_controller_has_not_heard_of_yet():
    """They are not lost before SlurmdTimeout; nor is their start known."""
    members = nodes("n", 1, gres=A40, states=("UNKNOWN",))
    config = ClusterConfig(booted_at=NOON - timedelta(seconds=20))
    (strategy,) = planned(Request(), one_partition(members, config=config)).strategies
    assert strategy.estimate.source is Source.UNKNOWN
    old = ClusterConfig(booted_at=NOON - timedelta(hours=1))
    made = planned(Request(), one_partition(members, config=old))
    assert reasons(made) == {"a40/gpu": "1 of 1 node is not usable (1 in an unknown state)"}


def test_a_reservation_that_the_user_names():
    """Its nodes, and only they, take the job; nobody else's jobs start there meanwhile."""
    mine = nodes("r", 1, gres=A40, states=("IDLE", "RESERVED"))
    cluster = one_partition(
        mine,
        nodes("n", 1, gres=A40),
        reservations=(
            Reservation(name="class", nodes=("r1",), start=NOON, end=NOON + timedelta(days=1)),
        ),
    )
    (outside,) = planned(Request(), cluster).strategies
    assert (outside.node_names, outside.estimate.source) == (("n1", "r1"), Source.IDLE)
    (inside,) = planned(Request(sbatch=(("reservation", "class"),)), cluster).strategies
    assert (inside.node_names, inside.estimate.source) == (("r1",), Source.IDLE)
    with pytest.raises(RvError, match="no reservation 'clas', nearest: class"):
        planned(Request(sbatch=(("reservation", "clas"),)), cluster)


def test_any_of_several_reservations():
    """A list of them, as sbatch takes it."""
    held = nodes("r", 2, gres=A40, states=("IDLE", "RESERVED"))
    booked = tuple(
        Reservation(name=f"class{n}", nodes=(f"r{n}",), start=NOON, end=NOON + timedelta(days=1))
        for n in (1, 2)
    )
    cluster = one_partition(held, reservations=booked)
    (inside,) = planned(Request(sbatch=(("reservation", "class1,class2"),)), cluster).strategies
    assert (inside.node_names, inside.estimate.source) == (("r1", "r2"), Source.IDLE)


def test_a_job_without_gpus_wakes_no_gpu_node_either():
    """It would fit there, and Slurm would power it up."""
    plain = nodes("n", 1, states=("ALLOCATED",), used=0)
    asleep_ = nodes("g", 2, gres=A40, states=("IDLE", "POWERED_DOWN"))
    (one,) = planned(Request(gpus=0, cpus=2), one_partition(plain, asleep_)).strategies
    assert one.exclude_nodes == ("g1", "g2")
    woken = planned(
        Request(gpus=0, cpus=2, power_up=True), one_partition(plain, asleep_)
    ).strategies
    assert woken[0].exclude_nodes == ()
