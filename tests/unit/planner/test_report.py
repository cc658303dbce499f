"""A cluster's GPUs, places in the queue, and changes to a waiting request that would start now."""

from dataclasses import replace
from datetime import timedelta

import pytest

from rv.models.explanation import Change, ExplainedJob, Explanation, QueuePlace
from rv.models.job import JobRecord, JobState, WaitingJob
from rv.models.performance import Source
from rv.models.race import Claim, Entry, JobStatus, RaceState, RaceStatus
from rv.models.request import Command, Fanout, Request
from rv.models.site import Site
from rv.models.snapshot import Association, Limits, Qos, QueuedJob
from rv.planner.report import Planner, changes, overview, queue_place, without_jobs
from rv.race.directory import read_record, record_text
from rv.slurm.squeue import parse_squeue_waiting
from rv.slurm.squeue_scripts import squeue_waiting_script
from rv.ui.explanation_views import explanation_document, explanation_text
from rv.ui.tables import plain_text
from rv.workflow.queries import _jobs
from tests.unit.planner.clusters import (
    CATALOGUE,
    FAMILIES,
    NOON,
    campus,
    nodes,
    partition,
    priced,
    snapshot,
)
from tests.unit.race.test_directory import race

HOUR = timedelta(hours=1)
S = "rv0123456789abcdef"


def waits(job_id, priority, *partitions, reason="Priority"):
    """A job in the line of these partitions, `gpu` unless told."""
    where = partitions or ("gpu",)
    return WaitingJob(job_id=job_id, priority=priority, partitions=where, reason=reason)


LINE = (
    waits(1, 50),
    waits(2, 90, "gpu", "other"),
    waits(3, 50),
    waits(4, 99, "other"),
    waits(5, 99, reason="BeginTime"),
    waits(6, 0, reason="launch failed requeued held"),
    waits(7, 70),
)


@pytest.mark.parametrize(
    ("job", "own", "place"),
    [
        (2, {2}, (1, 4)),
        (7, {7}, (2, 4)),
        (1, {1}, (3, 4)),
        (3, {3}, (4, 4)),
        (3, {3, 7}, (3, 3)),
        (5, {5}, None),
        (6, {6}, None),
        (9, {9}, None),
    ],
)
def test_a_place_is_by_priority_then_by_age(job, own, place):
    """Jobs of other partitions, held ones and the race's own are not before it."""
    found = queue_place(job, "gpu", LINE, own)
    assert (found and (found.place, found.waiting)) == place


def test_the_line_is_read_from_squeue():
    """Array tasks by their number; what squeue did not end well is no answer."""
    text = (
        f"12{S}|4294901753|gpu,other|Priority|\n"
        f"61_[2-20%2]{S}|7|gpu|JobArrayTaskLimit|\n"
        f"13{S}|0|gpu|ReqNodeNotAvail, Unavail|ableNodes:x|\n"
        f"CLUSTER: x\nnot a row|1|gpu|x|\n{S} end 0\n"
    )
    assert parse_squeue_waiting(text, S) == (
        waits(12, 4294901753, "gpu", "other"),
        waits(61, 7, reason="JobArrayTaskLimit"),
        waits(13, 0, reason="ReqNodeNotAvail, Unavail|ableNodes:x"),
    )
    assert parse_squeue_waiting(text.replace("end 0", "end 1"), S) is None
    assert parse_squeue_waiting("", S) is None
    assert "PriorityLong" in squeue_waiting_script(S)


def busy(node, hours, gpus=4, gpu_type="v100", **more):
    """A job that runs on a node for so long."""
    return QueuedJob(
        job_id=f"1{node}", user="bob", partition="gpu", state=JobState.RUNNING, nodes=(node,),
        start=NOON, end=NOON + HOUR * hours, cpus=4, memory_mib=1024, gpus=gpus,
        gpu_type=gpu_type, **more,
    )  # fmt: skip


def planned_job(*names, starts_in, user="bob", name=""):
    """A job that waits, with Slurm's plan for it."""
    return QueuedJob(
        job_id="77", user=user, partition="gpu", state=JobState.PENDING, planned_nodes=names,
        start=NOON + starts_in, end=NOON + starts_in + HOUR, cpus=8, memory_mib=1024,
        gpus=4 * len(names), gpu_type="v100", name=name,
    )  # fmt: skip


def cluster(*jobs, **states):
    """One full V100 node, one free one, and A40 in a partition of their own."""
    full = nodes("b", 1, gres={"v100": 4}, used=4, cpus_used=4, states=("MIXED",))
    free = nodes("f", 1, gres={"v100": 4}, **states)
    other = nodes("a", 1, gres={"a40": 2})
    made = snapshot(
        (partition("gpu", (*full, *free), billing_weights=priced(2.0)), (*full, *free)),
        (partition("other", other, billing_weights=priced(5.0)), other),
    )
    return replace(made, jobs=jobs)


def found(request, made):
    """Map the changes to the strategies that would start."""
    planner = Planner(snapshot=made, catalogue=CATALOGUE, families=FAMILIES, site=Site())
    return {change.options: change.strategy for change in changes(request, planner)}


def asks(hours=4, **more):
    """Ask for so many hours."""
    return Request(walltime=HOUR * hours, walltime_given=True, **more)


@pytest.mark.parametrize(
    ("window_minutes", "option"),
    [(9, None), (10, "10m"), (55, "50m"), (60, "1h"), (90, "1h30m"), (170, "2h30m")],
)
def test_the_longest_time_that_fits_the_window(window_minutes, option):
    """Found by halving: every shorter one fits too, and the next longer does not."""
    window = timedelta(minutes=window_minutes)
    made = cluster(busy("b1", window_minutes / 60), planned_job("b1", "f1", starts_in=window))
    request = asks(gpus=4, types=("v100",))
    times = {key: s for key, s in found(request, made).items() if "--time" in key}
    assert list(times) == ([f"--time {option}"] if option else [])
    for strategy in times.values():
        assert (strategy.estimate.source, strategy.estimate.window) == (
            Source.BACKFILL_WINDOW,
            window,
        )


def test_a_command_that_can_resume_may_start_in_segments():
    """Named where there is a command, and never taken for a start of the whole."""
    window = HOUR * 2
    made = cluster(busy("b1", 2), planned_job("b1", "f1", starts_in=window))
    request = asks(gpus=4, types=("v100",), command=Command(line="./train"))
    changed = found(request, made)
    assert changed["--checkpoint"].segments > 1
    planner = Planner(snapshot=made, catalogue=CATALOGUE, families=FAMILIES, site=Site())
    assert planner.starts_now(request) is None
    assert "--checkpoint" not in found(replace(request, command=None), made)


def test_a_limit_of_time_is_found_too():
    """A QOS that takes one hour at most: 1h, whatever is free."""
    made = cluster()
    limited = replace(made.partitions[0], qos="short")
    qos = Qos(name="short", limits=Limits(max_wall=HOUR))
    made = replace(made, partitions=(limited, made.partitions[1]), qos=(qos,))
    assert list(found(asks(gpus=4, types=("v100",)), made)) == ["--time 1h"]


def test_other_types_partitions_and_costs():
    """Each by itself, named as it would be typed."""
    made = cluster(busy("b1", 5), busy("f1", 5), states=("ALLOCATED",), used=4)
    assert list(found(asks(gpus=2, types=("v100",)), made)) == ["--type a40"]
    assert list(found(asks(gpus=2, partitions=("gpu",)), made)) == ["-p other"]
    assert set(found(asks(gpus=2, max_cost=20.0), made)) == {
        "--time 2h", "--max-cost 40.00", "--gpu 1",
    }  # fmt: skip
    dear = asks(gpus=2, types=("v100",), min_vram_mib=30 * 1024)
    assert list(found(dear, made)) == ["--type a40 without --vram"]


def test_the_most_gpus_that_start():
    """One less is tried before half."""
    made = cluster(busy("b1", 5), busy("f1", 5, gpus=1), states=("MIXED",), used=1, cpus_used=4)
    assert list(found(asks(gpus=4, partitions=("gpu",)), made)) == ["--gpu 3"]
    made = cluster(busy("b1", 5), busy("f1", 5, gpus=2), states=("MIXED",), used=2, cpus_used=4)
    assert list(found(asks(gpus=4, partitions=("gpu",)), made)) == ["--gpu 2"]


def test_a_slice_instead_of_a_whole_gpu():
    """Where one GPU was asked for, and there are slices."""
    slices = nodes("m", 1, gres={"1g.10gb": 7})
    full = nodes("b", 1, gres={"v100": 4}, used=4, states=("ALLOCATED",))
    made = snapshot((partition("mig", slices), slices), (partition("gpu", full), full))
    assert list(found(asks(), made)) == ["--mig"]
    assert list(found(asks(types=("v100",)), made)) == ["--mig"]
    assert list(found(asks(gpus=2), made)) == []


def test_the_race_s_own_jobs_are_not_in_its_way():
    """Slurm keeps the free node for the race itself; without it, nobody is planned there."""
    mine = planned_job("f1", "b1", starts_in=HOUR, user="ann", name="rv-abc-1")
    made = cluster(busy("b1", 1), mine, states=("IDLE", "PLANNED"))
    request = asks(gpus=4, types=("v100",))
    assert "--time 1h" in found(request, made)
    alone = without_jobs(made, {"rv-abc-1"})
    assert [job.job_id for job in alone.jobs] == ["1b1"]
    planner = Planner(snapshot=alone, catalogue=CATALOGUE, families=FAMILIES, site=Site())
    assert planner.starts_now(request).estimate.source is Source.IDLE


def test_another_s_plan_for_the_same_node_stays():
    """And so does another user's job of the same name."""
    mine = planned_job("f1", starts_in=HOUR, user="ann", name="rv-abc-1")
    theirs = planned_job("f1", starts_in=HOUR * 2, name="rv-abc-1")
    made = cluster(mine, theirs, states=("IDLE", "PLANNED"))
    alone = without_jobs(made, {"rv-abc-1"})
    assert alone.jobs == (theirs,)
    assert "PLANNED" in next(node for node in alone.nodes if node.name == "f1").states


def test_the_record_of_a_race_keeps_the_request():
    """All of it, so that it can be planned again; an older record has none."""
    request = Request(
        gpus=4, types=("a100",), min_vram_mib=40960, walltime=HOUR, walltime_given=True,
        fanout=Fanout.EACH, sbatch=(("nice", "5"),), max_cost=12.5,
        command=Command(line="torchrun x.py", typed="torchrun x.py"),
    )  # fmt: skip
    kept = race(request=request)
    assert read_record(record_text(kept), kept.directory).request == request
    assert read_record(record_text(race()), kept.directory).request is None


def job(number, state, job_id=0, reason=""):
    """One submission's status."""
    return JobStatus(
        number=number, name=f"rv-abcdefgh-{number}", strategy=f"s{number}", job_id=job_id,
        state=state, reason=reason,
    )  # fmt: skip


def explained(*jobs, **more):
    """An explanation of a race that was submitted a minute and a half before now."""
    status = RaceStatus(race=race(request=Request(gpus=2)), state=RaceState.PENDING)
    return Explanation(status=status, jobs=jobs, **more)


def test_a_merged_job_stands_in_several_lines_and_its_parts_in_none():
    """The best place is said, with its partition; a part that nobody needs is no job."""
    entries = (
        Entry(number=1, name="rv-abcdefgh-1", strategy="x|y", partition="pa,pb"),
        Entry(number=2, name="rv-abcdefgh-2", strategy="x", partition="pa", instead_of=1),
        Entry(number=3, name="rv-abcdefgh-3", strategy="y", partition="pb", instead_of=1),
    )
    jobs = (
        job(1, JobState.PENDING, 12, "Priority"),
        job(2, JobState.UNKNOWN),
        job(3, JobState.LAUNCH_FAILED),
    )
    status = RaceStatus(race=race(entries=entries), state=RaceState.PENDING, jobs=jobs)
    line = [
        WaitingJob(job_id=7, partitions=("pa",), priority=9, reason="Priority"),
        WaitingJob(job_id=12, partitions=("pa", "pb"), priority=5, reason="Priority"),
        WaitingJob(job_id=8, partitions=("pb",), priority=1, reason="Priority"),
    ]
    told = _jobs(status, (), line, cluster())
    assert [one.job.number for one in told] == [1, 3]
    assert told[0].place == QueuePlace(partition="pb", place=1, waiting=2)


def test_siblings_neither_stand_in_line_nor_push_a_plan_back():
    """The first that starts ends the race: what is planned behind it is no plan of Slurm's."""
    jobs = tuple(job(n, JobState.PENDING, 10 + n, "Priority") for n in (1, 2, 3))
    entries = tuple(Entry(number=n, name=f"n{n}", strategy="s", partition="gpu") for n in (1, 2, 3))
    status = RaceStatus(race=race(entries=entries), state=RaceState.PENDING, jobs=jobs)
    line = (waits(11, 9), waits(12, 8), waits(13, 7))
    plans = ((11, "b1", 1), (12, "b1", 2), (13, "f1", 2))
    made = cluster(
        *(planned_job(node, starts_in=HOUR * h)._replace(job_id=str(n)) for n, node, h in plans)
    )
    records = tuple(
        JobRecord(
            job_id=n, name="", state=JobState.PENDING, source="", planned_start=NOON + HOUR * h
        )
        for n, _, h in plans
    )
    explained_jobs = _jobs(status, records, line, made)
    assert [one.planned_in for one in explained_jobs] == [HOUR, None, HOUR * 2]
    told = Explanation(status=status, jobs=explained_jobs)
    waiting = explanation_document(told)["jobs"]
    assert [(one["place"], one["waiting"]) for one in waiting] == [(1, 1)] * 3
    assert [one["why"] for one in waiting[:2]] == [
        "others are ahead in the queue (Priority)",
        "only jobs of this race are ahead in the queue (Priority)",
    ]


def test_all_that_is_said_of_a_race_that_waits():
    """Each job with its reason, place and plan; the change; what could not be known."""
    planner = Planner(snapshot=cluster(), catalogue=CATALOGUE, families=FAMILIES, site=Site())
    strategy = planner.starts_now(asks(gpus=2, types=("a40",)))
    told = explained(
        ExplainedJob(
            job=job(1, JobState.PENDING, 12, "Priority"),
            partition="gpu",
            place=QueuePlace(partition="gpu", place=3, waiting=14),
            planned_in=timedelta(minutes=80),
        ),
        ExplainedJob(job=job(2, JobState.UNKNOWN), partition="gpu"),
        ExplainedJob(job=job(3, JobState.LAUNCH_FAILED, reason="Invalid qos"), partition="gpu"),
        ExplainedJob(job=job(4, JobState.PENDING, 13), partition="gpu"),
        ExplainedJob(job=job(5, JobState.RUNNING, 14), partition="gpu"),
        changes=(Change(options="--type a40", strategy=strategy),),
        notes=("A note.",),
    )
    head, first, *rest = plain_text(explanation_text(told, now_s=91.5)).split("\n\n")
    assert head == "race abcdefgh has waited 1m30s"
    assert first.splitlines() == [
        "job 12: s1",
        "  others are ahead in the queue (Priority)",
        "  number 3 of 14 waiting in gpu",
        "  Slurm plans its start in 1h20m",
    ]
    assert rest == [
        "no job yet: s2\n  not sent yet",
        "no job yet: s3\n  Slurm refused it: Invalid qos",
        "job 13: s4\n  Slurm has not looked at it yet (None)",
        "job 14: s5\n  it has started, and checks its node",
        "What would start now:\n  --type a40  a40/1x2/other  now (idle)",
        "A note.",
    ]  # fmt: skip
    document = explanation_document(told)
    assert document["changes"][0]["options"] == "--type a40"
    assert document["jobs"][0]["place"] == 3
    assert document["jobs"][0]["planned_in_s"] == 4800
    assert document["jobs"][1]["job_id"] is None


def test_nothing_would_help():
    """Said only where it has been tried."""
    waiting = ExplainedJob(job=job(1, JobState.PENDING, 12, "Resources"), partition="gpu")
    assert "would start now" in plain_text(explanation_text(explained(waiting), now_s=2))
    old = RaceStatus(race=race(), state=RaceState.PENDING)
    told = Explanation(status=old, jobs=(waiting,), notes=("An older rv …",))
    assert "would start now" not in plain_text(explanation_text(told, now_s=2))


def test_a_race_that_does_not_wait_is_one_line():
    """Where it runs, or how it ended."""
    claim = Claim(job_id=7, restart=0, submission=1, nodes="a1", host="a1", started_at=2.0)
    entry = Entry(number=1, name="rv-abcdefgh-1", strategy="s1")
    status = RaceStatus(race=race(entries=(entry,)), state=RaceState.RUNNING, claim=claim)
    assert (
        plain_text(explanation_text(Explanation(status=status), 9))
        == "race abcdefgh runs on a1 as job 7"
    )
    over = RaceStatus(race=race(), state=RaceState.CANCELLED, why="stopped by rv")
    assert (
        plain_text(explanation_text(Explanation(status=over), 9))
        == "race abcdefgh CANCELLED, stopped by rv"
    )


def test_campus_by_model_and_partition():
    """Every pool once, MIG slices too, with the limits that count for this user."""
    views = {view.partition: view for view in overview(campus(), CATALOGUE)}
    assert set(views) == {
        "gpu-v100", "gpu-a6000", "gpu-a40", "gpu-a100-40", "gpu-a100-80", "gpu-h200",
        "interactive-rtx3090", "gpu-mig",
    }  # fmt: skip
    assert views["gpu-h200"].limits == ("4 a user",)
    assert "2 a job" in views["interactive-rtx3090"].limits
    assert views["gpu-a100-80"].gpu == "a100-80"
    assert views["gpu-v100"].free == views["gpu-v100"].total > 0


def test_limits_are_shown_with_what_is_in_use_of_them():
    """What counts against each: one's own jobs, those of the account, everybody's."""
    limits = Limits(
        per_job=(("gres/gpu", 2),),
        per_user=(("gres/gpu", 4), ("gres/gpu:v100", 3)),
        per_account=(("gres/gpu", 8),),
        group=(("gres/gpu", 16),),
    )
    mine = busy("b1", 5, gpus=3, account="physics", qos="q")
    jobs = (
        mine._replace(user="ann"),
        mine._replace(gpus=2),
        mine._replace(account="lab", gpus=1),
    )
    made = cluster(*jobs)
    made = replace(
        made,
        user="ann",
        partitions=(replace(made.partitions[0], qos="q"), made.partitions[1]),
        qos=(Qos(name="normal"), Qos(name="q", limits=limits)),
        associations=(Association(account="physics", qos=("normal",), is_default=True),),
    )
    views = {view.partition: view for view in overview(made, CATALOGUE)}
    assert views["gpu"].limits == (
        "2 a job",
        "4 a user (3 in use)",
        "3 v100 a user (3 in use)",
        "8 an account (5 in use)",
        "16 in all (6 in use)",
    )
    assert views["other"].limits == ()


def test_free_lost_and_waiting():
    """Used GPUs are not free, drained ones are out of service, pending jobs are counted."""
    part = nodes("u", 1, gres={"t4": 4}, used=3) + nodes(
        "d", 1, gres={"t4": 4}, states=("IDLE", "DRAIN")
    )
    cluster = snapshot((partition("gpu", part), part))
    queued = QueuedJob(job_id="1", user="o", partition="gpu,x", state=JobState.PENDING)
    (view,) = overview(replace(cluster, jobs=(queued, queued)), CATALOGUE)
    assert (view.free, view.largest, view.total, view.lost) == (1, 1, 8, 4)
    assert view.waiting == 2


def test_a_partition_that_is_closed_says_why_and_comes_last():
    """Down is down, however many GPUs are free there."""
    down = nodes("d", 2, gres={"h100": 8})
    up = nodes("u", 1, gres={"t4": 1})
    views = overview(
        snapshot((partition("off", down, state="DOWN"), down), (partition("on", up), up)), CATALOGUE
    )
    assert [view.partition for view in views] == ["on", "off"]
    assert views[1].closed == "partition off is DOWN"
