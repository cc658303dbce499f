"""What the user wants run, and what its launcher says about layouts."""

from dataclasses import dataclass
from enum import StrEnum


class Launcher(StrEnum):
    """Who starts the ranks of a command."""

    PLAIN = "plain"
    TORCHRUN = "torchrun"
    ACCELERATE = "accelerate"
    DEEPSPEED = "deepspeed"
    MPI = "mpi"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pins:
    """Layout that the command itself fixes, such as `--nproc_per_node=4`; None where it is free."""

    processes_per_node: int | None = None
    nodes: int | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A command as the job's shell will run it.

    `line` is shell text, `typed` what the user wrote; `payload` names a bundled payload that it
    runs; `local_files` are the existing files of the working directory that it mentions.
    """

    line: str
    typed: str = ""
    launcher: Launcher = Launcher.PLAIN
    pins: Pins = Pins()
    payload: str = ""
    local_files: tuple[str, ...] = ()
