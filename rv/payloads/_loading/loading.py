"""Load everything once with given settings: how long it took, and what came."""

from __future__ import annotations

import functools
import operator
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contract.verdicts import NotPassed
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from torch.utils.data import Dataset

NEAR = 1.05  # of the best time: fewer workers that come as near are the better choice


@dataclass(frozen=True)
class Settings:
    """The DataLoader's settings that are compared."""

    workers: int
    start: str = "fork"
    pin: bool = False
    persistent: bool = False
    prefetch: int = 2

    def __str__(self) -> str:
        more = [f"start {self.start}"] if self.start != "fork" else []
        more += [name for name in ("pin", "persistent") if getattr(self, name)]
        more += [f"prefetch {self.prefetch}"] if self.prefetch != 2 else []
        return ", ".join([f"workers {self.workers}", *more])


def load(data: Dataset[Any], batch: int, settings: Settings, patience: float) -> float:
    """Load all samples, the second time where workers stay; give the seconds.

    Raises NotPassed: `wrong_samples` unless each index came once, `worker_died`, `timeout`.
    """
    loader = _loader(data, batch, settings, patience)
    seconds = 0.0
    for _ in range(2 if settings.persistent else 1):
        start = time.perf_counter()
        try:
            came = [int(index) for indexes, _ in loader for index in indexes]
        except RuntimeError as error:
            said = str(error).partition("\n")[0]
            raise NotPassed("FAIL", "worker_died", f"{settings}: {said}") from error
        seconds = time.perf_counter() - start
        _require_once(came, len(data), settings)  # type: ignore[arg-type]
    return seconds


def _loader(data: Dataset[Any], batch: int, settings: Settings, patience: float) -> DataLoader[Any]:
    parallel: dict[str, Any] = {}
    if settings.workers:
        parallel = {
            "multiprocessing_context": settings.start,
            "persistent_workers": settings.persistent,
            "prefetch_factor": settings.prefetch,
            "timeout": patience,
        }
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # ours is a test
    return DataLoader(
        data, batch_size=batch, num_workers=settings.workers, pin_memory=settings.pin, **parallel
    )


def _require_once(came: list[int], size: int, settings: Settings) -> None:
    """Compare count, sum and exclusive or with what every index once would give."""
    every = range(size)
    got = (len(came), sum(came), functools.reduce(operator.xor, came, 0))
    if got != (size, sum(every), functools.reduce(operator.xor, every, 0)):
        lost, twice = sorted(set(every) - set(came)), len(came) - len(set(came))
        first = f", first {lost[0]}" if lost else ""
        reason = f"{settings}: {len(lost)} samples lost{first}, {twice} came again"
        raise NotPassed("FAIL", "wrong_samples", reason, details={"lost": lost[:20]})


def knee(seconds: dict[int, float]) -> int:
    """Give the fewest workers that are within 5 % of the best."""
    best = min(seconds.values())
    return min(workers for workers, taken in seconds.items() if taken <= best * NEAR)


def sweep_of(cpus: int) -> list[int]:
    """Give the numbers of workers worth trying: 0, then doubling to twice the CPUs."""
    return [0, *(2**power for power in range((2 * cpus).bit_length()) if 2**power <= 2 * cpus)]
