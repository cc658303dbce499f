"""What sacctmgr prints (`-P` tables): QOS, associations and accounts."""

from collections.abc import Iterator
from typing import Final

from rv.models.snapshot import Account, Association, Limits, Qos
from rv.slurm import values

_QOS_LINE: Final = (
    "sacctmgr -P show qos format=Name,Flags,UsageFactor,MaxTRES,MinTRES,MaxTRESPerNode,MaxTRESPU,"
    "MaxTRESPA,GrpTRES,MaxWall,MaxJobsPU,MaxSubmitPU,MaxJobsPA,MaxSubmitPA,GrpJobs,GrpSubmit"
)
_QOS_PREEMPTION_LINE: Final = "sacctmgr -P show qos format=Name,Preempt,PreemptMode"
# sacctmgr looks up the names of QOS and of TRES one after the other: in two commands at the same
# time a first answer takes 0.28 s in place of 0.36 s (22.05, loopback).
_SHOW_USER: Final = (
    'sacctmgr -P show user where name="$me" withassoc format=Cluster,Account,Partition,'
)
_ASSOCIATIONS_LINE: Final = f"{_SHOW_USER}DefaultAccount,QOS,DefaultQOS"
_ASSOCIATION_LIMITS_LINE: Final = (
    f"{_SHOW_USER}MaxTRES,MaxTRESPerNode,GrpTRES,MaxWall,MaxJobs,MaxSubmit,GrpJobs,GrpSubmit"
)
_ACCOUNTS_LINE: Final = (
    "sacctmgr -P show assoc where user= format=Cluster,Account,ParentName,GrpTRES,GrpJobs,GrpSubmit"
)
COMMANDS: Final = {
    "qos": _QOS_LINE,
    "qos_preemption": _QOS_PREEMPTION_LINE,
    "associations": _ASSOCIATIONS_LINE,
    "association_limits": _ASSOCIATION_LIMITS_LINE,
    "accounts": _ACCOUNTS_LINE,
}
"""The commands of a probe that ask the accounting database, by name."""


def parse_qos(text: str, preemption_text: str = "") -> tuple[Qos, ...]:
    """Read every QOS, its limits, and which QOS it preempts."""
    preemption = {row.get("Name", ""): row for row in _rows(preemption_text)}
    return tuple(
        Qos(
            name=row["Name"],
            limits=_limits(row, per_user="MaxTRESPU", jobs="MaxJobsPU", submit="MaxSubmitPU"),
            flags=frozenset(values.comma_list(row.get("Flags", ""))),
            preempts=frozenset(
                values.comma_list(preemption.get(row["Name"], {}).get("Preempt", ""))
            ),
            preempt_mode=_preempt_mode(preemption.get(row["Name"], {}).get("PreemptMode", "")),
            usage_factor=values.decimal(row.get("UsageFactor", ""), default=1.0),
        )
        for row in _rows(text)
        if row.get("Name")
    )


def parse_associations(
    text: str, limits_text: str = "", cluster: str = ""
) -> tuple[Association, ...]:
    """Read the user's associations with `cluster` (every cluster's where it is "").

    Limits include those a user inherits from the account, except the account's group limits.
    """
    limits = {_key(row): row for row in _rows(limits_text)}
    return tuple(
        _association(row, limits.get(_key(row), {}))
        for row in _rows(text)
        if row.get("Account") and _is_here(row.get("Cluster", ""), cluster)
    )


def parse_accounts(text: str, cluster: str = "") -> tuple[Account, ...]:
    """Read the accounts of `cluster`, and what their users share (every cluster's where "")."""
    return tuple(
        Account(
            name=row["Account"],
            parent=row.get("Par Name", row.get("ParentName", "")),
            limits=_limits(row, per_user="", jobs="", submit=""),
        )
        for row in _rows(text)
        if row.get("Account") and not row.get("User") and _is_here(row.get("Cluster", ""), cluster)
    )


def _preempt_mode(text: str) -> str:
    return "" if text.lower() == "cluster" else text.upper()


def _is_here(row_cluster: str, cluster: str) -> bool:
    return not cluster or not row_cluster or row_cluster.lower() == cluster.lower()


def _key(row: dict[str, str]) -> tuple[str, str, str]:
    return row.get("Cluster", ""), row.get("Account", ""), row.get("Partition", "")


def _association(row: dict[str, str], limits: dict[str, str]) -> Association:
    return Association(
        account=row["Account"],
        partition=row.get("Partition", ""),
        qos=values.comma_list(row.get("QOS", "")),
        default_qos=row.get("Def QOS", ""),
        is_default=row.get("Def Acct", "") == row["Account"],
        limits=_limits(limits, per_user="", jobs="MaxJobs", submit="MaxSubmit"),
    )


def _limits(row: dict[str, str], *, per_user: str, jobs: str, submit: str) -> Limits:
    return Limits(
        per_job=values.parse_tres(row.get("MaxTRES", "")),
        least_per_job=values.parse_tres(row.get("MinTRES", "")),
        per_node=values.parse_tres(row.get("MaxTRESPerNode", "")),
        per_user=values.parse_tres(row.get(per_user, "")),
        per_account=values.parse_tres(row.get("MaxTRESPA", "")),
        group=values.parse_tres(row.get("GrpTRES", "")),
        max_wall=values.duration(row.get("MaxWall", "")),
        max_jobs_per_user=values.number(row.get(jobs, "")),
        max_submit_per_user=values.number(row.get(submit, "")),
        max_jobs_per_account=values.number(row.get("MaxJobsPA", "")),
        max_submit_per_account=values.number(row.get("MaxSubmitPA", "")),
        group_jobs=values.number(row.get("GrpJobs", "")),
        group_submit=values.number(row.get("GrpSubmit", "")),
    )


def _rows(text: str) -> Iterator[dict[str, str]]:
    """Return the rows by column name; a line with another number of columns is none."""
    lines = [line.split("|") for line in text.split("\n") if "|" in line]
    header = lines[0] if lines else []
    return (dict(zip(header, row, strict=True)) for row in lines[1:] if len(row) == len(header))
