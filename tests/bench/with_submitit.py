"""What a user of submitit writes. Runs in an environment that has submitit, and nothing of rv.

    python with_submitit.py start FOLDER PARTITIONS GPUS MINUTES COMMAND...
    python with_submitit.py submit FOLDER COUNT
    python with_submitit.py send FOLDER
    python with_submitit.py wait FOLDER

`start` sends a command; `submit` sends so many empty jobs, held back for an hour, as one array, and
prints the seconds that took after the import; `send` sends one, and `wait` waits for its result.
"""

import sys
import time
from pathlib import Path

import submitit


def start(folder, partitions, gpus, minutes, *command):
    """Send a command that wants GPUs on one node."""
    executor = submitit.AutoExecutor(folder=folder, cluster="slurm")
    executor.update_parameters(
        nodes=1,
        timeout_min=int(minutes),
        slurm_partition=partitions,
        slurm_gres=f"gpu:{gpus}",
        slurm_cpus_per_gpu=4,
        slurm_mem_per_gpu="50G",
        slurm_additional_parameters={"no-requeue": True},
    )
    executor.submit(submitit.helpers.CommandFunction(list(command)))


def submit(folder, count):
    """Send jobs, as an array where there are several: submitit's own way."""
    executor = _cpu_executor(folder)
    executor.update_parameters(slurm_additional_parameters={"begin": "now+1hour"})
    began = time.monotonic()
    executor.map_array(abs, range(int(count)))
    print(time.monotonic() - began)


def send(folder):
    """Send one job."""
    job = _cpu_executor(folder).submit(abs, -1)
    (Path(folder) / "job").write_text(job.job_id)


def wait(folder):
    """Wait for the result of what was sent."""
    submitit.SlurmJob(folder, (Path(folder) / "job").read_text()).result()


def _cpu_executor(folder):
    executor = submitit.AutoExecutor(folder=folder, cluster="slurm")
    executor.update_parameters(timeout_min=5, slurm_gres="gpu:1", slurm_mem="1G")
    return executor


if __name__ == "__main__":
    {"start": start, "submit": submit, "send": send, "wait": wait}[sys.argv[1]](*sys.argv[2:])
