"""A cluster that a file describes: plans are made on it, and nothing is submitted."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError

if TYPE_CHECKING:
    from rv.models.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedCluster:
    """A cluster as a file says it was: plans are made on it, and nothing is submitted."""

    label: str
    snapshot: "Snapshot"
    key: str = "snapshot"
    race_root: str = "/path/to/races"
    slurm_path: str = "/usr/bin"

    def take_snapshot(self) -> "Snapshot":
        """What the file says."""
        return self.snapshot


def saved_cluster(path: str) -> SavedCluster:
    """Read a snapshot's file, `-` for stdin. Raises `RvError(CONFIG)` for what is none."""
    from rv.models.snapshot import read_snapshot

    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RvError(
            ErrorKind.CONFIG, f"cannot read {path}: {error}", hint="rv snapshot > cluster.json"
        ) from error
    return SavedCluster(label=f"snapshot {path}", snapshot=read_snapshot(text, path))
