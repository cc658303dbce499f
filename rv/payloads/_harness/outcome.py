"""Print the exit code of a job that ran a payload: `python outcome.py RESULTS CODE`.

The job's script runs it. torchrun turns every code into 1, and `| tee` into 0, so that the result
files decide: SKIP becomes 0, unless --skip-exit-code 77 asked to keep it. A code that no result
file explains stays what it is, such as the 3 of another program in the same command.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # `contract` lies beside this folder

from contract.schema import SCHEMA
from contract.verdicts import WORST_FIRST

if TYPE_CHECKING:
    from collections.abc import Mapping

TORCHRUNS = 1  # what torchrun makes of every code


def main(folder: str, code: int) -> tuple[int, str]:
    """Return the job's exit code, and a line for people where it is not the command's own."""
    summaries = [summary for path in sorted(Path(folder).glob("*.json")) for summary in _of(path)]
    worst_first = sorted(summaries, key=lambda summary: WORST_FIRST.index(summary["status"]))
    if not worst_first:
        return code, ""
    worst = worst_first[0]
    payload_code, said = int(worst["exit_code"]), f"{worst['status']}: {worst.get('reason')}"
    if worst["status"] == "SKIP":
        is_kept = worst.get("skip_exit_code") == payload_code
        return _skipped(code, payload_code, payload_code if is_kept else 0, said)
    is_hidden = code == 0 and payload_code != 0
    return payload_code or code, f"{said} (the command ended with 0)" if is_hidden else ""


def _skipped(code: int, own: int, wanted: int, said: str) -> tuple[int, str]:
    """Return what becomes of a SKIP, whose own code is `own`; another program's code stays."""
    if code not in (0, TORCHRUNS, own):
        return code, ""
    return wanted, said if code != wanted else ""


def _of(path: Path) -> list[dict[str, Any]]:
    try:
        document = json.loads(path.read_text())
        summary = document["summary"]
        is_result = document["schema"] == SCHEMA and summary["status"] in WORST_FIRST
        is_own = _is_of_this_job(document["test_info"]["slurm"])
        return [summary] if is_result and is_own and isinstance(summary["exit_code"], int) else []
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []  # cut short, or something else


def _is_of_this_job(slurm: Mapping[str, str | None]) -> bool:
    """Whether a result is this job's: a segment before it, or before a requeue, left some too."""
    if not slurm.get("job_id"):
        return True  # it ran without Slurm's variables
    job, restart = (os.environ.get(name) for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT"))
    return (slurm["job_id"], slurm.get("restart_count") or "0") == (job, restart or "0")


if __name__ == "__main__":
    outcome, line = main(sys.argv[1], int(sys.argv[2]))
    print(outcome)
    print(line, file=sys.stderr, end="\n" if line else "")
