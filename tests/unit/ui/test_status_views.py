"""A cluster's GPUs on terminals of any width, in lines, and in JSON."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from rich.cells import cell_len

from rv.models.job import JobState
from rv.models.plan import by_model
from rv.models.snapshot import Association, Limits, Qos, QueuedJob
from rv.planner.report import overview
from rv.ui import console
from rv.ui.status_views import (
    overview_document,
    overview_headline,
    overview_lines,
    overview_text,
)
from tests.unit.planner.clusters import CATALOGUE, NOON, nodes, partition, snapshot

HOUR = timedelta(hours=1)


def pends(job_id: str, where: str, gpus: int, kind: str = "") -> QueuedJob:
    return QueuedJob(job_id=job_id, user="bob", partition=where, state=JobState.PENDING,
                     gpus=gpus, gpu_type=kind)  # fmt: skip


def runs(job_id: str, where: str, gpus: int) -> QueuedJob:
    return QueuedJob(job_id=job_id, user="ann", partition=where, state=JobState.RUNNING,
                     gpus=gpus, gpu_type="a100", account="lab", qos="normal", nodes=("a1",),
                     start=NOON, end=NOON + HOUR)  # fmt: skip


def cluster():
    """Two A100 nodes in two partitions, one more in the first that is drained, and a V100 node."""
    up = nodes("a", 2, gres={"a100": 4}, used=1)
    lost = nodes("d", 1, gres={"a100": 4}, states=("IDLE", "DRAIN"))
    old = nodes("v", 1, gres={"v100": 2}, used=2)
    limits = Limits(per_user=(("gres/gpu", 4),), per_job=(("gres/gpu", 3),))
    return snapshot(
        (partition("main", (*up, *lost), qos="q"), (*up, *lost)),
        (partition("spare", up, state="DOWN"), up),
        (partition("old", old), old),
        jobs=(
            runs("1", "main", 3),
            pends("2", "main,spare", 8, "a100"),
            pends("3", "main", 0),
            pends("4", "old", 2),
            pends("5", "old", 1, "a100"),
        ),
        qos=(Qos(name="normal"), Qos(name="q", limits=limits)),
        associations=(Association(account="lab", qos=("normal",), is_default=True),),
    )


POOLS = overview(cluster(), CATALOGUE)
WIDTHS = (64, 70, 80, 120, 160)


def test_a_node_in_two_partitions_counts_once() -> None:
    """For the model; each of its partitions has it."""
    (a100, v100) = by_model(POOLS)
    assert (a100.gpu, a100.free, a100.total, a100.lost) == ("a100", 6, 12, 4)
    assert [(pool.partition, pool.total) for pool in a100.pools] == [("main", 12), ("spare", 8)]
    assert (v100.free, v100.total) == (0, 2)


def test_the_queue_is_of_those_who_ask_for_these_gpus() -> None:
    """Or for any; a job without GPUs waits in the partition, and not for them."""
    by_place = {pool.partition: pool for pool in POOLS}
    main, old = by_place["main"], by_place["old"]
    assert (main.waiting, main.queued, main.queued_gpus) == (2, 1, 8)
    assert (old.waiting, old.queued, old.queued_gpus) == (2, 1, 2)


def test_what_the_user_may_still_have() -> None:
    """What the shared limits leave, what a job may have; none where no more jobs are taken."""
    by_place = {pool.partition: pool for pool in POOLS}
    assert (by_place["main"].still_allowed, by_place["main"].most_a_job) == (1, 3)
    assert by_place["old"].still_allowed is None
    assert by_place["spare"].still_allowed == 0
    full = replace(
        cluster(), qos=(Qos(name="normal"), Qos(name="q", limits=Limits(max_jobs_per_user=1)))
    )
    (main,) = [pool for pool in overview(full, CATALOGUE) if pool.partition == "main"]
    assert main.still_allowed == 0
    assert main.limits == ("1 running jobs a user (1 in use)",)


@pytest.mark.parametrize("color", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_wraps(width: int, color: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line each: the legend, the head, a model's row, its partitions', and why one is closed."""
    monkeypatch.setenv("NO_COLOR", "" if color else "1")
    (table,) = overview_text(POOLS, width)
    shown = re.sub("\x1b\\[[0-9;]*m", "", console.part_text(table, width))
    lines = shown.split("\n")
    assert max(map(cell_len, lines)) <= width
    assert len(lines) == 2 + 4 + ("LIMITS" not in lines[1])
    assert sum("partition spare is DOWN" in line for line in lines) == 1
    for word in ("GPU", "FREE", "WAITING", "MAY HAVE"):
        assert word in lines[1]


def test_bars_say_what_is_free_busy_and_lost() -> None:
    """What there is has a cell, however little, and what is not all has not all."""
    (table,) = overview_text(POOLS, 80)
    free = [row[2] for row in table.rows]  # type: ignore[union-attr]
    assert free == [
        "██████░░···· 6 of 12",
        "██████░░···· 6 of 12",
        "█████████░░░ 6 of 8",
        "░░░░░░░░░░░░ 0 of 2",
    ]
    first = POOLS[0]
    little = replace(first, shares=(), free=1, total=1000, lost=0)
    (table,) = overview_text([little], 80)
    assert table.rows[0][2].startswith("█░")  # type: ignore[union-attr]


def test_without_a_terminal_there_are_numbers() -> None:
    (table,) = overview_text(POOLS, 0)
    assert not set("█░·") & set(str(table))
    assert table.rows[0][:4] == ("a100", "main", "6", "12")  # type: ignore[union-attr]
    assert overview_text([], 80) == ["no GPUs"]


def test_lines_and_headline_of_a_watch() -> None:
    lines = overview_lines(POOLS)
    assert lines["a100/main"] == (
        "a100 in main: 6 of 12 free, 1 job, 8 GPUs waiting, 4 out of service"
    )
    assert lines["a100/spare"].endswith("partition spare is DOWN")
    assert overview_headline(POOLS, "here") == "6 of 14 GPUs free · here"


def test_json_has_each_pool_and_each_model() -> None:
    document = overview_document(POOLS)
    assert document["gpus"][0]["still_allowed"] == 1
    assert document["models"][0] == {
        "gpu": "a100", "free": 6, "total": 12, "out_of_service": 4,
        "partitions": ["main", "spare"],
    }  # fmt: skip
