"""What is loaded. At module level, so that every start method can pickle it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.utils.data import Dataset

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
        """Work on one sample; give its index with it."""
        end = time.thread_time() + self.work
        while time.thread_time() < end:
            pass
        if self.trouble.deadly and torch.utils.data.get_worker_info() and index == self.size // 2:
            os._exit(11)
        told = 0 if self.trouble.duplicate and index == 1 else index
        return told, torch.full((FEATURES,), float(index))


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
