"""A snapshot as JSON: saved on one machine, planned with on another, read back the same.

The fields are those of `rv.models.snapshot`: times are ISO 8601 on Slurm's clock, durations are
seconds, memory is MiB. A file written by a newer rv may hold more; what is missing has its default.
"""

import json
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.plain import build, plain
from rv.models.snapshot import Snapshot

FORMAT: Final = "rv.snapshot/1"


def write_snapshot(snapshot: Snapshot) -> str:
    """Write a snapshot as one JSON object; equal snapshots give equal text."""
    fields = {"format": FORMAT, **plain(snapshot)}
    return json.dumps(fields, indent=1, ensure_ascii=True) + "\n"


def read_snapshot(text: str, name: str) -> Snapshot:
    """Read a snapshot back; `name` is its file's. Raises `RvError(CONFIG)` for what is none."""
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            raise ValueError(f"it does not say {FORMAT}")
        return build(Snapshot, fields)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise RvError(
            ErrorKind.CONFIG,
            f"{name} is no snapshot: {error}",
            hint="rv snapshot > cluster.json writes one",
        ) from error
