"""How many workers a sweep sends where: what tasks, nodes and limits allow, the best first."""

from dataclasses import replace
from datetime import datetime, timedelta

from rv.models.plan import Mode, Plan, Strategy, Submission
from rv.models.site import Ceiling, Site
from rv.models.snapshot import ClusterConfig, GpuGroup, Node, Partition, Snapshot
from rv.models.sweep import Sweep
from rv.workflow.sweep_size import Sized, with_arrays


def strategy(partition: str, nodes: int) -> Strategy:
    return Strategy(
        id=f"a100/1x1/{partition}", family="f", template="t", mode=Mode.DIRECT, gpu="a100",
        gres="gpu:a100:1", gpus=1, nodes=1, gpus_per_node=1, partition=partition,
        walltime=timedelta(hours=1), memory_mib=1000, cpus_per_task=4,
        node_names=tuple(f"{partition}{n}" for n in range(nodes)),
    )  # fmt: skip


def sized(
    tasks: int,
    most: int = 0,
    *,
    pools: tuple[int, ...] = (2,),
    room: dict[int, tuple[tuple[str, int], ...]] | None = None,
    site: Site | None = None,
    exclusive: bool = False,
    array: int = 1001,
    memory: int = 8000,
) -> Sized:
    """Pools of nodes with four GPUs and room for eight tasks by memory."""
    jobs = [
        Submission(number=n, strategies=(strategy(f"p{n}", nodes),))
        for n, nodes in enumerate(pools, 1)
    ]
    plan = Plan(
        strategies=(), excluded=(), submissions=tuple(jobs), room=room or {},
        waves=((1,), tuple(range(2, len(jobs) + 1))),
    )  # fmt: skip
    gpus = (GpuGroup(type="a100", total=4, used=0),)
    names = [name for job in jobs for name in job.strategy.node_names]
    snapshot = Snapshot(
        taken_at=datetime(2026, 1, 1),  # noqa: DTZ001 - Slurm's own clock has no zone
        user="ada",
        config=ClusterConfig(max_array_size=array),
        partitions=tuple(
            Partition(name=job.strategy.partition, nodes=job.strategy.node_names, exclusive=exclusive)
            for job in jobs
        ),
        nodes=tuple(
            Node(name=name, states=frozenset({"IDLE"}), cpus=64, cpus_used=0, memory_mib=memory,
                 memory_used_mib=0, gpus=gpus)
            for name in names
        ),
    )  # fmt: skip
    return with_arrays(plan, Sweep(tasks=tasks, most_running=most), snapshot, site or Site())


def arrays(found: Sized) -> list[str]:
    return [dict(job.strategy.extra)["array"] for job in found.plan.submissions]


def test_no_more_workers_than_tasks_or_room_on_the_nodes() -> None:
    assert arrays(sized(3)) == ["1-3"]
    assert arrays(sized(10_000)) == ["1-8"]
    assert arrays(sized(10_000, pools=(2, 1))) == ["1-8", "1-4"]
    assert arrays(sized(10_000, pools=(500,))) == ["1-1000"]
    assert arrays(sized(10_000, pools=(500,), array=101)) == ["1-100"]


def test_no_more_than_may_run_at_a_time() -> None:
    assert arrays(sized(10_000, 3, pools=(2, 1))) == ["1-3", "1-3"]


def test_max_submit_is_shared_by_the_arrays_that_count_for_it_and_one_job_is_kept_free() -> None:
    room = {1: (("alice", 6),), 2: (("alice", 6), ("qos", 2)), 3: ()}
    assert arrays(sized(10_000, pools=(9, 9, 1), room=room)) == ["1-4", "1-1", "1-4"]
    assert arrays(sized(10_000, room={1: (("alice", 1),)})) == ["1-1"]
    assert arrays(sized(10_000, room={1: (("alice", 0),)})) == []
    assert arrays(sized(10_000, array=0)) == []


def test_max_fanout_bounds_them_all_and_leaves_out_the_last() -> None:
    found = sized(10_000, pools=(2, 2, 2), site=Site(max_fanout=Ceiling(jobs=2, origin="x")))
    assert arrays(found) == ["1-1", "1-1"]
    assert found.plan.waves == ((1,), (2,))
    assert any("max_fanout: 2 jobs (x)" in limit for limit in found.limits)


def test_a_whole_node_runs_as_many_tasks_as_fit() -> None:
    found = sized(10_000, 6, exclusive=True, pools=(3,))
    (job,) = found.plan.submissions
    assert (job.slots, job.strategy.memory_mib, arrays(found)) == (4, 4000, ["1-2"])
    (job,) = sized(10_000, exclusive=True, memory=2500).plan.submissions
    assert (job.slots, job.strategy.memory_mib) == (2, 2000)


def test_what_replaces_a_refused_job_has_its_workers() -> None:
    found = sized(10_000)
    spare = replace(
        found.plan.submissions[0], number=2, instead_of=1, strategies=(strategy("p1", 2),)
    )
    plan = replace(
        found.plan, spares=(spare,), submissions=(replace(spare, number=1, instead_of=0),)
    )
    snapshot = Snapshot(taken_at=datetime(2026, 1, 1), user="ada")  # noqa: DTZ001
    again = with_arrays(plan, Sweep(tasks=5), snapshot, Site())
    assert again.workers == {1: 1, 2: 1}
