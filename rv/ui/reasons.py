"""Slurm's reasons for a pending job, as sentences (squeue(1), "JOB REASON CODES")."""

from typing import Final

from rv.slurm.text import printable
from rv.ui.limits import limit_sentence

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
    "launch failed requeued held": "held: its last start failed",
    "Job's account not permitted to use this": "its account may not use the partition",
    "Job's QOS not permitted to use this part": "its QOS may not use the partition",
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
            before, said = parts[-1]
            parts[-1] = (before, f"{said}, {reason}")
    return "; ".join(f"{words} ({said})" if words else said for words, said in parts)


def _words(reason: str) -> str:
    name = reason.partition(":")[0]
    return _SENTENCES.get(name) or _SENTENCES.get(name.replace("_", " ")) or limit_sentence(name)
