"""Load every sample once with given settings: how long it took, and what came.

Datasets are at module level, so that every start method can pickle them.
"""

from __future__ import annotations

import functools
import operator
import os
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from contract.verdicts import NotPassed
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from pathlib import Path


FEATURES = 1024


class Trouble(NamedTuple):
    """Injected faults: an index that comes again, one that ends its worker."""

    duplicate: bool = False
    deadly: bool = False


class Samples(Dataset[tuple[int, torch.Tensor]]):
    """Samples that take some milliseconds of work each, as decoding an image does."""

    def __init__(self, size: int, work_ms: float, trouble: Trouble) -> None:
        self.size, self.work, self.trouble = size, work_ms / 1e3, trouble

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        """Work on one sample; return its index with it."""
        end = time.thread_time() + self.work
        while time.thread_time() < end:
            pass
        if self.trouble.deadly and torch.utils.data.get_worker_info() and index == self.size // 2:
            os._exit(11)
        returned = 0 if self.trouble.duplicate and index == 1 else index
        return returned, torch.full((FEATURES,), float(index))


class Files(Dataset[tuple[int, torch.Tensor]]):
    """Samples that are files of random bytes."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        """Read one file."""
        data = bytearray(self.paths[index].read_bytes())
        return index, torch.frombuffer(data, dtype=torch.uint8)


def square(number: int) -> int:
    """Square a number, in a worker of a pool."""
    return number * number


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


def load(data: Dataset[Any], batch: int, settings: Settings, patience_s: float) -> float:
    """Load all samples, the second time where workers stay; return the seconds.

    Raises NotPassed: `wrong_samples` unless each index came once, `worker_died`, `timeout`.
    """
    loader = _loader(data, batch, settings, patience_s)
    seconds = 0.0
    for _ in range(2 if settings.persistent else 1):
        start = time.perf_counter()
        try:
            came = [int(index) for indexes, _ in loader for index in indexes]
        except RuntimeError as error:
            message = str(error).partition("\n")[0]
            raise NotPassed("FAIL", "worker_died", f"{settings}: {message}") from error
        seconds = time.perf_counter() - start
        _require_once(came, len(data), settings)  # type: ignore[arg-type]
    return seconds


def _loader(
    data: Dataset[Any], batch: int, settings: Settings, patience_s: float
) -> DataLoader[Any]:
    parallel: dict[str, Any] = {}
    if settings.workers:
        parallel = {
            "multiprocessing_context": settings.start,
            "persistent_workers": settings.persistent,
            "prefetch_factor": settings.prefetch,
            "timeout": patience_s,
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
    """Return the fewest workers that are within 5 % of the best."""
    best = min(seconds.values())
    return min(workers for workers, taken in seconds.items() if taken <= best * NEAR)


def sweep_of(cpus: int) -> list[int]:
    """Return the numbers of workers worth trying: 0, then doubling to twice the CPUs."""
    return [0, *(2**power for power in range((2 * cpus).bit_length()) if 2**power <= 2 * cpus)]
