"""Result files: each rank's, whole or not at all, and the merged one, where the verdict is."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .ranks import Ranks

SKEW = 300  # seconds that the clocks of a launch's nodes, and the starts of its ranks, may differ


def write(target: Path, document: dict[str, Any]) -> None:
    """Write a document so that a reader never sees half of it. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with draft.open("w") as file:
            json.dump(document, file, indent=1, default=str)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def try_folder(folder: Path) -> None:
    """Prove that results can be written there, before hours of work. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f".probe.{os.getpid()}"
    probe.write_text("")
    probe.unlink()


def read(path: Path) -> dict[str, Any] | None:
    """Read a result; None for one that is absent, cut short or something else."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and "summary" in document else None


def rank_file(folder: Path, report_name: str, rank: int) -> Path:
    """Name a rank's own file: `check_result.ranks/rank-00000.json`."""
    return folder / f"{report_name.removesuffix('.json')}.ranks" / f"rank-{rank:05d}.json"


def collect(
    folder: Path,
    report_name: str,
    ranks: Ranks,
    started_at: float,
    enough: Callable[[], bool],
) -> dict[int, dict[str, Any]]:
    """Wait for the other ranks' files of this launch until `enough`; give those there are, by rank.

    What an earlier launch left behind in the same folder is not taken for an answer.
    """
    others: dict[int, dict[str, Any]] = {}
    while True:
        last = enough()
        for rank in set(range(ranks.world)) - set(others) - {ranks.rank}:
            path = rank_file(folder, report_name, rank)
            document = read(path)
            if document is not None and _ours(document, path, ranks, started_at):
                others[rank] = document
        if len(others) == ranks.world - 1 or last:
            return others
        time.sleep(0.05)


def _ours(document: dict[str, Any], path: Path, ranks: Ranks, started_at: float) -> bool:
    info = document.get("test_info", {})
    return info.get("launch") == ranks.launch and path.stat().st_mtime > started_at - SKEW
