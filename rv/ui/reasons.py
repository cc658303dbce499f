"""Slurm's reasons for a pending job, as sentences (squeue(1), "JOB REASON CODES")."""

from typing import Final

_SENTENCES: Final = {
    "Resources": "next in line for nodes that are busy",
    "Priority": "others are ahead in the queue",
    "BeginTime": "held back until its begin time",
    "Dependency": "another job must end first",
    "DependencyNeverSatisfied": "the job it depends on will never end well",
    "JobHeldUser": "held by its user (scontrol release lets it go)",
    "JobHeldAdmin": "held by an administrator",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "PartitionNodeLimit": "it asks for more nodes than the partition allows",
    "PartitionTimeLimit": "it asks for more time than the partition allows",
    "NodeDown": "a node that it needs is down",
    "Reservation": "its reservation has not begun",
    "ReservationDeleted": "its reservation was deleted",
    "Licenses": "it waits for licenses",
    "Cleaning": "its earlier run is being cleaned up",
    "Prolog": "the site's prolog is running",
    "BadConstraints": "no node has the features it asks for",
    "AssociationJobLimit": "the account runs as many jobs as it may",
    "AssocGrpGRES": "the account uses as many GPUs as it may",
    "AssocGrpCpuLimit": "the account uses as many CPUs as it may",
    "AssocGrpMemLimit": "the account uses as much memory as it may",
    "AssocGrpBillingMinutes": "the account has used up its allowance",
    "AssocMaxJobsLimit": "you run as many jobs as the account allows",
    "AssocMaxSubmitJobLimit": "you have as many jobs as the account allows",
    "QOSGrpGRES": "everybody of this QOS together uses as many GPUs as it allows",
    "QOSGrpCpuLimit": "everybody of this QOS together uses as many CPUs as it allows",
    "QOSMaxGRESPerUser": "you use as many GPUs as the QOS allows",
    "QOSMaxGRESPerJob": "it asks for more GPUs than the QOS allows a job",
    "QOSMaxCpuPerJobLimit": "it asks for more CPUs than the QOS allows a job",
    "QOSMaxCpuPerUserLimit": "you use as many CPUs as the QOS allows",
    "QOSMaxMemoryPerJob": "it asks for more memory than the QOS allows a job",
    "QOSMaxMemoryPerUser": "you use as much memory as the QOS allows",
    "QOSMaxJobsPerUserLimit": "you run as many jobs as the QOS allows",
    "QOSMaxSubmitJobPerUserLimit": "you have as many jobs as the QOS allows",
    "QOSMaxWallDurationPerJobLimit": "it asks for more time than the QOS allows",
    "QOSMaxNodePerUserLimit": "you use as many nodes as the QOS allows",
    "QOSUsageThreshold": "the QOS does not take more use now",
    "MaxMemPerLimit": "it asks for more memory than the partition allows",
    "InvalidQOS": "its QOS is not valid",
    "InvalidAccount": "its account is not valid",
}


def sentence(reasons: str) -> str:
    """Put reasons, parted by commas, into words; one that is not known is passed through."""
    first, *rest = [reason.strip() for reason in reasons.split(",")]
    if rest and first not in _SENTENCES:  # one reason with a tail, such as ReqNodeNotAvail, …
        return reasons
    return "; ".join(f"{_SENTENCES.get(r, r)} ({r})" for r in (first, *rest))
