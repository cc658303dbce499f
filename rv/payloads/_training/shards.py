"""Distributed checkpoints of sharded models, and this rank's part of them."""

from __future__ import annotations

import contextlib
import shutil
import time
import warnings
from typing import TYPE_CHECKING, Any

import torch
from _checkpoint import store
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def local(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return this rank's part of every parameter."""
    parts = (parameter.detach() for parameter in model.parameters())
    return [part.to_local() if hasattr(part, "to_local") else part for part in parts]


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
