"""Distributed checkpoints of sharded models, and this rank's part of them."""

from __future__ import annotations

import contextlib
import math
import shutil
import time
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from _checkpoint import store
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


def local(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return this rank's part of every parameter."""
    parts = (parameter.detach() for parameter in model.parameters())
    return [part.to_local() if hasattr(part, "to_local") else part for part in parts]


class Share(NamedTuple):
    """The elements of the parameters that a rank holds, the most that it should, and all."""

    held: int
    most: int
    every: int

    @property
    def is_right(self) -> bool:
        """Whether the rank holds no more than its part."""
        return self.held <= self.most

    @property
    def details(self) -> dict[str, float]:
        """The numbers, as a result has them."""
        return {"parameters": self.every, "held": self.held, "most": self.most,
                "share": self.held / self.every}  # fmt: skip

    def said(self, rank: int) -> str:
        """Say what a rank holds that holds too much."""
        share, most = (100 * part / self.every for part in (self.held, self.most))
        return f"rank {rank} holds {share:.1f} % of the parameters, not {most:.1f} % at most"


def share_of(parameters: Iterable[torch.Tensor], world: int) -> Share:
    """Return what this rank holds of parameters that FSDP shards over `world` ranks.

    FSDP2 cuts each along its first dimension into chunks of equal length, the last ones shorter or
    empty (`torch.chunk`): of eight experts in a tensor one of seven ranks holds two.
    """
    held = most = every = 0
    for parameter in parameters:
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        rows = max(1, parameter.shape[0] if parameter.dim() else 1)
        held += local.numel()
        most += math.ceil(rows / world) * (parameter.numel() // rows)
        every += parameter.numel()
    return Share(held, most, every)


def save(model: torch.nn.Module, folder: Path, group: Any) -> tuple[int, float]:
    """Save all ranks' parts; return the bytes on disk, on rank 0, and the seconds."""
    start = time.perf_counter()
    if group.ranks.rank == 0:
        remove(folder)
    group.dist.barrier()
    with _quiet():
        state_dict_saver.save({"model": get_model_state_dict(model)}, checkpoint_id=str(folder))
    size = sum(file.stat().st_size for file in folder.iterdir()) if group.ranks.rank == 0 else 0
    return size, time.perf_counter() - start


def move_on(model: torch.nn.Module) -> None:
    """Change the parameters after they were saved: an injected fault."""
    with torch.no_grad():
        for part in local(model):
            part.mul_(1.01)


def forget(model: torch.nn.Module) -> None:
    """Overwrite the parameters, so that only a load can bring them back."""
    with torch.no_grad():
        for part in local(model):
            part.fill_(7.0)


def load(model: torch.nn.Module, folder: Path) -> None:
    """Load all ranks' parts."""
    for file in folder.iterdir():
        store.drop_cache(file)
    with _quiet():
        state = get_model_state_dict(model)
        state_dict_loader.load({"model": state}, checkpoint_id=str(folder))
        set_model_state_dict(model, state)


def remove(folder: Path) -> None:
    """Remove a checkpoint."""
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Drop the warnings of torch's own code about torch's own code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
