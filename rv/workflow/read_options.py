"""From the options, as they were typed or set in a file, to a request."""

import re
from collections.abc import Callable
from datetime import timedelta
from math import inf
from typing import Final, TypeVar

from rv.errors import ErrorKind, RvError
from rv.models.notice import read_notice
from rv.models.quantities import parse_duration, parse_sized_memory_mib, short_duration
from rv.models.request import DEFAULT_WALLTIME, Command, NodeLimit, Objective, Request, Work
from rv.workflow.environments import with_surroundings
from rv.workflow.options import GpuRange, RequestOptions

T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)

_WORK: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*gpuh(?::([\w.-]{1,64}))?", re.ASCII | re.I)
_MOST_SIZES: Final = 8

_KEY: Final = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)

_NODES: Final = re.compile(r"[A-Za-z0-9._,\[\]-]+", re.ASCII)

_TIME: Final = re.compile(r"(\d+[dhms])+|\d+(-\d+)?(:\d+){1,2}|\d+-\d+", re.ASCII)

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


def build_request(options: RequestOptions, command: Command | None) -> Request:
    """Read the options as typed. Raises `RvError(USAGE)` for what makes no sense."""
    _check_together(options)
    check_work(options)
    sizes = sizes_of(options.gpu, command)
    walltime = _optional(parse_duration, options.time) or DEFAULT_WALLTIME
    request = Request(
        gpus=sizes[-1] if sizes else int(options.gpu),
        sizes=sizes,
        work=work_of(options.work),
        objective=options.objective,
        types=gpu_types(options.type),
        min_vram_mib=_optional(parse_sized_memory_mib, options.vram),
        walltime=walltime,
        walltime_given=bool(options.time),
        min_walltime=least_walltime(_optional(parse_duration, options.min_time), walltime),
        checkpoint=options.checkpoint,
        checkpoint_buffer=_buffer(options.checkpoint_buffer),
        checkpoint_signal=options.checkpoint_signal,
        switch=options.switch,
        memory_mib=_optional(parse_sized_memory_mib, options.mem),
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
        allow_busy_gpus=options.allow_busy_gpus,
        command=command,
        name=_race_name(options.name),
        sbatch=tuple(_extra(text) for text in options.sbatch or ()),
        fanout=options.fanout,
        max_submissions=_at_least_one(options.max_submissions),
        widen_after=waiting_time(options.widen_after),
        wait_timeout=_optional(waiting_time, options.wait_timeout),
        max_cost=_cost(options.max_cost),
        retry=options.retry,
        notices=tuple(read_notice(text) for text in options.notify or ()),
        outputs=tuple(output_pattern(text) for text in options.output or ()),
    )
    _check_switch(request)
    return with_surroundings(request, options)


def _check_switch(request: Request) -> None:
    """Refuse a change of the layout where none can come. Raises `RvError(USAGE)`."""
    if not request.switch:
        return
    if not request.checkpoint:
        raise RvError(
            ErrorKind.USAGE,
            "--switch changes the layout between segments, and the command has one",
            hint="add --checkpoint for a command that can resume",
        )
    if not request.is_timed:
        raise RvError(
            ErrorKind.USAGE,
            "--switch needs to know which layout is faster",
            hint="add --for finish, or --work 12gpuh",
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


def least_walltime(least: timedelta | None, walltime: timedelta) -> timedelta | None:
    """Return the least time that a backfill window is to have. Raises `RvError(USAGE)`."""
    if least is not None and least > walltime:
        raise RvError(
            ErrorKind.USAGE,
            f"--min-time {short_duration(least)} is above the time of {short_duration(walltime)}",
            hint="give a longer --time, or leave --min-time out",
        )
    return least


def _buffer(text: str) -> timedelta | None:
    buffer = _optional(waiting_time, text)
    if buffer is not None and not _LEAST_BUFFER <= buffer <= _MOST_BUFFER:
        raise RvError(
            ErrorKind.USAGE,
            f"--checkpoint-buffer {text} is out of range",
            hint=f"from {short_duration(_LEAST_BUFFER)} to {short_duration(_MOST_BUFFER)}",
        )
    return buffer


def waiting_time(text: str) -> timedelta:
    """Waiting times are short: a bare number is seconds, unlike Slurm's minutes."""
    return parse_duration(f"{text}s" if text.strip().isdigit() and int(text) else text)


def patience_s(options: RequestOptions) -> float:
    """Return for how many seconds a controller that is silent is asked again; 0 for once."""
    text = options.patience.strip()
    return 0.0 if text in ("0", "0s") else waiting_time(text).total_seconds()


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


def gpu_types(text: str) -> tuple[str, ...]:
    """Read the GPU types. Raises `RvError(USAGE)` for a time: Slurm's -t is its --time."""
    names = _words(text)
    for name in names:
        if _TIME.fullmatch(name):
            raise RvError(
                ErrorKind.USAGE,
                f"-t is --type here, and {name} is no GPU type",
                hint=f"write --time {name}",
            )
    return names


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
    if not text:
        return ()
    if not _NODES.fullmatch(text):
        raise RvError(ErrorKind.USAGE, f"{text!r} names no nodes", hint="write --exclude a1,b[2-4]")
    from rv.slurm.hostlist import expand

    return expand(text)


def _race_name(text: str) -> str:
    if text and not _NAME.fullmatch(text):
        raise RvError(
            ErrorKind.USAGE,
            f"{text!r} is no name for a race",
            hint="use letters, digits, dot, dash and underscore, 64 at most",
        )
    return text


def output_pattern(text: str) -> str:
    """Read a pattern of results, as find prints paths: runs for ./runs/, and . for the folder.

    Raises `RvError(USAGE)` for one that leads out of the code.
    """
    parts = text.split("/")
    if not text.strip("/") or text.startswith("/") or ".." in parts:
        raise RvError(
            ErrorKind.USAGE,
            f"{text!r} names nothing below the folder of the command",
            hint="write --output runs/ or --output 'ckpt/*.pt'",
        )
    return "/".join(part for part in parts if part not in ("", ".")) or "."


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


def work_of(text: str) -> Work | None:
    """Read work such as `12gpuh` or `12gpuh:h100`; None for "". Raises `RvError(USAGE)`."""
    if not text:
        return None
    match = _WORK.fullmatch(text.strip())
    if match is None or not float(match[1]):
        hours = re.fullmatch(r"([1-9]\d{0,8})[A-Za-z]*(:.*)?", text.strip(), re.ASCII)
        raise RvError(
            ErrorKind.USAGE,
            f"{text[:40]!r} is no amount of work",
            hint=f"write --work {hours[1] if hours else 12}gpuh, GPU-hours, or 12gpuh:a100-80",
        )
    return Work(gpu_hours=float(match[1]), reference=match[2] or "")


def sizes_of(gpus: int, command: Command | None) -> tuple[int, ...]:
    """Return the numbers of GPUs to look for in a range, () for a single number.

    They are its ends and the powers of two between; where the command pins the processes of a node
    or the nodes, the multiples of that. Raises `RvError(USAGE)` for more than eight.
    """
    if not isinstance(gpus, GpuRange) or gpus.least == gpus:
        return ()
    unit = _pinned(command)
    wanted = _powers(gpus) if unit == 1 else range(-(-gpus.least // unit) * unit, gpus + 1, unit)
    if not wanted:
        _refuse(f"the command pins {unit} GPUs, and --gpu {gpus} has no multiple of it")
    if len(wanted) > _MOST_SIZES:
        _refuse(f"--gpu {gpus} is {len(wanted)} sizes, and {_MOST_SIZES} are the most")
    return tuple(wanted)


def _powers(gpus: GpuRange) -> list[int]:
    """Return the ends of a range and the powers of two between."""
    powers = (1 << power for power in range(gpus.least.bit_length(), gpus.bit_length()))
    return sorted({gpus.least, *(size for size in powers if size < gpus), int(gpus)})


def _refuse(message: str) -> None:
    raise RvError(ErrorKind.USAGE, message, hint="write a range such as --gpu 4-32")


def _pinned(command: Command | None) -> int:
    """Return of how many GPUs the command takes a multiple: 1 where it pins nothing."""
    if command is None:
        return 1
    return (command.pins.processes_per_node or 1) * (command.pins.nodes or 1)


def check_work(options: RequestOptions) -> None:
    """Refuse what makes no sense with a range, work, or a ranking. Raises `RvError(USAGE)`."""
    is_range = isinstance(options.gpu, GpuRange) and options.gpu.least != options.gpu
    asked = [
        *(["a range of --gpu"] if is_range else []),
        *(["--work"] if options.work else []),
        *([f"--for {options.objective}"] if options.objective is not Objective.START else []),
    ]
    if not asked:
        return
    wrong = [
        (options.mig, "--mig", "a slice is one, and no rate of it is known"),
        (not options.gpu, "--gpu 0", "there is no rate without GPUs"),
        (bool(options.min_time), "--min-time", "a shorter job would not do the work"),
        (bool(options.work) and "time" in options.typed, "--time", "the work says how long"),
    ]
    for is_given, option, why in wrong:
        if is_given:
            raise RvError(
                ErrorKind.USAGE,
                f"{asked[0]} and {option} exclude each other: {why}",
                hint=f"leave {option} out" if option != "--gpu 0" else "write --gpu 1-8",
            )
