"""Checkpoints on disk: whole or not at all, and the newest whole one when others are broken."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

KEPT = 3
PATTERN = "step-*.pt"


class Unwritten(Exception):  # noqa: N818 - what happened, to a checkpoint
    """A checkpoint could not be written: the disk is full, or a limit is reached."""


class Saved(NamedTuple):
    """What one save took: seconds until it was safe on disk, and bytes."""

    seconds: float
    nbytes: int


class Loaded(NamedTuple):
    """The newest whole checkpoint: its state (None where there is none), and what was passed by."""

    state: dict[str, Any] | None
    step: int
    skipped: list[str]


def digest(torch: Any, state: dict[str, Any]) -> str:
    """Return SHA-256 of the tensors of model and optimizer, in a fixed order."""
    summed = hashlib.sha256()
    for tensor in _tensors(torch, [state["model"], state["optimizer"]]):
        whole = tensor.detach().cpu().contiguous()
        summed.update(ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size()))
    return summed.hexdigest()


def _tensors(torch: Any, value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    inside = value.values() if isinstance(value, dict) else value
    parts = inside if isinstance(value, dict | list | tuple) else []
    return [tensor for part in parts for tensor in _tensors(torch, part)]


def save(
    torch: Any,
    state: dict[str, Any],
    folder: Path,
    *,
    faults: Collection[str] = (),
    between: Callable[[], object] | None = None,
) -> Saved:
    """Write a checkpoint: a draft of this process, synced, renamed; then prune old ones.

    `between` runs after the draft is written and before it has its name. Raises Unwritten.
    """
    start = time.perf_counter()
    target = folder / f"step-{state['step']:08d}.pt"
    own = "shared" if "shared-draft" in faults else f"{socket.gethostname()}.{os.getpid()}"
    draft = target if "in-place" in faults else folder / f".{target.name}.{own}"
    if "lost-save" in faults:
        return Saved(time.perf_counter() - start, 1)
    try:
        nbytes = _write(torch, state, draft, between if "in-place" in faults else None)
        if between is not None and draft != target:
            between()
        draft.replace(target)
        _sync(folder)
    except (OSError, RuntimeError) as error:
        if "keep-draft" not in faults:
            with contextlib.suppress(OSError):
                draft.unlink()
        raise Unwritten(f"{target}: {error}".partition("\n")[0]) from error
    for old in sorted(folder.glob(PATTERN))[:-KEPT]:
        old.unlink(missing_ok=True)
    return Saved(time.perf_counter() - start, nbytes)


def _write(
    torch: Any, state: dict[str, Any], path: Path, halfway: Callable[[], object] | None
) -> int:
    with path.open("wb") as file:
        torch.save(state, file)
        file.flush()
        if halfway is not None:
            os.ftruncate(file.fileno(), file.tell() // 2)  # as far as a slow disk would have come
            halfway()
        os.fsync(file.fileno())
        return file.tell()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_kept(torch: Any, folder: Path, state: dict[str, Any]) -> bool:
    """Read a checkpoint back, past the cache: all of it is what was saved, to the last bit."""
    path = folder / f"step-{state['step']:08d}.pt"
    try:
        drop_cache(path)
        return same(torch, torch.load(path, map_location="cpu", weights_only=True), state)
    except Exception:  # whatever torch says of a file that is none of its own
        return False


def same(torch: Any, one: Any, other: Any) -> bool:
    """Compare two states: tensors by their bits, NaN equals NaN so."""
    if isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and _equal(torch, one, other)
    if isinstance(other, dict):
        return one.keys() == other.keys() and all(same(torch, one[k], other[k]) for k in other)
    if isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(functools.partial(same, torch), one, other))
    return bool(one == other)


def _equal(torch: Any, one: Any, other: Any) -> bool:
    ends = [part.detach().cpu().contiguous().flatten() for part in (one, other)]
    return bool(torch.equal(*(part.view(torch.uint8) for part in ends)))


def drop_cache(path: Path) -> bool:
    """Ask the kernel to drop a file from its page cache; return whether it accepted."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except (AttributeError, OSError):
        return False
    finally:
        os.close(descriptor)
    return True


def corrupt(path: Path) -> None:
    """Change a page in the middle of a file: an injected fault."""
    with path.open("r+b") as file:
        middle = path.stat().st_size // 2
        file.seek(middle)
        old = file.read(4096)
        file.seek(middle)
        file.write(bytes(byte ^ 1 for byte in old))


def load(torch: Any, folder: Path, *, faults: Collection[str] = ()) -> Loaded:
    """Read the newest checkpoint that is whole: it loads, and its digest is its tensors'."""
    skipped: list[str] = []
    for path in sorted(folder.glob(PATTERN), reverse=True):
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except FileNotFoundError:  # another writer pruned it
            continue
        except Exception as error:
            if "trust-newest" in faults:
                raise
            skipped.append(f"{path.name}: {error}".partition("\n")[0])
            continue
        if state["digest"] == digest(torch, state):
            return Loaded(state, state["step"], skipped)
        skipped.append(f"{path.name}: its digest is not that of its tensors")
    return Loaded(None, 0, skipped)


def drafts(folder: Path) -> list[str]:
    """Name the drafts that writers left behind."""
    return sorted(path.name for path in folder.glob(".step-*"))


def sweep(folder: Path) -> None:
    """Remove the drafts of this host's writers that are gone."""
    mark = f".{socket.gethostname()}."
    for path in folder.glob(f".step-*{mark}*"):
        if not Path("/proc", path.name.rpartition(".")[2]).exists():
            path.unlink(missing_ok=True)
