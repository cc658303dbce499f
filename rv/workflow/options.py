"""The options of a launch: names, meanings and defaults, for the command line, files and Python.

`rv.workflow.read_options` makes a request of them.
"""

import re
from typing import Annotated, Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.option import Option
from rv.models.request import DEFAULT_MAX_SUBMISSIONS, ChainSignal, Fanout, Layouts, Objective
from rv.models.site import Config

_NO_CONFIG: Final = Config()
_DIGITS: Final = 10
_RANGE: Final = re.compile(r"(\d{1,9})\s*-\s*(\d{1,9})", re.ASCII)


class GpuRange(int):
    """A number of GPUs; of a range such as 1-8 the larger, with the smaller as `least`."""

    least: int

    def __new__(cls, most: int, least: int) -> "GpuRange":
        """Make the number."""
        made = super().__new__(cls, most)
        made.least = least
        return made

    def __str__(self) -> str:
        """Write it as it is typed."""
        return f"{self.least}-{int(self)}" if self.least != self else super().__str__()


def gpu_count(text: str | int) -> int:
    """Read a number of GPUs, or a range. Raises `RvError(USAGE)`, which explains Slurm's TYPE:N."""
    word = str(text).strip()
    if word.isascii() and word.isdigit() and len(word) < _DIGITS:
        return int(word)
    if match := _RANGE.fullmatch(word):
        return _gpu_range(int(match[1]), int(match[2]))
    kind, _, count = word.rpartition(":")
    if kind and count.isdigit():
        kind = kind.removeprefix("gpu:")
        hint = f"write --gpu {count} --type {kind}"
        raise RvError(ErrorKind.USAGE, f"--gpu takes a number, not {word!r}", hint=hint)
    raise RvError(ErrorKind.USAGE, f"{word!r} is no number of GPUs", hint="write --gpu 4")


def _gpu_range(least: int, most: int) -> GpuRange:
    if not 0 < least <= most:
        smaller, larger = sorted((max(least, 1), max(most, 1)))
        raise RvError(
            ErrorKind.USAGE,
            f"{least}-{most} is no range of GPUs",
            hint=f"write the smaller first, from 1 on: --gpu {smaller}-{larger}",
        )
    return GpuRange(most, least)


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestOptions:
    """The shared options as typed, over the defaults of the configuration files.

    The command line is made of this class's annotations. `config` holds the files' defaults that
    are in use, and the facts of the site; `typed` names the options that were typed.
    """

    gpu: Annotated[
        int,
        Option("--gpu", "-g", parser=gpu_count, metavar="N[-M]", help="GPUs in all, or a range."),
    ] = 1
    type: Annotated[
        str, Option("--type", "-t", metavar="TYPE,…", help="GPU types, such as a100,h200.")
    ] = ""
    vram: Annotated[str, Option(metavar="SIZE", help="Least memory of each GPU, such as 40G.")] = ""
    time: Annotated[
        str,
        Option(
            "--time",
            metavar="TIME",
            help="Walltime, such as 90m, 2h, 1d12h; 2:59:00 unless given (accept: its profile's).",
        ),
    ] = ""
    work: Annotated[
        str,
        Option(
            "--work", metavar="Ngpuh[:TYPE]", help="The work, in GPU-hours of a model; see --for."
        ),
    ] = ""
    objective: Annotated[
        Objective,
        Option("--for", help="Rank by the expected start, finish, or cost."),
    ] = Objective.START
    min_time: Annotated[
        str,
        Option(metavar="TIME", help="Fit a backfill window with a shorter time, down to this."),
    ] = ""
    checkpoint: Annotated[
        bool,
        Option("--checkpoint", help="The command can resume: its time may come in segments."),
    ] = False
    checkpoint_buffer: Annotated[
        str,
        Option(metavar="TIME", help="Signal the command so long before a segment's end."),
    ] = ""
    checkpoint_signal: Annotated[
        ChainSignal, Option(help="The signal that means: save your work and end.")
    ] = ChainSignal.USR1
    switch: Annotated[
        bool,
        Option("--switch", help="Go on with a faster layout after a segment, where one is free."),
    ] = False
    mem: Annotated[str, Option(metavar="SIZE", help="Memory a node, such as 32G.")] = ""
    cpus: Annotated[int, Option(min=0, metavar="N", show_default=False, help="CPUs a node.")] = 0
    mig: Annotated[bool, Option("--mig", help="One MIG slice.")] = False
    partition: Annotated[
        str, Option("--partition", "-p", metavar="NAME,…", help="Only these partitions.")
    ] = ""
    account: Annotated[
        str, Option("--account", "-A", metavar="NAME", help="Account to charge.")
    ] = ""
    qos: Annotated[str, Option("--qos", "-q", metavar="NAME", help="Quality of service.")] = ""
    constraint: Annotated[
        str, Option("--constraint", "-C", metavar="FEATURES", help="Only nodes with these.")
    ] = ""
    exclude: Annotated[
        str, Option("--exclude", "-x", metavar="NODES", help="Nodes to leave out.")
    ] = ""
    no_avoid: Annotated[
        bool, Option("--no-avoid", help="Also nodes that acceptance found bad.")
    ] = False
    preemptible: Annotated[bool, Option("--preemptible", help="Also where jobs are preempted.")] = (
        False
    )
    power_up: Annotated[bool, Option("--power-up", help="Also nodes that are powered down.")] = (
        False
    )
    single_node: Annotated[bool, Option("--single-node", help="One node only.")] = False
    multi_node: Annotated[bool, Option("--multi-node", help="Several nodes only.")] = False
    layouts: Annotated[Layouts, Option(help="Splits over nodes: the narrowest (auto), or all.")] = (
        Layouts.AUTO
    )
    strict_gpu: Annotated[
        bool, Option("--strict-gpu", help="Refuse a node with another GPU model.")
    ] = False
    allow_busy_gpus: Annotated[
        bool, Option("--allow-busy-gpus", help="Also GPUs that others use at the moment.")
    ] = False
    name: Annotated[str, Option("--name", "-n", metavar="NAME", help="Name of the race.")] = ""
    fanout: Annotated[Fanout, Option(help="In waves (auto), or all at once (each).")] = Fanout.AUTO
    max_submissions: Annotated[int, Option(min=1, metavar="N", help="Jobs at most.")] = (
        DEFAULT_MAX_SUBMISSIONS
    )
    widen_after: Annotated[
        str,
        Option(
            metavar="TIME",
            help="Wait so long for the first job to start before sending the others.",
        ),
    ] = "5s"
    wait_timeout: Annotated[
        str, Option(metavar="TIME", help="Cancel when nothing has started by then.")
    ] = ""
    patience: Annotated[
        str, Option(metavar="TIME", help="Ask a silent controller again for so long.")
    ] = "60s"
    max_cost: Annotated[
        float | None,
        Option(min=0, metavar="X", help="Leave out what would cost more; see rv cost."),
    ] = None
    retry: Annotated[
        int, Option(min=0, metavar="N", help="Race again, N times, when a node is lost.")
    ] = 0
    notify: Annotated[
        list[str] | None,
        Option(
            "--notify",
            metavar="EVENTS=TARGET",
            help="Tell of start, end or fail: mail, a URL to POST to, or a command; repeatable.",
        ),
    ] = None
    modules: Annotated[
        str,
        Option(metavar="NAME,…", help="Environment modules to load before the command."),
    ] = ""
    env: Annotated[
        list[str] | None,
        Option(
            "--env", metavar="NAME[=VALUE]", help="A variable of the job; its value here, or this."
        ),
    ] = None
    setup: Annotated[
        list[str] | None,
        Option("--setup", metavar="LINE", help="Shell line before the command; repeatable."),
    ] = None
    venv: Annotated[
        str,
        Option(metavar="PATH|auto", help="Virtual environment there; auto builds it."),
    ] = ""
    conda: Annotated[str, Option(metavar="NAME|PATH", help="Conda environment there.")] = ""
    container: Annotated[
        str, Option(metavar="IMAGE", help="Run the command in this container image.")
    ] = ""
    container_mounts: Annotated[
        list[str] | None,
        Option(metavar="SRC[:DST[:ro]]", help="Folder to mount there; repeatable."),
    ] = None
    output: Annotated[
        list[str] | None,
        Option("--output", "-o", metavar="PATHS", help="Files for rv sync pull, such as runs/."),
    ] = None
    send: Annotated[
        list[str] | None,
        Option("--send", metavar="PATHS", help="Secrets that are sent with the code."),
    ] = None
    no_sync: Annotated[bool, Option("--no-sync", help="Send no code; run in your home there.")] = (
        False
    )
    sbatch: Annotated[
        list[str] | None,
        Option("--sbatch", metavar="K=V", help="Another sbatch option; repeatable."),
    ] = None
    cluster: Annotated[
        str,
        Option(metavar="WHERE", help="A name of rv config, local, sandbox[:NAME], or USER@HOST."),
    ] = ""
    snapshot: Annotated[
        str, Option(metavar="FILE", help="Plan on a saved cluster (rv snapshot).")
    ] = ""
    json: Annotated[bool, Option("--json", help="Answer in JSON.")] = False
    config: Config = _NO_CONFIG
    typed: frozenset[str] = frozenset()
