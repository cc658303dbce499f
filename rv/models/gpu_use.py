"""How a job uses its GPUs: what nvidia-smi is asked for, and what its answers come to.

The queries stand here alone: the job's script, `rv gpu` and the sandbox's own nvidia-smi have them
from here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from rv.dataclass import dataclass

GPU_QUERY: Final = (
    "--query-gpu=index,uuid,memory.used,memory.total,utilization.gpu,power.draw,temperature.gpu,name",
    "--format=csv,noheader,nounits",
)
"""What nvidia-smi is asked about GPUs: a line each, MiB, percent, watts and degrees Celsius."""

PROCESS_QUERY: Final = (
    "--query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name",
    "--format=csv,noheader,nounits",
)
"""What nvidia-smi is asked about the processes on GPUs: a line each, MiB."""

_ROOM: Final = 1.2
"""Memory that a smaller card has to have: the most that was seen, and a fifth more."""
_LEAST_USED: Final = 0.01
_SMALLER: Final = 0.9
_NOMINAL: Final = (
    8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 180, 192, 288,
)  # fmt: skip
"""Memory in GB by which cards are called; nvidia-smi shows up to 7 % less."""
_SHOWN_LESS: Final = 0.93


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuProcess:
    """A process on a GPU; `memory_mib` is None where the card does not tell."""

    pid: int
    user: str
    name: str
    memory_mib: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuNow:
    """A GPU of a job at this moment; None for what the card does not tell.

    `utilization` is in percent.
    """

    node: str
    index: int
    model: str
    utilization: int | None = None
    memory_mib: int | None = None
    total_mib: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuSums:
    """What the samples of one GPU came to.

    `busy` is the sum of the utilization, in percent, over the `measured` ones of the `samples`: a
    card may tell its memory alone. `peak_mib` is the most memory that was seen in use.
    """

    node: str
    index: int
    model: str
    samples: int
    measured: int
    busy: int
    peak_mib: int
    total_mib: int

    @property
    def utilization(self) -> float | None:
        """The mean in percent, None where the card does not tell."""
        return self.busy / self.measured if self.measured else None


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuUse:
    """How a race used all its GPUs.

    `utilization` is their mean in percent, None where no card tells; `peak_mib` is the most memory
    that was in use on one of them, a card of `card_mib`. `samples` is of the GPU with the most.
    """

    gpus: int
    samples: int
    peak_mib: int
    card_mib: int
    utilization: float | None = None


def added(sums: Iterable[GpuSums]) -> tuple[GpuSums, ...]:
    """Add up what several jobs, the segments of a chain, measured of the same GPU, by node."""
    whole: dict[tuple[str, int], GpuSums] = {}
    for one in sums:
        key = (one.node, one.index)
        before = whole.get(key)
        whole[key] = _plus(before, one) if before else one
    return tuple(whole[key] for key in sorted(whole))


def _plus(before: GpuSums, one: GpuSums) -> GpuSums:
    return replace(
        one,
        samples=before.samples + one.samples,
        measured=before.measured + one.measured,
        busy=before.busy + one.busy,
        peak_mib=max(before.peak_mib, one.peak_mib),
    )


def gpu_use(sums: Sequence[GpuSums]) -> GpuUse | None:
    """Return what the GPUs of a race came to; None where nothing was measured."""
    if not sums:
        return None
    fullest = max(sums, key=lambda one: one.peak_mib)
    measured = sum(one.measured for one in sums)
    return GpuUse(
        gpus=len(sums),
        samples=max(one.samples for one in sums),
        peak_mib=fullest.peak_mib,
        card_mib=fullest.total_mib,
        utilization=sum(one.busy for one in sums) / measured if measured else None,
    )


def smaller_card(use: GpuUse, sizes_mib: Iterable[int]) -> int | None:
    """Return the smallest of these cards, in MiB, that holds the peak with a fifth of room.

    None where only one as large would do, and where the GPUs were not used at all.
    """
    if use.peak_mib < use.card_mib * _LEAST_USED:
        return None
    enough = (size for size in sizes_mib if use.peak_mib * _ROOM <= size < use.card_mib * _SMALLER)
    return min(enough, default=None)


def nominal_gb(memory_mib: int) -> int:
    """Return the GB by which a card is called that shows so much memory."""
    shown = memory_mib / 1024
    named = (size for size in _NOMINAL if shown * 0.99 <= size <= shown / _SHOWN_LESS)
    return next(named, round(shown))
