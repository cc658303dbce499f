"""What a call finds out on its node: which task it is, of how many, on which nodes."""

import os
from typing import Final, Self

from rv.errors import ErrorKind, RvError

RANK: Final = "RANK"
LOCAL_RANK: Final = "LOCAL_RANK"
WORLD_SIZE: Final = "WORLD_SIZE"
LOCAL_WORLD_SIZE: Final = "LOCAL_WORLD_SIZE"


class JobEnvironment:
    """The job that this process runs in. Raises `RvError(USAGE)` outside of any."""

    def __init__(self) -> None:
        if not self.activated():
            raise RvError(
                ErrorKind.USAGE, "this process runs in no race", hint="rv.Executor.submit(…)"
            )

    @staticmethod
    def activated() -> bool:
        """Whether this process runs in a job of rv's."""
        return "RV_RACE" in os.environ

    @property
    def job_id(self) -> str:
        """The race's id, as `Job.job_id` has it."""
        return os.environ["RV_RACE"]

    @property
    def raw_job_id(self) -> str:
        """Slurm's own number of the job; another in each segment."""
        return os.environ["SLURM_JOB_ID"]

    @property
    def hostname(self) -> str:
        """This node."""
        return os.uname().nodename

    @property
    def hostnames(self) -> list[str]:
        """All nodes of the job, in Slurm's order."""
        from rv.slurm.hostlist import expand

        return list(expand(os.environ.get("SLURM_JOB_NODELIST", ""))) or [self.hostname]

    @property
    def num_nodes(self) -> int:
        """How many nodes it has."""
        return int(os.environ.get("NNODES", "1"))

    @property
    def node(self) -> int:
        """Which of them this is, from 0."""
        return int(os.environ.get("NODE_RANK") or "0")

    @property
    def num_tasks(self) -> int:
        """How many tasks there are on all nodes."""
        return int(os.environ.get(WORLD_SIZE, "1"))

    @property
    def global_rank(self) -> int:
        """Which of them this is, from 0."""
        return int(os.environ.get(RANK, "0"))

    @property
    def local_rank(self) -> int:
        """Which task of this node this is, from 0."""
        return int(os.environ.get(LOCAL_RANK, "0"))

    def __repr__(self) -> str:
        return (
            f"JobEnvironment(job_id={self.job_id}, node={self.node}/{self.num_nodes},"
            f" global_rank={self.global_rank}/{self.num_tasks}, local_rank={self.local_rank})"
        )


class TorchDistributedEnvironment:
    """The variables from which `torch.distributed.init_process_group()` reads where it is."""

    def __init__(self) -> None:
        environment = JobEnvironment()
        self.master_addr = os.environ["MASTER_ADDR"]
        self.master_port = int(os.environ["MASTER_PORT"])
        self.rank = environment.global_rank
        self.local_rank = environment.local_rank
        self.world_size = environment.num_tasks
        self.local_world_size = int(os.environ.get(LOCAL_WORLD_SIZE, "1"))

    def export(self, *, set_cuda_visible_devices: bool = True) -> Self:
        """Narrow CUDA to this task's own GPU; the other variables are set in each task already."""
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if set_cuda_visible_devices and self.local_rank < len(devices) > 1:
            os.environ["CUDA_VISIBLE_DEVICES"] = devices[self.local_rank]
        return self
