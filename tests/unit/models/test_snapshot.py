"""A snapshot written and read back is the same; anything else is refused in one line."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rv.errors import ErrorKind, RvError
from rv.models.job import JobState
from rv.models.snapshot import (
    Association,
    Limits,
    QueuedJob,
    Reservation,
    read_snapshot,
    write_snapshot,
)
from tests.unit.planner.clusters import NOON, campus

FULL = replace(
    campus(),
    groups=frozenset({"lab", "users"}),
    jobs=(
        QueuedJob(
            job_id="7_3",
            user="somebody",
            partition="a,b",
            state=JobState.SUSPENDED,
            nodes=("n1", "n2"),
            start=NOON,
            end=NOON + timedelta(hours=3),
            gpus=4,
            name="ünï ☃",
        ),
    ),
    reservations=(
        Reservation(name="maint", nodes=("n1",), start=NOON, end=NOON + timedelta(days=1)),
    ),
    associations=(Association(account="lab", limits=Limits(max_wall=timedelta(hours=1))),),
    notes=("slurmdbd does not answer",),
)


def test_round_trip():
    """Every field of every noun, sets and times included."""
    assert read_snapshot(write_snapshot(FULL), "x") == FULL


def test_equal_snapshots_give_equal_text():
    """Sets have no order, the text has."""
    assert write_snapshot(FULL) == write_snapshot(read_snapshot(write_snapshot(FULL), "x"))


def test_no_associations_is_not_the_same_as_none_known():
    """Nobody could be asked, or the user has none."""
    unknown = replace(FULL, associations=None)
    nothing = replace(FULL, associations=())
    assert read_snapshot(write_snapshot(unknown), "x").associations is None
    assert read_snapshot(write_snapshot(nothing), "x").associations == ()


def test_fields_of_a_newer_rv_are_passed_over():
    """What is not known yet does no harm."""
    fields = json.loads(write_snapshot(FULL))
    fields["weather"] = "fine"
    fields["nodes"][0]["colour"] = "red"
    assert read_snapshot(json.dumps(fields), "x") == FULL


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: f.pop("format"),
        lambda f: f.update(taken_at="yesterday"),
        lambda f: f.update(nodes="n1"),
        lambda f: f.update(nodes=[7]),
        lambda f: f["nodes"][0].update(cpus="many"),
        lambda f: f["nodes"][0].pop("name"),
        lambda f: f["partitions"][0].update(max_time="long"),
    ],
)
def test_what_is_no_snapshot_is_refused(damage):
    """With the file's name and the command that writes one."""
    fields = json.loads(write_snapshot(FULL))
    damage(fields)
    with pytest.raises(RvError) as refused:
        read_snapshot(json.dumps(fields), "c.json")
    assert refused.value.kind is ErrorKind.CONFIG
    assert refused.value.message.startswith("c.json is no snapshot")


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_text_is_read_or_refused(text):
    """Nothing else is raised."""
    with pytest.raises(RvError):
        read_snapshot(text, "x")
