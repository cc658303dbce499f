"""What scontrol prints: nodes, partitions, reservations, the configuration, single jobs.

A record of `scontrol -o` is one line, `Key=value Key=value …`, where values may hold spaces.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from rv.models.job import JobRecord
from rv.models.snapshot import ClusterConfig, GpuGroup, Node, Partition, Reservation
from rv.slurm import values
from rv.slurm.hostlist import Expander
from rv.slurm.job_record import job_record, own_job_name
from rv.slurm.printable import printable
from rv.slurm.script import exit_code_line, has_succeeded

_KEY: Final = re.compile(r"\s([A-Za-z][\w:/]*+)=", re.ASCII)
# The fields of a node that are read, each up to the next key, as `parse_record` would split them.
# No group is possessive here: Python 3.11.2, which Debian 12 has, goes past the end of such a one.
_NODE_FIELD: Final = re.compile(
    r"\s(NodeName|CPUAlloc|CPUEfctv|CPUTot|AvailableFeatures|ActiveFeatures|GresUsed|Gres|RealMemory"
    r"|AllocMem|MemSpecLimit|State|Weight|Partitions|AllocTRES)="
    r"(\S*(?:\s(?![A-Za-z][\w:/]*=)\S*)*)",
    re.ASCII,
)
_STATE_SUFFIXES: Final = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "%": "POWERING_DOWN",
    "!": "POWER_DOWN",
    "$": "MAINT",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
_RENAMED_STATES: Final = {
    "POWER": "POWERED_DOWN",  # 20.11
    "POWER_SAVING": "POWERED_DOWN",
    "REBOOT": "REBOOT_REQUESTED",
    "NO_RESPOND": "NOT_RESPONDING",
    "MAINTENANCE": "MAINT",  # the word of scontrol from 21.08 on
}
_SUFFIXED_STATE: Final = re.compile(r"([A-Za-z_]+)([*~#%!$@^-]*)", re.ASCII)
_NODE_REASON: Final = re.compile(r"\sReason=(.*)")
_REASON_STAMP: Final = re.compile(r" \[[^\[\]@ ]+@[^\[\] ]+\]")
# The bracketed tail is sockets, `(S:0-1)`, or device numbers, `(IDX:4-6)`; it may hold commas.
_GRES_ITEM: Final = re.compile(r"(?:gres[:/])?gpu((?::[^:,(]*|:\(null\))*)(?:\([^()]*\))?(?=,|$)")
_COUNT: Final = re.compile(r"\d{1,9}", re.ASCII)
_NO_TYPE: Final = frozenset({"", "(null)", "no_consume"})
_DEFAULT_CONFIG: Final = ClusterConfig()
_AS_OF: Final = re.compile(r"^Configuration data as of (\S+)", re.MULTILINE)
# Between the name and the user 25.11 has an SLUID; no name that rv gives has a space.
_JOB: Final = re.compile(
    r"JobId=(\d{1,10}) (?:.*? )?JobName=(.*?)(?: [A-Z]\w*=\S+)* (UserId=.*)", re.ASCII
)
# Only the first record of an answer is marked, so a newline in a job's name adds no record.
_SHOW_ONE: Final = r"""
show() {
  out=$(timeout --foreground -k 1 12 scontrol show job -d -o "$1" 2>&1 </dev/null)
  case $?/$out in
    0/JobId=*) printf '@S@ job %s\n' "$out" ;;
    0/*) printf '@S@ job JobId=%s\n' "${out#*$'\n'JobId=}" ;;
    */*'Invalid job id'*) ;;
    *) printf '%s\n' "$out" >&2; return 1 ;;
  esac
}
"""


def parse_show_node(text: str) -> tuple[Node, ...]:
    """Read every node; a line that names none is left out."""
    nodes = map(_node_reader(), record_lines(text, "NodeName"))
    return tuple(node for node in nodes if node.name)


@lru_cache(maxsize=256)
def parse_node_states(text: str) -> frozenset[str]:
    """Split `MIXED+PLANNED`; a suffix of sinfo (`idle~`, `DOWN*`) becomes the state it stands for.

    States that Slurm has renamed since 20.11 get the later name.
    """
    states = set()
    for part in text.upper().split("+"):
        match = _SUFFIXED_STATE.match(part.strip())
        if match:
            states.add(_RENAMED_STATES.get(match[1], match[1]))
            states.update(_STATE_SUFFIXES[suffix] for suffix in match[2])
    return frozenset(states)


def parse_show_partition(text: str) -> tuple[Partition, ...]:
    """Read every partition; a line that names none is left out."""
    lists = Expander()
    lines = record_lines(text, "PartitionName")
    partitions = (_partition(parse_record(line), lists) for line in lines)
    return tuple(partition for partition in partitions if partition.name)


def parse_show_reservation(text: str) -> tuple[Reservation, ...]:
    """Read every reservation that has a name, a start and an end."""
    lists = Expander()
    lines = record_lines(text, "ReservationName")
    reservations = (_reservation(parse_record(line), lists) for line in lines)
    return tuple(reservation for reservation in reservations if reservation is not None)


def parse_show_config(text: str) -> ClusterConfig:
    """Read the few settings that rv depends on; one that is missing has Slurm's default."""
    record: dict[str, str] = {}
    for line in text.split("\n"):
        key, _, rest = line.partition("=")
        record.setdefault(key.strip(), rest.strip())

    def of(key: str) -> str:
        return values.non_null(record.get(key, ""))

    def seconds(key: str, default: timedelta) -> timedelta:
        return values.config_seconds(of(key)) or default

    enforced = of("AccountingStorageEnforce")
    return ClusterConfig(
        name=of("ClusterName"),
        version=of("SLURM_VERSION"),
        min_job_age=seconds("MinJobAge", _DEFAULT_CONFIG.min_job_age),
        message_timeout=seconds("MessageTimeout", _DEFAULT_CONFIG.message_timeout),
        slurmd_timeout=seconds("SlurmdTimeout", _DEFAULT_CONFIG.slurmd_timeout),
        accounting=of("AccountingStorageType") not in {"", "accounting_storage/none"},
        enforces=_lower_case_list(enforced) if "AccountingStorageEnforce" in record else None,
        priority_flags=frozenset(values.comma_list(record.get("PriorityFlags", ""))),
        private_data=_lower_case_list(of("PrivateData")),
        preempt_type=record.get("PreemptType", "").rpartition("/")[2],
        preempt_mode=record.get("PreemptMode", ""),
        booted_at=values.time(of("BOOT_TIME")),
        max_memory_per_cpu_mib=values.memory_mib(of("MaxMemPerCPU")),
        max_memory_per_node_mib=values.memory_mib(of("MaxMemPerNode")),
        max_array_size=values.number(of("MaxArraySize")) or _DEFAULT_CONFIG.max_array_size,
    )


def parse_config_time(text: str) -> datetime | None:
    """Return the controller's time of answering, which it prints above the settings."""
    match = _AS_OF.search(text)
    return values.time(match[1]) if match else None


def show_job_script(job_ids: Sequence[int], sentinel: str) -> str:
    """Return the script that asks the controller for jobs by id, while it remembers them."""
    calls = "".join(f" && show {job_id}" for job_id in job_ids)
    return f"{_SHOW_ONE.replace('@S@', sentinel)}:{calls}\n{exit_code_line(sentinel)}"


def parse_show_job(text: str, sentinel: str) -> tuple[JobRecord, ...] | None:
    """Read the jobs; ids that Slurm has forgotten are left out. None where the controller failed.

    Ids are recycled: the caller compares the name too.
    """
    if not has_succeeded(text, sentinel):
        return None
    start = f"{sentinel} job "
    lines = (line.removeprefix(start) for line in text.split("\n") if line.startswith(start))
    rows = (_shown_job(line) for line in lines)
    return tuple(row for row in rows if row is not None)


def parse_record(line: str) -> dict[str, str]:
    """Split a record at its keys. The first of two equal keys wins: free text comes last."""
    _, *parts = _KEY.split(f" {line}")
    # Backwards, so that the first of two equal keys is the last one written.
    return dict(zip(parts[-2::-2], map(str.strip, parts[::-2]), strict=True))


def record_lines(text: str, first_key: str) -> Iterator[str]:
    """Return the lines that begin with `first_key=`; anything else is a message, not a record."""
    start = f"{first_key}="
    return (line for line in text.split("\n") if line.startswith(start))


def _node_reader() -> Callable[[str], Node]:
    """Return what makes a node of its record. What nodes have alike is read once, and shared."""
    counts, states = values.Known(values.count), values.Known(parse_node_states)
    lists = values.Known(values.comma_list)
    features = values.Known(lambda text: frozenset(values.comma_list(text)))

    def node(line: str) -> Node:
        # Backwards, so that the first of two equal keys is the last one written.
        record = {key: value.strip() for key, value in _NODE_FIELD.findall(f" {line}")[::-1]}
        of = record.get
        return Node(
            name=record["NodeName"],
            states=states[of("State", "")],
            cpus=counts[of("CPUEfctv", "")] or counts[of("CPUTot", "")],
            cpus_used=counts[of("CPUAlloc", "")],
            memory_mib=max(0, counts[of("RealMemory", "")] - counts[of("MemSpecLimit", "")]),
            memory_used_mib=counts[of("AllocMem", "")],
            gpus=parse_node_gres(of("Gres", ""), of("GresUsed", ""), of("AllocTRES", "")),
            features=features[of("ActiveFeatures", of("AvailableFeatures", ""))],
            partitions=lists[of("Partitions", "")],
            weight=counts[of("Weight", "")] or 1,
            reason=_node_reason(line) if "Reason=" in line else "",
        )

    return node


# Nodes of one kind are alike in this, and those in use are so in one of few ways.
@lru_cache(maxsize=4096)
def parse_node_gres(gres: str, gres_used: str, alloc_tres: str = "") -> tuple[GpuGroup, ...]:
    """Return the GPU groups of a node, types in the node's order; shards and mps are no GPUs."""
    totals, used = _gpus_by_type(gres), _gpus_by_type(gres_used)
    unlisted = sum(count for gpu_type, count in used.items() if gpu_type not in totals)
    if not used:
        unlisted = values.gpus_in_tres(values.parse_tres(alloc_tres))
    # Use of a type that the node does not list may be of any group: it counts against each.
    return tuple(
        GpuGroup(type=gpu_type, total=total, used=min(total, used.get(gpu_type, 0) + unlisted))
        for gpu_type, total in totals.items()
        if total
    )


def _gpus_by_type(text: str) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for item in _GRES_ITEM.finditer(text):
        if item.start() and text[item.start() - 1] != ",":
            continue
        parts = item[1].split(":")[1:]
        amount = parts.pop() if parts and _COUNT.fullmatch(parts[-1]) else "1"
        gpu_type = next((part for part in parts if part not in _NO_TYPE), "")
        counts[gpu_type] = counts.get(gpu_type, 0) + int(amount)
    return counts


def _node_reason(line: str) -> str:
    """Return the whole reason, which may hold `=`, without the stamp of who set it when."""
    match = _NODE_REASON.search(line)
    return printable(_REASON_STAMP.split(match[1], maxsplit=1)[0]).strip() if match else ""


def _partition(record: dict[str, str], lists: Expander) -> Partition:
    def of(key: str) -> str:
        return record.get(key, "")

    return Partition(
        name=of("PartitionName"),
        nodes=lists.expand(of("Nodes")),
        state=of("State") or "UP",
        is_default=of("Default") == "YES",
        hidden=of("Hidden") == "YES",
        root_only=of("RootOnly") == "YES",
        needs_reservation=of("ReqResv") == "YES",
        exclusive=record.get("OverSubscribe", of("Shared")) == "EXCLUSIVE",
        max_time=values.duration(of("MaxTime")),
        default_time=values.duration(of("DefaultTime")),
        max_nodes=values.number(of("MaxNodes")),
        min_nodes=values.number(of("MinNodes")) or 0,
        max_cpus_per_node=values.number(of("MaxCPUsPerNode")),
        max_memory_per_cpu_mib=values.memory_mib(of("MaxMemPerCPU")),
        max_memory_per_node_mib=values.memory_mib(of("MaxMemPerNode")),
        allow_accounts=values.allow_list(of("AllowAccounts")),
        deny_accounts=frozenset(values.comma_list(of("DenyAccounts"))),
        allow_qos=values.allow_list(of("AllowQos")),
        deny_qos=frozenset(values.comma_list(of("DenyQos"))),
        allow_groups=values.allow_list(of("AllowGroups")),
        qos=values.non_null(of("QoS")),
        priority_tier=values.number(record.get("PriorityTier", "1")) or 0,
        priority_job_factor=values.number(record.get("PriorityJobFactor", "1")) or 0,
        preempt_mode=of("PreemptMode") or "OFF",
        billing_weights=values.parse_billing_weights(of("TRESBillingWeights")),
    )


def _reservation(record: dict[str, str], lists: Expander) -> Reservation | None:
    start, end = values.time(record.get("StartTime", "")), values.time(record.get("EndTime", ""))
    if start is None or end is None or not record["ReservationName"]:
        return None
    return Reservation(
        name=record["ReservationName"],
        nodes=lists.expand(record.get("Nodes", "")),
        start=start,
        end=end,
        users=values.comma_list(record.get("Users", "")),
        accounts=values.comma_list(record.get("Accounts", "")),
        flags=frozenset(values.comma_list(record.get("Flags", ""))),
    )


def _lower_case_list(text: str) -> frozenset[str]:
    return frozenset(values.comma_list(text.lower()))


def _shown_job(line: str) -> JobRecord | None:
    match = _JOB.match(line)
    if match is None:
        return None
    record = parse_record(match[3])
    record["State"] = record.get("JobState", "")
    return job_record(
        source="scontrol",
        job_id=int(match[1]),
        name=own_job_name(match[2], record.get("Command", "")),
        value=record,
        times=tuple(record.get(f"{which}Time", "") for which in ("Submit", "Start", "End")),
        restarts=record.get("Restarts", ""),
    )
