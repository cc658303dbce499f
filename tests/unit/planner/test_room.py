"""Many races at once, against what their user may still submit."""

from dataclasses import replace

import pytest

from rv.errors import ErrorKind, RvError
from rv.models.job import JobState
from rv.models.request import Fanout, Request
from rv.models.snapshot import Limits, Qos, QueuedJob
from rv.planner.room import require_room
from tests.unit.planner.clusters import A40, nodes, partition, planned, snapshot


def plan(limit: int | None, *, state: JobState = JobState.PENDING, second: int | None = None):
    """Plan one call where a job of the user's is queued already, on one partition or two."""
    members = nodes("n", 2, gres=A40)
    pairs = [(partition("first", members, qos="tight"), members)]
    if second is not None:
        others = nodes("m", 2, gres={"v100": 4})
        pairs.append((partition("other", others, qos="wide"), others))
    normal, *limited = (
        Qos(name=name, limits=Limits(max_submit_per_user=most))
        for name, most in (("normal", None), ("tight", limit), ("wide", second))
    )
    job = QueuedJob(job_id="1", user="ann", partition="first", state=state, qos="normal")
    cluster = snapshot(*pairs, qos=(normal, *limited))
    return planned(Request(fanout=Fanout.EACH), replace(cluster, jobs=(job,)))


def test_as_many_as_the_limit_leaves_are_let_through():
    """One place is taken already; without a limit there may be any number."""
    require_room([plan(4)] * 3)
    require_room([plan(None)] * 1000)


def test_more_are_refused_with_how_many_would_go():
    """Before anything is staged; the hint says what does not help."""
    with pytest.raises(RvError, match=r"5 races are more.*QOS tight leaves room for 3") as caught:
        require_room([plan(4)] * 5)
    assert caught.value.kind is ErrorKind.LIMIT
    assert "submit 3 at a time" in caught.value.hint


def test_a_second_limit_has_room_of_its_own():
    """Each race needs one place, wherever that is."""
    require_room([plan(3, second=4)] * 6)
    with pytest.raises(RvError, match="QOS tight, QOS wide leaves room for 6"):
        require_room([plan(3, second=4)] * 7)


def test_a_job_that_completes_takes_no_place():
    """Slurm has taken it off the limit before its node is cleaned up."""
    require_room([plan(4, state=JobState.COMPLETING)] * 4)
