"""Slurm's reasons for a pending job, as sentences (squeue(1), "JOB REASON CODES").

A reason that names a limit, such as QOSMaxGRESPerUser or AssocGrpCpuLimit, is put together from
whose limit it is, of what, over what time and for whom; so is its sentence.
"""

import re
from typing import Final

from rv.slurm.printable import printable

_SENTENCES: Final = {
    "Resources": "next in line for nodes that are busy",
    "Priority": "others are ahead in the queue",
    "None": "Slurm has not looked at it yet",
    "BeginTime": "held back until its begin time",
    "Dependency": "another job must end first",
    "DependencyNeverSatisfied": "the job it depends on will never end well",
    "JobHeldUser": "held by its user (scontrol release lets it go)",
    "JobHeldAdmin": "held by an administrator",
    "JobHoldMaxRequeue": "held: it was requeued too often",
    "JobArrayTaskLimit": "its array runs as many tasks at a time as it may",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "PartitionNodeLimit": "it asks for more nodes than the partition allows",
    "PartitionTimeLimit": "it asks for more time than the partition allows",
    "PartitionConfig": "the partition does not take a job like this",
    "ReqNodeNotAvail": "a node that it needs is not available",
    "NodeDown": "a node that it needs is down",
    "FrontEndDown": "no front-end node is up",
    "PowerNotAvail": "the cluster has no power to spare for it",
    "PowerReserved": "the power for it is reserved",
    "MaxPoweredUpNodes": "as many nodes are powered up as the cluster may have",
    "Reservation": "its reservation has not begun",
    "ReservationDeleted": "its reservation was deleted",
    "ReservationInvalid": "its reservation is not valid",
    "Licenses": "it waits for licenses",
    "MpiPortsBusy": "the ports for its MPI are in use",
    "Cleaning": "its earlier run is being cleaned up",
    "Prolog": "the site's prolog is running",
    "SchedDefer": "Slurm does not start jobs at once here",
    "BadConstraints": "no node has the features it asks for",
    "Constraints": "no node has the features it asks for",
    "BurstBufferResources": "it waits for burst buffer space",
    "BurstBufferStageIn": "its data is being brought to the burst buffer",
    "BurstBufferOperation": "its burst buffer has failed",
    "BlockMaxError": "too many errors on the block of nodes",
    "BlockFreeAction": "the block of nodes is being freed",
    "FedJobLock": "another cluster of the federation decides about it",
    "AssociationJobLimit": "the account runs as many jobs as it may",
    "AssociationResourceLimit": "the account uses as much as it may",
    "AssociationTimeLimit": "the account has used up its time",
    "AccountNotAllowed": "its account may not use the partition",
    "AccountingPolicy": "a limit of its QOS or account is in the way",
    "QOSNotAllowed": "its QOS may not use the partition",
    "QOSJobLimit": "this QOS runs as many jobs as it may",
    "QOSResourceLimit": "this QOS uses as much as it may",
    "QOSTimeLimit": "this QOS has used up its time",
    "QOSUsageThreshold": "the QOS does not take more use now",
    "MaxMemPerLimit": "it asks for more memory than the partition allows",
    "InvalidQOS": "its QOS is not valid",
    "InvalidAccount": "its account is not valid",
    "JobLaunchFailure": "its last start failed",
    "SystemFailure": "Slurm, the file system or the network failed it",
    "NonZeroExitCode": "its last run ended with an error",
    "RaisedSignal": "its last run was ended by a signal",
    "OutOfMemory": "its last run ran out of memory",
    "TimeLimit": "its last run used up its time",
    "InactiveLimit": "it was inactive for too long",
    "DeadLine": "it cannot end before its deadline",
    "NvidiaImexChannels": "all channels of NVIDIA IMEX on its nodes are in use",
}
_BEGINNINGS: Final = {
    "Nodes required for job are DOWN": "its nodes are down, drained or kept for higher partitions",
    "Job's account not permitted": "its account may not use the partition",
    "Job's QOS not permitted": "its QOS may not use the partition",
    "Job's QOS not known": "its QOS may not use the partition",
    "job requeued in held state": "held: it was requeued so (scontrol release lets it go)",
    "job requeued in special exit": "held: it ended with the exit code that asks for this",
    "launch failed requeued held": "held: its last start failed",
    "launch failure limit exceeded": "held: its starts failed too often",
    "user env retrieval failed": "held: your environment could not be read on the node",
}
"""How reasons begin that Slurm writes as a text, with names or other words behind."""

_WHAT: Final = {
    "cpu": "CPU",
    "mem": "memory",
    "memory": "memory",
    "gres": "GPU",
    "node": "node",
    "license": "license",
    "bb": "burst buffer",
    "energy": "energy",
    "billing": "billing",
    "unknown": "resource",
}
_COUNTED: Final = frozenset({"CPU", "GPU", "node", "license", "resource"})
_RESOURCE: Final = rf"(?P<what>{'|'.join(_WHAT)})"
_FORM: Final = re.compile(
    rf"(?P<owner>qos|assoc)(?P<kind>grp|max|min){_RESOURCE}(?P<time>minutes|runminutes)?"
    r"(?:per(?P<whom>job|node|user))?(?:limit|notsatisfied)?"
)
_ACCOUNT_FORM: Final = re.compile(rf"max{_RESOURCE}(?P<time>runmins)?per(?P<whom>account|user)")
_OWNERS: Final = {"qos": "the QOS", "assoc": "the account"}
_JOBS: Final = {
    "qosgrpjobslimit": "everybody of this QOS together runs as many jobs as it allows",
    "qosgrpsubmitjobslimit": "everybody of this QOS together has as many jobs as it allows",
    "qosgrpwalllimit": "everybody of this QOS together has used up its time",
    "qosmaxjobsperuserlimit": "you run as many jobs as the QOS allows",
    "qosmaxsubmitjobperuserlimit": "you have as many jobs as the QOS allows",
    "qosmaxwalldurationperjoblimit": "it asks for more time than the QOS allows",
    "assocgrpjobslimit": "the account runs as many jobs as it may",
    "assocgrpsubmitjobslimit": "the account has as many jobs as it may",
    "assocgrpwalllimit": "the account has used up its time",
    "assocmaxjobslimit": "you run as many jobs as the account allows",
    "assocmaxsubmitjoblimit": "you have as many jobs as the account allows",
    "assocmaxwalldurationperjoblimit": "it asks for more time than the account allows",
    "maxjobsperaccount": "the account runs as many jobs as the QOS allows",
    "maxsubmitjobsperaccount": "the account has as many jobs as the QOS allows",
}


def sentence(reasons: str) -> str:
    """Put reasons, parted by commas, into words; one that is not known is passed through.

    What follows one in Slurm's own words, such as the nodes of ReqNodeNotAvail, stays with it.
    """
    parts: list[tuple[str, str]] = []
    for reason in map(str.strip, printable(reasons).split(",")):
        words = _words(reason)
        if words or not parts:
            parts.append((words, reason))
        else:
            before, codes = parts[-1]
            parts[-1] = (before, f"{codes}, {reason}")
    return "; ".join(f"{words} ({codes})" if words else codes for words, codes in parts)


def _words(reason: str) -> str:
    name = reason.partition(":")[0]
    text = name.replace("_", " ")
    begun = (words for start, words in _BEGINNINGS.items() if text.startswith(start))
    return _SENTENCES.get(name) or next(begun, "") or _limit_sentence(name)


def _limit_sentence(reason: str) -> str:
    """Say which limit is in the way; "" for a reason that names none."""
    name = reason.lower()
    if name in _JOBS:
        return _JOBS[name]
    if match := _ACCOUNT_FORM.fullmatch(name):
        who = "the account" if match["whom"] == "account" else "you"
        return _too_much(who, match["what"], "the QOS allows", at_once=bool(match["time"]))
    if match := _FORM.fullmatch(name):
        return _of_owner(match)
    return ""


def _of_owner(match: re.Match[str]) -> str:
    owner, what = _OWNERS[match["owner"]], match["what"]
    if match["kind"] == "min":
        return f"it asks for less than the {_thing(what)} that {owner} demands"
    if match["kind"] == "grp":
        return _of_group(match["owner"], what, match["time"])
    if match["whom"] == "user":
        return _too_much("you", what, f"{owner} allows")
    asked = f"{_WHAT[what]}-minutes" if match["time"] else _thing(what)
    where = "on a node" if match["whom"] == "node" else "a job"
    return f"it asks for more {asked} than {owner} allows {where}"


def _of_group(owner: str, what: str, time: str | None) -> str:
    who = "everybody of this QOS together" if owner == "qos" else "the account"
    if time == "minutes":
        return f"{who} has used up its {_WHAT[what]}-minutes"
    limit = "it allows" if owner == "qos" else "it may"
    return _too_much(who, what, limit, at_once=time == "runminutes")


def _too_much(who: str, what: str, limit: str, *, at_once: bool = False) -> str:
    """Slurm counts what runs, and this job; of minutes, those that their time limits leave."""
    asked = f"{_WHAT[what]}-minutes at a time" if at_once else _thing(what)
    return f"with it {who} would use more {asked} than {limit}"


def _thing(what: str) -> str:
    noun = _WHAT[what]
    return f"{noun}s" if noun in _COUNTED else noun
