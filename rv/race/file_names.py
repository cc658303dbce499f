"""The names of what lies in a race directory, and beside it."""

from typing import Final

RECORD: Final = "race.json"

VERDICT: Final = "verdict.json"
"""The state of a race that cannot change any more."""

FOLDERS: Final = (
    "absent",
    "again",
    "checkpoints",
    "claims",
    "declined",
    "exhausted",
    "gpus",
    "jobs",
    "notified",
    "output",
    "results",
    "segments",
    "turns",
    "warnings",
)
CODE: Final = "code"
"""The folder with the race's own copy of the code that was sent for it."""

STAGED: Final = ".staged"
"""The folder beside the races with an empty file for each: where it is, so is their disk."""

STATE_FILES: Final = (
    "claim",
    "ended",
    "lost",
    "stop",
    "unclaimed",
    "unended",
    "jobs/*.id",
    "jobs/*.sent",
    "jobs/*.refused",
    "declined/*",
    "exhausted/*",
    "again/*",
    "warnings/*",
    "absent/*",
    "segments/[0-9]*",
)


def payload_shelf(root: str, user_id: int) -> str:
    """Return the folder of all versions of the payloads; several users may share a race root."""
    return f"{root}/.payloads-{user_id}"
