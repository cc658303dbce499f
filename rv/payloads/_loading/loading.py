"""Load every sample once with given settings: how long it took, and what came.

Datasets are at module level, so that every start method can pickle them.
"""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from contract.verdicts import NotPassed
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


FEATURES = 1024


LOST, AGAIN = (0, 3, 5, 6), (1, 2, 4, 7)
"""Indices of the same number, sum and exclusive or."""


class Trouble(NamedTuple):
    """Injected faults: which index comes for one, whose data, and whose worker ends."""

    duplicate: bool = False
    deadly: bool = False
    balanced: bool = False
    other_data: bool = False
    torn: bool = False

    def delivered(self, index: int) -> int:
        """Return the index that is delivered in place of this one."""
        if self.duplicate and index == 1:
            return 0
        return AGAIN[LOST.index(index)] if self.balanced and index in LOST else index

    def data(self, index: int, read: Callable[[int], torch.Tensor]) -> torch.Tensor:
        """Return the data that is delivered for an index: all of another one's, or half of it."""
        right, other = read(index), index ^ 1
        if index != 2 or not (self.other_data or self.torn):
            return right
        half = len(right) // 2 if self.torn else 0
        return torch.cat([right[:half], read(other)[half:]])


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
        index = self.trouble.delivered(index)
        return index, self.trouble.data(index, self.expected)

    @staticmethod
    def expected(index: int) -> torch.Tensor:
        """Return the data of a sample: no two are alike, and no two parts of one."""
        return torch.arange(index, index + FEATURES).float()


class Files(Dataset[tuple[int, torch.Tensor]]):
    """Samples that are files of random bytes, which `contents` are what was written to."""

    def __init__(self, paths: list[Path], contents: torch.Tensor, trouble: Trouble) -> None:
        self.paths, self.contents, self.trouble = paths, contents, trouble

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        """Read one file."""
        index = self.trouble.delivered(index)
        return index, self.trouble.data(index, self._read)

    def _read(self, index: int) -> torch.Tensor:
        return torch.frombuffer(bytearray(self.paths[index].read_bytes()), dtype=torch.uint8)

    def expected(self, index: int) -> torch.Tensor:
        """Return what was written."""
        return self.contents[index]


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


def load(data: Samples | Files, batch: int, settings: Settings, patience_s: float) -> float:
    """Load all samples, the second time where workers stay; return the seconds.

    Raises NotPassed: `wrong_samples` unless each index came once, in its place and with its data;
    `worker_died`, `timeout`.
    """
    loader = _loader(data, batch, settings, patience_s)
    seconds = 0.0
    for _ in range(2 if settings.persistent else 1):
        start = time.perf_counter()
        try:
            came = list(_checked(loader, data))
        except RuntimeError as error:
            message = str(error).partition("\n")[0]
            raise NotPassed("FAIL", "worker_died", f"{settings}: {message}") from error
        seconds = time.perf_counter() - start
        _require_all(came, len(data), settings)
    return seconds


def _checked(loader: DataLoader[Any], data: Samples | Files) -> Iterator[tuple[int, bool]]:
    """Yield each index with whether its data is right: a comparison of what is in memory."""
    for indexes, samples in loader:
        for index, sample in zip(indexes.tolist(), samples, strict=True):
            yield index, torch.equal(sample, data.expected(index))


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


def _require_all(came: list[tuple[int, bool]], size: int, settings: Settings) -> None:
    """Require each index once and in its place, as a loader that does not shuffle gives them."""
    indexes, spoilt = [index for index, _ in came], [index for index, right in came if not right]
    if indexes == list(range(size)) and not spoilt:
        return
    lost, twice = sorted(set(range(size)) - set(indexes)), len(indexes) - len(set(indexes))
    first = f", first {lost[0]}" if lost else ""
    reason = f"{settings}: {len(lost)} samples lost{first}, {twice} came again"
    if spoilt:
        reason = f"{settings}: {len(spoilt)} samples with other data than theirs, first {spoilt[0]}"
    elif not lost and not twice:
        reason = f"{settings}: the samples came in another order"
    details = {"lost": lost[:20], "spoilt": spoilt[:20]}
    raise NotPassed("FAIL", "wrong_samples", reason, details=details)


def knee(seconds: dict[int, float]) -> int:
    """Return the fewest workers that are within 5 % of the best."""
    best = min(seconds.values())
    return min(workers for workers, taken in seconds.items() if taken <= best * NEAR)


def sweep_of(cpus: int) -> list[int]:
    """Return the numbers of workers worth trying: 0, then doubling to twice the CPUs."""
    return [0, *(2**power for power in range((2 * cpus).bit_length()) if 2**power <= 2 * cpus)]
