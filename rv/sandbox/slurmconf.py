"""The configuration files of a sandbox, as text. Pure: profile, paths and ports in, text out."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from rv.sandbox.layout import Layout
from rv.sandbox.profile import NodeGroup, Pairs, Partition, Profile

_POWER_SAVING: Final = {
    "SuspendProgram": "/bin/true",
    "ResumeProgram": "/bin/true",
    "SuspendTime": "INFINITE",
    "ResumeTimeout": "60",
    # Without this word, powered-down cloud nodes are not shown at all.
    "PrivateData": "cloud",
}
"""Cloud nodes are powered down from the start, and no program of a sandbox wakes them."""


DATABASE: Final = "slurm_acct"
# slurmdbd 26.05 with the client library of MariaDB 11.8 cannot make it by itself.
DATABASE_SQL: Final = f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"


def slurmctld_port(base: int) -> int:
    """The first of a sandbox's ports is the controller's."""
    return base


def slurmdbd_port(base: int) -> int:
    """The second is slurmdbd's; the nodes have the rest."""
    return base + 1


def port_count(profile: Profile) -> int:
    """How many ports a cluster of this profile needs."""
    return 2 + len(profile.node_names)


def slurm_conf(
    profile: Profile, layout: Layout, *, base: int, user: str, address: str = "127.0.0.1"
) -> str:
    """The text of slurm.conf; `address` is where its daemons listen."""
    settings = dict(_settings(profile, layout, base, user, address))
    for key, value in profile.slurm_conf:
        spellings = {each.lower(): each for each in settings}
        settings[spellings.get(key.lower(), key)] = value
    lines = [f"{key}={value}" for key, value in settings.items()]
    return "\n".join([*lines, *_nodes(profile, base, address), *_partitions(profile)]) + "\n"


def daemons_conf(profile: Profile, layout: Layout, parameters: str) -> str:
    """What the daemons read: slurm.conf, and what is not for clients, whose srun listens too."""
    own = [value for key, value in profile.slurm_conf if key.lower() == "communicationparameters"]
    both = ",".join(filter(None, [*own, parameters]))
    return f"Include {layout.slurm_conf}\n" + (f"CommunicationParameters={both}\n" if both else "")


def cgroup_conf(layout: Layout, version: str) -> str:
    """The text of cgroup.conf, for a machine that has cgroup v2 only and no systemd.

    There slurmd's own choice, cgroup/v2, asks systemd for a scope and gives up. A sandbox uses no
    cgroups, so that v1 on an empty folder of its own serves. `version` is what slurmctld -V prints:
    before 21.08 there was v1 alone, and no word for it.
    """
    number = re.search(r"(\d+)\.(\d+)", version)
    has_choice = number is None or (int(number[1]), int(number[2])) >= (21, 8)
    plugin = "CgroupPlugin=cgroup/v1\n" if has_choice else ""
    return f"{plugin}CgroupMountpoint={layout.cgroup}\n"


def _settings(
    profile: Profile, layout: Layout, base: int, user: str, address: str
) -> Iterator[tuple[str, str | int]]:
    yield "ClusterName", profile.cluster
    yield "SlurmctldHost", f"localhost({address})"
    yield "SlurmctldPort", slurmctld_port(base)
    yield "SlurmUser", user
    yield "SlurmdUser", user
    yield "AuthType", "auth/munge"
    yield "AuthInfo", _auth_info(profile, layout)
    yield "StateSaveLocation", str(layout.state)
    yield "SlurmdSpoolDir", f"{layout.spool}/%n"
    yield "SlurmctldPidFile", str(layout.state / "slurmctld.pid")
    yield "SlurmdPidFile", f"{layout.state}/slurmd.%n.pid"
    yield "ProctrackType", "proctrack/linuxproc"
    yield "TaskPlugin", "task/none"
    yield "TaskProlog", str(layout.bin / "task-prolog")
    yield "SwitchType", "switch/none"
    yield "MpiDefault", "none"
    yield "MailProg", "/bin/true"
    yield "ReturnToService", 2
    yield "SchedulerType", "sched/backfill"
    yield "SchedulerParameters", _entries(profile.scheduler)
    yield "SelectType", "select/cons_tres"
    yield "SelectTypeParameters", "CR_Core_Memory"
    yield "GresTypes", "gpu"
    # Nodes are what the profile says, not what this machine has.
    yield "SlurmdParameters", "config_overrides"
    yield "JobAcctGatherType", "jobacct_gather/none"
    yield "MinJobAge", profile.min_job_age
    yield "KillWait", profile.kill_wait
    yield "MessageTimeout", 10
    if any(group.cloud for group in profile.nodes):
        yield from _POWER_SAVING.items()
    yield from _accounting(profile, layout, base, address)


def _accounting(
    profile: Profile, layout: Layout, base: int, address: str
) -> Iterator[tuple[str, str | int]]:
    if not profile.accounting:
        yield "AccountingStorageType", "accounting_storage/none"
        return
    yield "AccountingStorageType", "accounting_storage/slurmdbd"
    yield "AccountingStorageHost", address
    yield "AccountingStoragePort", slurmdbd_port(base)
    yield "AccountingStoragePass", str(layout.munge_socket)
    yield "AccountingStorageEnforce", profile.enforce
    yield "AccountingStorageTRES", "gres/gpu"
    yield "PriorityType", "priority/multifactor"


def _auth_info(profile: Profile, layout: Layout) -> str:
    hold = "" if profile.cred_expire is None else f",cred_expire={profile.cred_expire}"
    return f"socket={layout.munge_socket}{hold}"


def _entries(pairs: Pairs) -> str:
    return ",".join(f"{key}={value}" if value else key for key, value in pairs)


def _nodes(profile: Profile, base: int, address: str) -> Iterator[str]:
    port = base + 2
    for group in profile.nodes:
        rest = _node_settings(group)
        for name in group.names:
            yield f"NodeName={name} NodeAddr={address} Port={port} {rest}"
            port += 1


def _node_settings(group: NodeGroup) -> str:
    gres = ",".join(
        f"gpu:{each.type}:{each.count}" if each.type else f"gpu:{each.count}" for each in group.gres
    )
    settings = {
        "CPUs": str(group.cpus),
        "RealMemory": str(group.memory),
        "Gres": gres,
        "Feature": ",".join(group.features),
        "Weight": str(group.weight),
        "State": "CLOUD" if group.cloud else "UNKNOWN",
    }
    return _line(settings, group.options)


def _partitions(profile: Profile) -> Iterator[str]:
    prefixes = {group.prefix: group.names for group in profile.nodes}
    for partition in profile.partitions:
        nodes = ",".join(name for prefix in partition.nodes for name in prefixes[prefix])
        settings = {"Nodes": nodes} | _partition_settings(partition)
        yield f"PartitionName={partition.name} {_line(settings, partition.options)}"


def _partition_settings(partition: Partition) -> dict[str, str]:
    return {
        "Default": "YES" if partition.default else "",
        "MaxTime": partition.max_time or "",
        "DefaultTime": partition.default_time or "",
        "MaxNodes": _text(partition.max_nodes),
        "MaxCPUsPerNode": _text(partition.max_cpus_per_node),
        "MaxMemPerCPU": _text(partition.max_mem_per_cpu),
        "MaxMemPerNode": _text(partition.max_mem_per_node),
        "DefMemPerCPU": _text(partition.def_mem_per_cpu),
        "QOS": partition.qos or "",
        "AllowAccounts": ",".join(partition.allow_accounts),
        "AllowQos": ",".join(partition.allow_qos),
        "OverSubscribe": "EXCLUSIVE" if partition.exclusive else "",
        "Hidden": "YES" if partition.hidden else "",
        "PriorityTier": _text(partition.priority),
        "TRESBillingWeights": f'"{_entries(partition.billing)}"' if partition.billing else "",
        "State": partition.state,
    }


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def _line(settings: dict[str, str], options: Pairs) -> str:
    """Slurm's `Key=value …`, leaving out what is empty; `options` win."""
    merged = settings | dict(options)
    return " ".join(f"{key}={value}" for key, value in merged.items() if value)


def gres_conf(profile: Profile, layout: Layout) -> str:
    """The text of gres.conf.

    The kinds on one node get distinct device numbers: CUDA_VISIBLE_DEVICES is made from them.
    """
    lines = []
    for group in profile.nodes:
        first = 0
        for gres in group.gres:
            kind = f" Type={gres.type}" if gres.type else ""
            files = ",".join(gres.files) or _device_range(layout, first, gres.count)
            first += gres.count
            lines += [f"NodeName={name} Name=gpu{kind} File={files}" for name in group.names]
    return "\n".join(lines) + "\n"


def _device_range(layout: Layout, first: int, count: int) -> str:
    last = first + count - 1
    return f"{layout.devices}/gpu" + (f"[{first}-{last}]" if count > 1 else str(first))


def fake_device_count(profile: Profile) -> int:
    """How many device numbers the largest node needs."""
    return max((_per_node(group) for group in profile.nodes), default=0)


def _per_node(group: NodeGroup) -> int:
    return sum(gres.count for gres in group.gres if not gres.files)


def slurmdbd_conf(
    layout: Layout, *, base: int, user: str, address: str = "127.0.0.1", parameters: str = ""
) -> str:
    """The text of slurmdbd.conf; MariaDB is reached by its socket alone (see `accounting.py`)."""
    settings: Iterable[tuple[str, str | int]] = (
        ("AuthType", "auth/munge"),
        ("AuthInfo", f"socket={layout.munge_socket}"),
        ("DbdHost", "localhost"),
        ("DbdAddr", address),
        ("DbdPort", slurmdbd_port(base)),
        ("SlurmUser", user),
        ("StorageType", "accounting_storage/mysql"),
        ("StorageHost", "localhost"),
        ("StorageUser", "root"),
        ("StorageLoc", DATABASE),
        ("PidFile", str(layout.state / "slurmdbd.pid")),
        ("CommunicationParameters", parameters),
    )
    return "".join(f"{key}={value}\n" for key, value in settings if value)
