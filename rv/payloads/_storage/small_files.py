"""Many small files, made, looked up, read and removed: what metadata servers are slow at."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from contract.verdicts import NotPassed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from _harness.inject import Faults

PHASES = ("create", "stat", "read", "remove")


def one_round(folder: Path, contents: Sequence[bytes], faults: Faults) -> dict[str, float]:
    """Make, look up, read and remove files of these contents; return the files a second of each.

    Raises NotPassed (FAIL `storage_mismatch`) where files did not come back, or hold other bytes.
    """
    paths = [folder / f"small.{number}" for number in range(len(contents))]
    seconds = {"create": _timed(lambda: _create(paths, contents))}
    if faults.get("lost-file"):
        paths[0].unlink()
    if faults.get("mixed-files"):
        paths[1].write_bytes(contents[0])
    _require_listed(folder, paths)
    seconds["stat"] = _timed(lambda: [path.stat() for path in paths])
    read: list[bytes] = []
    seconds["read"] = _timed(lambda: read.extend(path.read_bytes() for path in paths))
    changed = sum(one != other for one, other in zip(read, contents, strict=True))
    if changed:
        reason = f"{changed} of {len(paths)} small files in {folder.parent} hold other bytes"
        raise NotPassed("FAIL", "storage_mismatch", reason)
    seconds["remove"] = _timed(lambda: _remove(paths))
    return {phase: len(paths) / max(spent, 1e-9) for phase, spent in seconds.items()}


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _create(paths: Sequence[Path], contents: Sequence[bytes]) -> None:
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink()


def _require_listed(folder: Path, paths: Sequence[Path]) -> None:
    listed = set(folder.glob("small.*"))
    if listed != set(paths):
        came = len(listed & set(paths))
        reason = f"{came} of {len(paths)} small files came back in {folder.parent}"
        raise NotPassed("FAIL", "storage_mismatch", reason)
