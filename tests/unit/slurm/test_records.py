"""Nodes, partitions, reservations, settings, the queue and accounts, on captured output."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rv.models.job import JobState
from rv.models.snapshot import Limits
from rv.slurm import scontrol
from rv.slurm.sacctmgr import parse_accounts, parse_associations, parse_qos
from rv.slurm.scontrol import (
    parse_config_time,
    parse_node_states,
    parse_show_config,
    parse_show_node,
    parse_show_partition,
    parse_show_reservation,
)
from rv.slurm.squeue import parse_squeue
from rv.slurm.squeue_scripts import squeue_command

DATA = Path(__file__).parents[2] / "data" / "slurm"
BOTH = pytest.mark.parametrize("version", ["22.05", "24.11"])


def captured(version: str, name: str) -> str:
    return (DATA / version / f"{name}.txt").read_text()


@pytest.mark.parametrize(("version", "a100"), [("22.05", 0), ("24.11", 1)])
def test_nodes(version: str, a100: int) -> None:
    """Typed, MIG, untyped and absent GPUs; states, features, reasons of both versions."""
    nodes = {node.name: node for node in parse_show_node(captured(version, "show_node"))}
    assert sorted(nodes) == ["bear1", "cow1", "cow2", "elk1", "wolf1", "wolf2"]
    assert [(gpu.type, gpu.total, gpu.used) for gpu in nodes["bear1"].gpus] == [
        ("nvidia_a100-sxm4-80gb", 2, a100),
        ("nvidia_a100_3g.40gb", 2, 0),
        ("nvidia_a100_1g.10gb", 4, 3),
    ]
    assert [(gpu.type, gpu.total, gpu.used) for gpu in nodes["elk1"].gpus] == [("", 2, 1)]
    assert nodes["cow1"].gpus == ()
    assert nodes["cow2"].states == {"IDLE", "DRAIN"}
    assert nodes["cow2"].reason == "fan: replace, ask ops"
    assert nodes["wolf1"].features == {"ada", "l40s", "ib"}
    assert (nodes["bear1"].cpus, nodes["bear1"].memory_mib) == (64, 500000)
    assert nodes["cow1"].partitions[:2] == ("cpu", "cpuq")


WORDS = st.lists(st.sampled_from(("x", "3", "a=b", "State", "OS=", "-", "gpu:4", "")), max_size=4)
KEYS = st.sampled_from(("State", "Gres", "GresUsed", "CPUTot", "OS", "Reason", "Comment", "Weight"))


@given(st.lists(st.tuples(KEYS, WORDS), max_size=8))
def test_a_nodes_fields_are_what_its_record_is_split_into(fields) -> None:
    """What is read of a node alone is what reading all of the record would give."""
    line = "NodeName=n1" + "".join(f" {key}={' '.join(words)}" for key, words in fields)
    read = dict(scontrol._NODE_FIELD.findall(f" {line}")[::-1])
    record = scontrol.parse_record(line)
    assert read.keys() == record.keys() - {"OS", "Reason", "Comment", "x", "a"}
    assert {key: value.strip() for key, value in read.items()} == {key: record[key] for key in read}


def test_node_reason_cannot_speak_for_the_node() -> None:
    """A reason with keys in it changes neither state nor GPUs, and is whole (captured, 22.05)."""
    frame = (DATA / "22.05" / "probe.txt").read_text()
    cow2 = next(node for node in parse_show_node(frame) if node.name == "cow2")
    assert (cow2.states, cow2.gpus) == ({"IDLE", "DRAIN"}, ())
    assert cow2.reason == "fan: State=IDLE Gres=gpu:9, ask ops"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MIXED+PLANNED", {"MIXED", "PLANNED"}),
        ("DOWN*+DRAIN", {"DOWN", "NOT_RESPONDING", "DRAIN"}),
        ("idle~", {"IDLE", "POWERED_DOWN"}),
        ("WHAT_EVER+NEW", {"WHAT_EVER", "NEW"}),
        ("", set()),
    ],
)
def test_states(text: str, expected: set[str]) -> None:
    """States split on +, signs become words, new words pass."""
    assert parse_node_states(text) == expected


@BOTH
def test_partitions(version: str) -> None:
    """Limits, lists and words for nothing, in both versions."""
    found = {
        partition.name: partition
        for partition in parse_show_partition(captured(version, "show_partition"))
    }
    assert found["gpu"].nodes == ("bear1", "wolf1", "wolf2")
    assert found["gpu"].max_time == timedelta(days=2)
    assert found["cpu"].is_default
    assert not found["gpu"].is_default
    assert found["legacy"].max_nodes == 2
    assert found["cpu"].max_nodes is None
    assert (found["cpuq"].qos, found["cpu"].qos) == ("pq", "")
    assert found["vip"].allow_accounts == {"vips"}
    assert found["cpu"].allow_accounts == frozenset()
    assert found["denied"].deny_accounts == {"test"}
    assert found["aqos"].allow_qos == {"high"}
    assert found["vip"].max_time is None
    assert [found[name].state for name in ("cpu", "pdown", "pinact", "pdrain")] == [
        "UP",
        "DOWN",
        "INACTIVE",
        "DRAIN",
    ]


def test_partition_by_hand() -> None:
    """Whole-node partitions and per-CPU memory (made by hand from scontrol's source)."""
    (one,) = parse_show_partition(
        "PartitionName=x DefaultTime=01:00:00 Hidden=YES RootOnly=YES ReqResv=YES OverSubscribe=EXCLUSIVE MaxMemPerCPU=8000 "
        "MaxCPUsPerNode=4 Nodes=(null) PriorityTier=0 PreemptMode=REQUEUE TRESBillingWeights=CPU=1.0,GRES/gpu=2.5 State=UP\n"
    )
    assert (one.exclusive, one.hidden, one.root_only, one.needs_reservation) == (
        True,
        True,
        True,
        True,
    )
    assert (one.max_memory_per_cpu_mib, one.max_memory_per_node_mib, one.max_cpus_per_node) == (
        8000,
        None,
        4,
    )
    assert (one.nodes, one.priority_tier, one.preempt_mode) == ((), 0, "REQUEUE")
    assert one.billing_weights == (("cpu", 1.0), ("gres/gpu", 2.5))
    assert one.default_time == timedelta(hours=1)


@BOTH
def test_reservations(version: str) -> None:
    """A maintenance reservation and its users; `(null)` is nobody."""
    (one,) = parse_show_reservation(captured(version, "show_reservation"))
    assert (one.name, one.nodes, one.users, one.accounts) == (
        "maint",
        ("wolf1", "wolf2"),
        ("root",),
        (),
    )
    assert one.end - one.start == timedelta(hours=4)
    assert "MAINT" in one.flags


def test_no_reservations() -> None:
    """Slurm's sentence for none is none."""
    assert parse_show_reservation("No reservations in the system\n") == ()


@BOTH
def test_settings(version: str) -> None:
    """The settings promises depend on, and the controller's own clock."""
    text = captured(version, "show_config")
    config = parse_show_config(text)
    assert (config.name, config.version[:5], config.accounting) == ("lab", version, True)
    assert (config.min_job_age, config.message_timeout) == (
        timedelta(seconds=120),
        timedelta(seconds=10),
    )
    assert parse_config_time(text) == datetime.fromisoformat(text.split("as of ")[1][:19])


def test_no_accounting() -> None:
    """A site without slurmdbd says so in its settings."""
    assert not parse_show_config("AccountingStorageType = accounting_storage/none\n").accounting


def test_settings_that_plans_depend_on() -> None:
    """Who is preempted, what is enforced and hidden, and since when the controller runs."""
    found = parse_show_config(
        "AccountingStorageEnforce = associations,limits\nPrivateData = jobs,usage\n"
        "PreemptType = preempt/qos\nPreemptMode = REQUEUE\nMaxMemPerCPU = 8000\n"
        "BOOT_TIME = 2026-11-21T04:12:18\nSlurmdTimeout = 60 sec\n"
    )
    assert (found.preempt_type, found.preempt_mode) == ("qos", "REQUEUE")
    assert (found.enforces, found.private_data) == ({"associations", "limits"}, {"jobs", "usage"})
    assert (found.max_memory_per_cpu_mib, found.max_memory_per_node_mib) == (8000, None)
    assert found.booted_at == datetime.fromisoformat("2026-11-21T04:12:18")
    assert found.slurmd_timeout == timedelta(seconds=60)
    nothing = parse_show_config("AccountingStorageEnforce = none\nPrivateData = none\n")
    assert (nothing.enforces, nothing.private_data) == (frozenset(), frozenset())
    assert parse_show_config("").enforces is None


def row(*columns: str) -> str:
    return "|".join(columns)


# Values as 24.11 printed them (squeue_O.txt), in the order rv asks for them.
RUNNING = "54S|alice|test|normal|gpu|RUNNING|2026-11-21T04:19:36|2026-11-21T05:04:36|wolf1|(null)|1|1|cpu=1,mem=4G,node=1,billing=1,gres/gpu=2|N/A|gres/gpu:2|any|"
PENDING = "56S|alice|test|normal|gpu|PENDING|2026-11-21T05:19:36|2026-11-21T05:49:36||wolf[1-2]|2|2|cpu=2,mem=40G,node=2,billing=2|gres/gpu:l40s:4|N/A|two|"


def test_queue() -> None:
    """Nodes held, nodes planned, GPUs by TRES, and by request where TRES has none."""
    running, pending = parse_squeue(f"{RUNNING}\n{PENDING}\n", "S")
    assert (running.nodes, running.gpus, running.gpu_type, running.name) == (
        ("wolf1",),
        2,
        "",
        "any",
    )
    assert (pending.planned_nodes, pending.gpus, pending.gpu_type) == (
        ("wolf1", "wolf2"),
        8,
        "l40s",
    )
    assert (pending.state, pending.start) == (
        JobState.PENDING,
        datetime.fromisoformat("2026-11-21T05:19:36"),
    )


@pytest.mark.parametrize(
    "name", ["evil\n99|x|y", "a|b|c", "\x1b[31mred", "tail\n" + RUNNING.replace("54S", "1")]
)
def test_hostile_job_names(name: str) -> None:
    """A newline or separator in somebody's job name neither adds nor moves nor hides a job."""
    jobs = parse_squeue(f"{RUNNING.removesuffix('any|')}{name}|\n{PENDING}\n", "S")
    assert [(job.job_id, job.state, job.gpus) for job in jobs] == [
        ("54", JobState.RUNNING, 2),
        ("56", JobState.PENDING, 8),
    ]
    assert jobs[0].name.isprintable()


def test_rows_are_asked_for_with_the_sentinel_first_and_the_name_last() -> None:
    """The command's format is the one the parser reads."""
    assert "-O 'JobArrayID:S|," in squeue_command("S")
    assert squeue_command("S").endswith("Name:|'")


@BOTH
def test_qos(version: str) -> None:
    """Columns go by name: 24.11 has two more in the middle."""
    found = {qos.name: qos.limits for qos in parse_qos(captured(version, "sacctmgr_qos_header"))}
    assert found["pq"].per_job == (("cpu", 8),)
    assert found["userq"].per_user == (("gres/gpu", 2),)
    assert found["grpq"].group == (("gres/gpu", 1),)
    assert found["maxwall"].max_wall == timedelta(minutes=10)
    assert found["maxsub"].max_submit_per_user == 2
    assert found["maxjobs"].max_jobs_per_user == 1


def test_limits_of_every_kind() -> None:
    """Each column has its place."""
    text = (
        "Name|Flags|UsageFactor|MaxTRES|MinTRES|MaxTRESPerNode|MaxTRESPU|MaxTRESPA|GrpTRES|MaxWall|"
        "MaxJobsPU|MaxSubmitPU|MaxJobsPA|MaxSubmitPA|GrpJobs|GrpSubmit\n"
        "q||2.500000|cpu=1|cpu=2|cpu=3|cpu=4|cpu=5|cpu=6|00:07:00|8|9|10|11|12|13\nr|||||||||||||||\n"
    )
    found, empty = parse_qos(text, "Name|Preempt|PreemptMode\nq|r,s|cluster\nr||off\n")
    limits = found.limits
    amounts = (
        limits.per_job, limits.least_per_job, limits.per_node, limits.per_user, limits.per_account,
        limits.group,
    )  # fmt: skip
    assert amounts == tuple((("cpu", count),) for count in range(1, 7))
    assert limits.max_wall == timedelta(minutes=7)
    assert (limits.max_jobs_per_user, limits.max_submit_per_user) == (8, 9)
    assert (limits.max_jobs_per_account, limits.max_submit_per_account) == (10, 11)
    assert (limits.group_jobs, limits.group_submit) == (12, 13)
    assert (found.usage_factor, found.preempts, found.preempt_mode) == (2.5, {"r", "s"}, "")
    assert (empty.usage_factor, empty.preempts, empty.preempt_mode) == (1.0, frozenset(), "OFF")
    assert empty.limits == Limits()


def test_accounts() -> None:
    """With the one above; other clusters and users' rows are left out."""
    text = (
        "Cluster|Account|ParentName|GrpTRES|GrpJobs|GrpSubmit\n"
        "lab|root||||\nlab|physics|root|gres/gpu=6|4|9\nother|law|root|||\n"
    )
    root, physics = parse_accounts(text, "lab")
    assert (root.name, root.parent, root.limits) == ("root", "", Limits())
    assert (physics.parent, physics.limits.group) == ("root", (("gres/gpu", 6),))
    assert (physics.limits.group_jobs, physics.limits.group_submit) == (4, 9)


def test_associations() -> None:
    """Limits join their association; other clusters of the same database are left out."""
    text = "Cluster|Account|Partition|Def Acct|QOS|Def QOS\nlab|a||b|normal,high|high\nlab|b|gpu|b|normal|\nother|c||b||\n"
    limits = "Cluster|Account|Partition|MaxTRES|MaxJobs\nlab|b|gpu|gres/gpu=4|7\n"
    first, second = parse_associations(text, limits, "lab")
    assert (first.account, first.qos, first.default_qos, first.is_default) == (
        "a",
        ("normal", "high"),
        "high",
        False,
    )
    assert (second.partition, second.is_default, second.limits.per_job) == (
        "gpu",
        True,
        (("gres/gpu", 4),),
    )
    assert second.limits.max_jobs_per_user == 7


PIECES = ["NodeName=", "PartitionName=", "ReservationName=", " State=", " Gres=gpu:", " Nodes=a[1-", "]", "StartTime=2026-11-21T04:19:35",
          " EndTime=", "7S|", "|", "\n", "=", "Name|Account", "\u2028", "MaxTime=99999999-", "1", "\x00", " Reason="]  # fmt: skip


WELL_FORMED = {
    "nodes": (parse_show_node, "", "NodeName=w1 State=IDLE CPUTot=4", "w1"),
    "partitions": (parse_show_partition, "", "PartitionName=w1 State=UP Nodes=a1", "w1"),
    "reservations": (
        parse_show_reservation,
        "",
        "ReservationName=w1 StartTime=2026-11-21T04:19:35 EndTime=2026-11-21T05:19:35",
        "w1",
    ),
    "jobs": (
        lambda text: parse_squeue(text, "S"),
        "",
        "7S|" + "|".join(["u", "a", "q", "p", "RUNNING", *[""] * 9]) + "|w1|",
        "w1",
    ),
    "qos": (parse_qos, "Name|MaxWall\n", "w1|1-00:00:00", "w1"),
    "accounts": (parse_accounts, "Account|GrpJobs\n", "w1|4", "w1"),
}


@pytest.mark.parametrize("kind", WELL_FORMED)
def test_any_text_before_a_record_leaves_it_readable(kind: str) -> None:
    """Unknown columns, words and bytes add what they add; the record after them is there."""
    parse, head, record, name = WELL_FORMED[kind]

    @given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join))
    def check(text: str) -> None:
        assert name in [entry.name for entry in parse(f"{head}{text}\n{record}\n")]

    check()


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_before_an_association_leaves_it_readable(text: str) -> None:
    """With limits of any text too, which are none of its own."""
    found = parse_associations(f"Account|QOS\n{text}\nw1|normal\n", text)
    assert ("w1", ("normal",)) in [(entry.account, entry.qos) for entry in found]


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_after_the_configuration_changes_nothing_of_it(text: str) -> None:
    """The first of two equal settings counts, and the clock above them."""
    whole = captured("22.05", "show_config")
    assert parse_show_config(f"{whole}\n{text}") == parse_show_config(whole)
    assert parse_config_time(f"{whole}\n{text}") == parse_config_time(whole) is not None
