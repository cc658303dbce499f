"""`--work`, `--for` and a range of `--gpu`: how much there is to compute, and on what."""

import re
from dataclasses import replace
from typing import Final

from rv.cli.options import GpuRange, RequestOptions
from rv.errors import ErrorKind, RvError
from rv.models.request import Command, Objective, Request, Work
from rv.models.site import Site

_WORK: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*gpuh(?::([\w.-]{1,64}))?", re.ASCII | re.I)
_MOST_SIZES: Final = 8


def work_of(text: str) -> Work | None:
    """Read work such as `12gpuh` or `12gpuh:h100`; None for "". Raises `RvError(USAGE)`."""
    if not text:
        return None
    match = _WORK.fullmatch(text.strip())
    if match is None or not float(match[1]):
        hours = re.match(r"[1-9]\d{0,8}", text.strip())
        raise RvError(
            ErrorKind.USAGE,
            f"{text[:40]!r} is no amount of work",
            hint=f"write --work {hours[0] if hours else 12}gpuh, GPU-hours, or 12gpuh:a100-80",
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


def with_rates(site: Site, request: Request | None, cluster: str) -> Site:
    """Return the site with what is known of its GPUs, where a request needs it."""
    if request is None or not request.is_timed:
        return site
    from rv.accept.rates import performance  # sqlite, and pydantic: most plans need neither

    said = site.performance
    known = performance(cluster)
    named = replace(known, reference=said.reference, reference_origin=said.reference_origin)
    return replace(site, performance=named)
