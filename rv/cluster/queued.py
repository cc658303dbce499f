"""Everybody's queued and running jobs, from one `squeue`."""

from typing import Final

from rv.cluster import tres, words
from rv.cluster.hostlist import expand
from rv.cluster.text import printable
from rv.models.job import job_state
from rv.models.snapshot import QueuedJob

_FIELDS: Final = (
    "UserName", "Account", "QOS", "Partition", "State", "StartTime", "EndTime", "NodeList",
    "SchedNodes", "NumNodes", "NumCPUs", "tres-alloc", "tres-per-node", "tres-per-job",
)  # fmt: skip
_STATES: Final = "PENDING,RUNNING,SUSPENDED,COMPLETING,CONFIGURING"


def squeue_line(sentinel: str) -> str:
    """Return the shell command; a row is `ID<sentinel>|…|name|`, and nobody can forge its start."""
    columns = ",".join(f"{field}:|" for field in (*_FIELDS, "Name"))
    return f"squeue -a -h -t {_STATES} -O 'JobArrayID:{sentinel}|,{columns}'"


def parse_queued(text: str, sentinel: str) -> tuple[QueuedJob, ...]:
    """Read the rows; what does not start as one is the rest of somebody's job name."""
    mark = f"{sentinel}|"
    jobs = []
    for line in text.split("\n"):
        job_id, _, rest = line.partition(mark)
        columns = rest.split("|", len(_FIELDS))
        if job_id[:1].isdigit() and len(columns) == len(_FIELDS) + 1:
            jobs.append(_job(job_id, columns))
    return tuple(jobs)


def _job(job_id: str, columns: list[str]) -> QueuedJob:
    value = dict(zip(_FIELDS, columns, strict=False))
    counted = tres.parse_tres(value["tres-alloc"])
    gpus, gpu_type = _gpus(value, counted)
    return QueuedJob(
        job_id=job_id,
        user=words.word(value["UserName"]),
        partition=value["Partition"],
        state=job_state(value["State"]),
        account=words.word(value["Account"]),
        qos=words.word(value["QOS"]),
        nodes=expand(value["NodeList"]),
        planned_nodes=expand(value["SchedNodes"]),
        start=words.time(value["StartTime"]),
        end=words.time(value["EndTime"]),
        cpus=words.number(value["NumCPUs"]) or 0,
        memory_mib=dict(counted).get("mem", 0),
        gpus=gpus,
        gpu_type=gpu_type,
        name=printable(columns[-1].removesuffix("|")),
    )


def _gpus(value: dict[str, str], counted: tuple[tuple[str, int], ...]) -> tuple[int, str]:
    """Count GPUs by TRES, or by the request where the site does not account for GPUs."""
    per_node, node_types = tres.gpus_asked(value["tres-per-node"])
    per_job, job_types = tres.gpus_asked(value["tres-per-job"])
    asked = per_job or per_node * (words.number(value["NumNodes"]) or 1)
    named = {name.removeprefix("gres/gpu:") for name, _ in counted if name.startswith("gres/gpu:")}
    types = node_types | job_types or named
    return tres.gpus_allocated(counted) or asked, next(iter(types)) if len(types) == 1 else ""
