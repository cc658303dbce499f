"""The options that commands share, written once, and the request that they make."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import Annotated, Any, Final, TypeVar

import typer

from rv.cli.app import show_help_without_command
from rv.errors import ErrorKind, RvError
from rv.models.command import Command
from rv.models.quantities import parse_duration, parse_memory_mib, short_duration
from rv.models.request import (
    DEFAULT_MAX_SUBMISSIONS,
    DEFAULT_WALLTIME,
    ChainSignal,
    Fanout,
    Layouts,
    NodeLimit,
    Request,
)
from rv.models.site import Config
from rv.slurm.hostlist import expand

T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_KEY: Final = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_MODULE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+:@-]{0,127}", re.ASCII)
_NODES: Final = re.compile(r"[A-Za-z0-9._,\[\]-]+", re.ASCII)
_LEAST_BUFFER: Final = timedelta(seconds=20)
_MOST_BUFFER: Final = timedelta(hours=12)
_OWNED: Final = frozenset(
    {
        "account", "array", "chdir", "comment", "constraint", "cpus-per-gpu", "cpus-per-task",
        "dependency", "error", "exclude", "export", "export-file", "get-user-env", "gpus",
        "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "help", "input", "job-name",
        "kill-on-invalid-dep", "mem", "mem-per-cpu", "mem-per-gpu", "no-requeue", "nodes",
        "ntasks", "ntasks-per-node", "open-mode", "output", "parsable", "partition", "qos",
        "quiet", "requeue", "signal", "test-only", "time", "time-min", "uid", "gid", "usage",
        "version", "wait", "wrap",
    }
)  # fmt: skip
"""sbatch options that rv writes itself, or that would break the race."""

_NO_CONFIG: Final = Config()

ClusterOption = Annotated[
    str, typer.Option("--cluster", metavar="WHERE", help="local, or sandbox[:NAME].")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


def command_app(**settings: Any) -> typer.Typer:
    """Return an application for the commands of one module, which `rv.cli.app` finds as `app`."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, **settings)


def group_app(summary: str) -> typer.Typer:
    """Return an application for a command that has commands of its own."""
    return command_app(
        help=summary, invoke_without_command=True, callback=show_help_without_command
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestOptions:
    """The shared options as typed, over the defaults of the configuration files.

    `typer` reads this class's annotations. `config` holds the files' defaults that are in use, and
    the facts of the site.
    """

    gpu: Annotated[int, typer.Option("--gpu", "-g", min=0, metavar="N", help="GPUs in all.")] = 1
    type: Annotated[
        str, typer.Option("--type", "-t", metavar="TYPE,…", help="GPU types, such as a100,h200.")
    ] = ""
    vram: Annotated[
        str, typer.Option(metavar="SIZE", help="Least memory of each GPU, such as 40G.")
    ] = ""
    time: Annotated[
        str,
        typer.Option(
            "--time",
            metavar="TIME",
            help="Walltime, such as 90m, 2h, 1d12h or 2:59:00; 2:59:00 unless given.",
        ),
    ] = ""
    min_time: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Fit a backfill window with a shorter time, down to this."
        ),
    ] = ""
    checkpoint: Annotated[
        bool,
        typer.Option("--checkpoint", help="The command can resume: its time may come in segments."),
    ] = False
    checkpoint_buffer: Annotated[
        str,
        typer.Option(metavar="TIME", help="Signal the command so long before a segment's end."),
    ] = ""
    checkpoint_signal: Annotated[
        ChainSignal, typer.Option(help="The signal that means: save your work and end.")
    ] = ChainSignal.USR1
    mem: Annotated[str, typer.Option(metavar="SIZE", help="Memory a node, such as 32G.")] = ""
    cpus: Annotated[
        int, typer.Option(min=0, metavar="N", show_default=False, help="CPUs a node.")
    ] = 0
    mig: Annotated[bool, typer.Option("--mig", help="One MIG slice.")] = False
    partition: Annotated[
        str, typer.Option("--partition", "-p", metavar="NAME,…", help="Only these partitions.")
    ] = ""
    account: Annotated[
        str, typer.Option("--account", "-A", metavar="NAME", help="Account to charge.")
    ] = ""
    qos: Annotated[str, typer.Option("--qos", "-q", metavar="NAME", help="Quality of service.")] = (
        ""
    )
    constraint: Annotated[
        str, typer.Option("--constraint", "-C", metavar="FEATURES", help="Only nodes with these.")
    ] = ""
    exclude: Annotated[
        str, typer.Option("--exclude", "-x", metavar="NODES", help="Nodes to leave out.")
    ] = ""
    no_avoid: Annotated[
        bool, typer.Option("--no-avoid", help="Also nodes that acceptance found bad.")
    ] = False
    preemptible: Annotated[
        bool, typer.Option("--preemptible", help="Also where jobs are preempted.")
    ] = False
    power_up: Annotated[
        bool, typer.Option("--power-up", help="Also nodes that are powered down.")
    ] = False
    single_node: Annotated[bool, typer.Option("--single-node", help="One node only.")] = False
    multi_node: Annotated[bool, typer.Option("--multi-node", help="Several nodes only.")] = False
    layouts: Annotated[
        Layouts, typer.Option(help="Splits over nodes: the narrowest (auto), or all.")
    ] = Layouts.AUTO
    strict_gpu: Annotated[
        bool, typer.Option("--strict-gpu", help="Refuse a node with another GPU model.")
    ] = False
    name: Annotated[str, typer.Option("--name", "-n", metavar="NAME", help="Name of the race.")] = (
        ""
    )
    fanout: Annotated[Fanout, typer.Option(help="In waves (auto), or all at once (each).")] = (
        Fanout.AUTO
    )
    max_submissions: Annotated[int, typer.Option(min=1, metavar="N", help="Jobs at most.")] = (
        DEFAULT_MAX_SUBMISSIONS
    )
    widen_after: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Wait so long for the first job to start before sending the others.",
        ),
    ] = "5s"
    wait_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Cancel when nothing has started by then.")
    ] = ""
    max_cost: Annotated[
        float | None,
        typer.Option(min=0, metavar="X", help="Leave out what would cost more; see rv cost."),
    ] = None
    retry: Annotated[
        int, typer.Option(min=0, metavar="N", help="Race again, N times, when a node is lost.")
    ] = 0
    modules: Annotated[
        str,
        typer.Option(metavar="NAME,…", help="Environment modules to load before the command."),
    ] = ""
    sbatch: Annotated[
        list[str] | None,
        typer.Option("--sbatch", metavar="K=V", help="Another sbatch option; repeatable."),
    ] = None
    cluster: Annotated[str, typer.Option(metavar="WHERE", help="local, or sandbox[:NAME].")] = ""
    snapshot: Annotated[
        str, typer.Option(metavar="FILE", help="Plan on a saved cluster (rv snapshot).")
    ] = ""
    json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False
    config: Config = _NO_CONFIG


def build_request(options: RequestOptions, command: Command | None) -> Request:
    """Read the options as typed. Raises `RvError(USAGE)` for what makes no sense."""
    _check_together(options)
    walltime = _optional(parse_duration, options.time) or DEFAULT_WALLTIME
    return Request(
        gpus=options.gpu,
        types=_words(options.type),
        min_vram_mib=_optional(parse_memory_mib, options.vram),
        walltime=walltime,
        walltime_given=bool(options.time),
        min_walltime=_min_walltime(options.min_time, walltime),
        checkpoint=options.checkpoint,
        checkpoint_buffer=_buffer(options.checkpoint_buffer),
        checkpoint_signal=options.checkpoint_signal,
        memory_mib=_optional(parse_memory_mib, options.mem),
        cpus=options.cpus or None,
        mig=options.mig,
        partitions=_words(options.partition),
        account=_plain("--account", options.account),
        qos=_plain("--qos", options.qos),
        exclude_nodes=_nodes(options.exclude),
        no_avoid=options.no_avoid,
        constraint=options.constraint.strip(),
        preemptible=options.preemptible,
        power_up=options.power_up,
        node_limit=_node_limit(options),
        layouts=options.layouts,
        strict_gpu=options.strict_gpu,
        command=command,
        name=_race_name(options.name),
        modules=_modules(options.modules),
        sbatch=tuple(_extra(text) for text in options.sbatch or ()),
        fanout=options.fanout,
        max_submissions=_at_least_one(options.max_submissions),
        widen_after=_seconds(options.widen_after),
        wait_timeout=_optional(_seconds, options.wait_timeout),
        max_cost=_cost(options.max_cost),
        retry=options.retry,
    )


def _check_together(options: RequestOptions) -> None:
    if options.single_node and options.multi_node:
        raise RvError(
            ErrorKind.USAGE,
            "--single-node and --multi-node exclude each other",
            hint="give one of them",
        )
    if not options.gpu and (options.type or options.vram or options.mig):
        raise RvError(
            ErrorKind.USAGE,
            "--gpu 0 asks for no GPU, and --type, --vram and --mig for a certain one",
            hint="leave one of them out",
        )


def _optional(parse: Callable[[str], T], text: str) -> T | None:
    return parse(text) if text else None


def _min_walltime(text: str, walltime: timedelta) -> timedelta | None:
    least = _optional(parse_duration, text)
    if least is not None and least > walltime:
        raise RvError(
            ErrorKind.USAGE,
            f"--min-time {short_duration(least)} is above the time of {short_duration(walltime)}",
            hint="give a longer --time, or leave --min-time out",
        )
    return least


def _buffer(text: str) -> timedelta | None:
    buffer = _optional(_seconds, text)
    if buffer is not None and not _LEAST_BUFFER <= buffer <= _MOST_BUFFER:
        raise RvError(
            ErrorKind.USAGE,
            f"--checkpoint-buffer {text} is out of range",
            hint=f"from {short_duration(_LEAST_BUFFER)} to {short_duration(_MOST_BUFFER)}",
        )
    return buffer


def _seconds(text: str) -> timedelta:
    """Waiting times are short: a bare number is seconds, unlike Slurm's minutes."""
    return parse_duration(f"{text}s" if text.strip().isdigit() and int(text) else text)


def _at_least_one(jobs: int) -> int:
    if jobs < 1:
        raise RvError(
            ErrorKind.USAGE, "max-submissions must be 1 or more", hint="leave it out for 12"
        )
    return jobs


def _cost(most: float | None) -> float | None:
    if most is not None and not 0 <= most < inf:  # NaN is below nothing
        raise RvError(ErrorKind.USAGE, f"{most} is no cost", hint="rv cost shows what there is")
    return most


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _node_limit(options: RequestOptions) -> NodeLimit:
    if options.single_node:
        return NodeLimit.SINGLE
    return NodeLimit.MULTI if options.multi_node else NodeLimit.ANY


def _plain(option: str, text: str) -> str:
    if text and not _NAME.fullmatch(text):
        raise RvError(
            ErrorKind.USAGE, f"{text!r} is no value for {option}", hint="see sacctmgr show assoc"
        )
    return text


def _nodes(text: str) -> tuple[str, ...]:
    if text and not _NODES.fullmatch(text):
        raise RvError(ErrorKind.USAGE, f"{text!r} names no nodes", hint="write --exclude a1,b[2-4]")
    return expand(text)


def _race_name(text: str) -> str:
    if text and not _NAME.fullmatch(text):
        raise RvError(
            ErrorKind.USAGE,
            f"{text!r} is no name for a race",
            hint="use letters, digits, dot, dash and underscore, 64 at most",
        )
    return text


def _modules(text: str) -> tuple[str, ...]:
    names = _words(text)
    for name in names:
        if not _MODULE.fullmatch(name):
            raise RvError(
                ErrorKind.USAGE, f"{name!r} is no name of a module", hint="module avail lists them"
            )
    return names


def _extra(text: str) -> tuple[str, str]:
    key, _, value = text.removeprefix("--").partition("=")
    if not _KEY.fullmatch(key):
        raise RvError(ErrorKind.USAGE, f"{text!r} is no sbatch option", hint="write --sbatch K=V")
    if key in _OWNED:
        raise RvError(
            ErrorKind.USAGE,
            f"--sbatch {key} is rv's own to set",
            hint="rv up --help lists the options for GPUs, time, memory, nodes and accounts",
        )
    return key, value
