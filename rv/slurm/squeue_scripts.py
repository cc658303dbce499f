"""The questions that squeue is asked; `rv.slurm.squeue` reads the answers.

A row begins with the job id and the script's sentinel, so nobody can forge one with a job's name.
"""

import shlex
from collections.abc import Iterable
from typing import Final

from rv.slurm.script import exit_code_line

COLUMNS: Final = (
    "UserName", "Account", "QOS", "Partition", "State", "StartTime", "EndTime", "NodeList",
    "SchedNodes", "NumNodes", "NumCPUs", "tres-alloc", "tres-per-node", "tres-per-job",
)  # fmt: skip
OWN_COLUMNS: Final = (
    "State", "RestartCnt", "SubmitTime", "StartTime", "EndTime", "Partition", "NodeList", "Reason",
)  # fmt: skip
_WAITING_COLUMNS: Final = "PriorityLong:|,Partition:|,Reason:|"
_STATES: Final = "PENDING,RUNNING,SUSPENDED,COMPLETING,CONFIGURING"


def squeue_command(sentinel: str) -> str:
    """Return the command for everybody's jobs; a row is `ID<sentinel>|…|name|`."""
    columns = ",".join(f"{field}:|" for field in (*COLUMNS, "Name"))
    return f"squeue -a -h -t {_STATES} -O 'JobArrayID:{sentinel}|,{columns}'"


def squeue_waiting_script(sentinel: str) -> str:
    """Return the script that asks for everybody's waiting jobs with their priorities."""
    return (
        "timeout --foreground -k 1 20 squeue -a -h -t PENDING"
        f" -O 'JobArrayID:{sentinel}|,{_WAITING_COLUMNS}' </dev/null\n{exit_code_line(sentinel)}"
    )


def squeue_own_script(sentinel: str) -> str:
    """Return the script that asks for all jobs of the user in Slurm's memory, ended ones too."""
    return _own_script(sentinel, "")


def squeue_by_name_script(names: Iterable[str], sentinel: str) -> str:
    """Return the script that asks for the user's jobs with these names."""
    return _own_script(sentinel, f" --name={shlex.quote(','.join(names))}")


def squeue_work_folders_script(names: Iterable[str]) -> str:
    """Write the query for the working directories of the user's waiting jobs of these names."""
    quoted = shlex.quote(",".join(sorted(names)))
    return f"squeue --me -a -h -t PD --name={quoted} -o '%A %j %Z' </dev/null"


def _own_script(sentinel: str, option: str) -> str:
    # The sentinel also separates what is free text, so that none can move another.
    *plain, reason = OWN_COLUMNS
    columns = ",".join(f"{field}:|" for field in plain)
    free = f"{reason}:|{sentinel}|,Command:|{sentinel}|,Name:|"
    form = f"ArrayJobID:/,JobID:{sentinel}|,{columns},{free}"
    return (
        f"timeout --foreground -k 1 20 squeue --me -a -h -t all{option} -O '{form}' </dev/null\n"
        f"{exit_code_line(sentinel)}"
    )
