"""Training data drawn from (seed, step): every world size sees the same global batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

Batch = tuple[torch.Tensor, torch.Tensor]
FEATURES, CLASSES, VOCABULARY, LENGTH = 128, 4, 64, 32


def vectors(seed: int, size: int) -> Callable[[int], Batch]:
    """Give batches of normal vectors, labelled by the largest of four fixed projections."""
    truth = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(seed))

    def batch(step: int) -> Batch:
        x = torch.randn(size, FEATURES, generator=_generator(seed, step))
        return x, (x @ truth).argmax(dim=1)

    return batch


def tokens(seed: int, size: int) -> Callable[[int], Batch]:
    """Give batches of token rows, each following the same rule from a random first token."""

    def batch(step: int) -> Batch:
        row = torch.randint(VOCABULARY, (size,), generator=_generator(seed, step))
        rows = [row]
        for _ in range(LENGTH):
            rows.append((rows[-1] * 5 + 7) % VOCABULARY)
        text = torch.stack(rows, dim=1)
        return text[:, :-1], text[:, 1:]

    return batch


def part(batch: Batch, rank: int, world: int, device: str) -> Batch:
    """Give a rank its own rows of a global batch; all get equally many."""
    x, y = batch
    size = len(x) // world
    rows = slice(rank * size, (rank + 1) * size)
    return x[rows].to(device), y[rows].to(device)


def _generator(seed: int, step: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed * 1_000_003 + step + 1)
