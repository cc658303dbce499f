"""QOS, associations and accounts, from sacctmgr's `-P` tables, read by column name."""

from collections.abc import Iterator
from typing import Final

from rv.models.snapshot import Account, Association, Limits, Qos
from rv.slurm import words
from rv.slurm.tres import parse_tres

QOS_LINE: Final = (
    "sacctmgr -P show qos format=Name,Flags,UsageFactor,MaxTRES,MinTRES,MaxTRESPerNode,MaxTRESPU,"
    "MaxTRESPA,GrpTRES,MaxWall,MaxJobsPU,MaxSubmitPU,MaxJobsPA,MaxSubmitPA,GrpJobs,GrpSubmit"
)
QOS_PREEMPTION_LINE: Final = "sacctmgr -P show qos format=Name,Preempt,PreemptMode"
# Names of QOS and of TRES are looked up in the database, one after the other: asked for in two
# commands side by side, a first answer takes 0.28 s in place of 0.36 s (22.05, loopback).
_ASK_USER: Final = (
    'sacctmgr -P show user where name="$me" withassoc format=Cluster,Account,Partition,'
)
ASSOCIATIONS_LINE: Final = f"{_ASK_USER}DefaultAccount,QOS,DefaultQOS"
ASSOCIATION_LIMITS_LINE: Final = (
    f"{_ASK_USER}MaxTRES,MaxTRESPerNode,GrpTRES,MaxWall,MaxJobs,MaxSubmit,GrpJobs,GrpSubmit"
)
ACCOUNTS_LINE: Final = (
    "sacctmgr -P show assoc where user= format=Cluster,Account,ParentName,GrpTRES,GrpJobs,GrpSubmit"
)
ACCOUNTS: Final = {
    "qos": QOS_LINE,
    "qos_preemption": QOS_PREEMPTION_LINE,
    "associations": ASSOCIATIONS_LINE,
    "association_limits": ASSOCIATION_LIMITS_LINE,
    "accounts": ACCOUNTS_LINE,
}
"""The frames of a probe that come from the database, and their commands."""


def parse_qos(text: str, preemption_text: str = "") -> tuple[Qos, ...]:
    """Read every QOS, its limits, and whom it preempts."""
    preemption = {row.get("Name", ""): row for row in _rows(preemption_text)}
    return tuple(
        Qos(
            name=row["Name"],
            limits=_limits(row, per_user="MaxTRESPU", jobs="MaxJobsPU", submit="MaxSubmitPU"),
            flags=frozenset(words.words(row.get("Flags", ""))),
            preempts=frozenset(words.words(preemption.get(row["Name"], {}).get("Preempt", ""))),
            preempt_mode=_preempt_mode(preemption.get(row["Name"], {}).get("PreemptMode", "")),
            usage_factor=words.decimal(row.get("UsageFactor", ""), default=1.0),
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
        qos=words.words(row.get("QOS", "")),
        default_qos=row.get("Def QOS", ""),
        is_default=row.get("Def Acct", "") == row["Account"],
        limits=_limits(limits, per_user="", jobs="MaxJobs", submit="MaxSubmit"),
    )


def _limits(row: dict[str, str], *, per_user: str, jobs: str, submit: str) -> Limits:
    return Limits(
        per_job=parse_tres(row.get("MaxTRES", "")),
        least_per_job=parse_tres(row.get("MinTRES", "")),
        per_node=parse_tres(row.get("MaxTRESPerNode", "")),
        per_user=parse_tres(row.get(per_user, "")),
        per_account=parse_tres(row.get("MaxTRESPA", "")),
        group=parse_tres(row.get("GrpTRES", "")),
        max_wall=words.duration(row.get("MaxWall", "")),
        max_jobs_per_user=words.number(row.get(jobs, "")),
        max_submit_per_user=words.number(row.get(submit, "")),
        max_jobs_per_account=words.number(row.get("MaxJobsPA", "")),
        max_submit_per_account=words.number(row.get("MaxSubmitPA", "")),
        group_jobs=words.number(row.get("GrpJobs", "")),
        group_submit=words.number(row.get("GrpSubmit", "")),
    )


def _rows(text: str) -> Iterator[dict[str, str]]:
    """Return the rows below the header; a row of another length is no row of this table."""
    lines = [line.split("|") for line in text.split("\n") if "|" in line]
    header = lines[0] if lines else []
    return (dict(zip(header, row, strict=True)) for row in lines[1:] if len(row) == len(header))
