"""Everybody's queued and running jobs, from one `squeue`."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rv.models.job import job_state
from rv.models.snapshot import QueuedJob
from rv.slurm import tres, words
from rv.slurm.hostlist import Expander
from rv.slurm.text import printable

_FIELDS: Final = (
    "UserName", "Account", "QOS", "Partition", "State", "StartTime", "EndTime", "NodeList",
    "SchedNodes", "NumNodes", "NumCPUs", "tres-alloc", "tres-per-node", "tres-per-job",
)  # fmt: skip
_TYPED: Final = "gres/gpu:"
_STATES: Final = "PENDING,RUNNING,SUSPENDED,COMPLETING,CONFIGURING"


def squeue_line(sentinel: str) -> str:
    """Return the shell command; a row is `ID<sentinel>|…|name|`, and nobody can forge its start."""
    columns = ",".join(f"{field}:|" for field in (*_FIELDS, "Name"))
    return f"squeue -a -h -t {_STATES} -O 'JobArrayID:{sentinel}|,{columns}'"


def parse_queued(text: str, sentinel: str) -> tuple[QueuedJob, ...]:
    """Read the rows; what does not start as one is the rest of somebody's job name."""
    mark = f"{sentinel}|"
    lists = Expander()
    jobs = []
    for line in text.split("\n"):
        job_id, _, rest = line.partition(mark)
        columns = rest.split("|", len(_FIELDS))
        if job_id[:1].isdigit() and len(columns) == len(_FIELDS) + 1:
            jobs.append(_job(job_id, columns, lists))
    return tuple(jobs)


def _job(job_id: str, columns: list[str], lists: Expander) -> QueuedJob:
    value = dict(zip(_FIELDS, columns, strict=False))
    held = _held(value["tres-alloc"])
    gpus, gpu_type = _gpus(value, held)
    return QueuedJob(
        job_id=job_id,
        user=words.word(value["UserName"]),
        partition=value["Partition"],
        state=job_state(value["State"]),
        account=words.word(value["Account"]),
        qos=words.word(value["QOS"]),
        nodes=lists.expand(value["NodeList"]),
        planned_nodes=lists.expand(value["SchedNodes"]),
        start=words.time(value["StartTime"]),
        end=words.time(value["EndTime"]),
        cpus=words.number(value["NumCPUs"]) or 0,
        memory_mib=held.memory_mib,
        gpus=gpus,
        gpu_type=gpu_type,
        name=printable(columns[-1].removesuffix("|")),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Held:
    """What a job's TRES count: memory in MiB, and GPUs, whose types may be named."""

    memory_mib: int
    gpus: int
    types: frozenset[str]


# Most jobs ask for what some other job asks for.
@lru_cache(maxsize=4096)
def _held(text: str) -> _Held:
    counted = tres.parse_tres(text)
    named = [name for name, _ in counted if name.startswith(_TYPED)]
    return _Held(
        memory_mib=dict(counted).get("mem", 0),
        gpus=tres.gpus_allocated(counted),
        types=frozenset(name.removeprefix(_TYPED) for name in named),
    )


@lru_cache(maxsize=4096)
def _asked(text: str) -> tuple[int, frozenset[str]]:
    return tres.gpus_asked(text)


def _gpus(value: dict[str, str], held: _Held) -> tuple[int, str]:
    """Count GPUs by TRES, or by the request where the site does not account for GPUs."""
    per_node, node_types = _asked(value["tres-per-node"])
    per_job, job_types = _asked(value["tres-per-job"])
    asked = per_job or per_node * (words.number(value["NumNodes"]) or 1)
    types = node_types | job_types or held.types
    return held.gpus or asked, next(iter(types)) if len(types) == 1 else ""
