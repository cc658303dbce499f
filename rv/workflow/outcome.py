"""What exit code the end of a race comes to."""

import json
from typing import Final

from rv.models.race import RaceState, RaceStatus
from rv.transport import Transport

_SKIP: Final = 77


def exit_code(status: RaceStatus, transport: Transport) -> int:
    """The job's own code; 0 for a payload that skipped; 1 where Slurm ended it without a code."""
    if status.state is RaceState.COMPLETED:
        return 0
    if status.exit_code == _SKIP and status.race.payload and _says_skip(status, transport):
        return 0
    return status.exit_code or 1


def _says_skip(status: RaceStatus, transport: Transport) -> bool:
    """A bundled payload's 77 counts as done only where its own result file says SKIP.

    The job's script has turned it into 0 already, but for a template of the user's own.
    """
    results = transport.read_tree(f"{status.race.directory}/results", ["*.json"])
    return any(_skipped(data) for data in results.values())


def _skipped(data: bytes) -> bool:
    try:
        summary = json.loads(data)["summary"]
        return bool(summary["status"] == "SKIP" and summary.get("skip_exit_code") != _SKIP)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
