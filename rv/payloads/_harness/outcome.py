"""Print the exit code of a job that ran a payload: `python outcome.py RESULTS CODE`.

The job's script runs it. torchrun turns every code into 1, and `| tee` into 0, so that what the
payloads' runs left decides, the worst of them: SKIP becomes 0, unless --skip-exit-code 77 asked to
keep it. A code that nothing explains stays what it is, such as the 3 of another program in the same
command; but 0 is an ERROR where a run left no verdict, or none was left at all.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # `contract` lies beside this folder

from contract.schema import RUNS, SCHEMA
from contract.verdicts import ERROR, EXIT_CODES, WORST_FIRST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TORCHRUNS = 1  # what torchrun makes of every code
LATE_S = 2.0  # for what another node wrote a moment ago, on a network disk


class Left(NamedTuple):
    """What the runs of this job left: the summaries of results, and the names of those without."""

    summaries: list[dict[str, Any]]
    unfinished: list[str]


def main(folder: str, code: int) -> tuple[int, str]:
    """Return the job's exit code, and a line for people where it is not the command's own."""
    left = _left_in(Path(folder))
    if left.unfinished and not code:
        time.sleep(LATE_S)
        left = _left_in(Path(folder))
    summaries = [*left.summaries, *(_lacking(left, folder) if not code else ())]
    if not summaries:
        return code, ""
    worst = min(summaries, key=_badness)
    payload_code, said = int(worst["exit_code"]), f"{worst['status']}: {worst.get('reason')}"
    if worst["status"] == "SKIP":
        is_kept = worst.get("skip_exit_code") == payload_code
        return _skipped(code, payload_code, payload_code if is_kept else 0, said)
    is_hidden = code == 0 and payload_code != 0
    return payload_code or code, f"{said} (the command ended with 0)" if is_hidden else ""


def _badness(summary: Mapping[str, Any]) -> tuple[int, int]:
    """Order by verdict, the worst first; of one verdict, by exit code: --strict makes a WARN 1."""
    return WORST_FIRST.index(summary["status"]), -int(summary["exit_code"])


def _left_in(folder: Path) -> Left:
    """Read the results in a folder, and what each run noted of itself."""
    runs = _read_all(folder, f"{RUNS}/*.json")
    over = [document for document in runs if "summary" in document]
    summaries = map(_summary, [*_read_all(folder, "*.json"), *over])
    unfinished = [_name(run["test_info"]) for run in runs if "summary" not in run]
    return Left(list(filter(None, summaries)), unfinished)


def _read_all(folder: Path, pattern: str) -> list[dict[str, Any]]:
    return [document for path in sorted(folder.glob(pattern)) for document in _read(path)]


def _lacking(left: Left, folder: str) -> Iterator[dict[str, Any]]:
    """Give an ERROR for each run without a verdict, and for no run at all."""
    reasons = [f"{name} began, and left no result" for name in left.unfinished]
    if not reasons and not left.summaries:
        reasons = [f"the payload left no result in {folder}"]
    for reason in reasons:
        yield {"status": ERROR, "exit_code": EXIT_CODES[ERROR], "reason": reason}


def _name(info: Mapping[str, Any]) -> str:
    return f"{info['test_type']} on {info['node']}"


def _skipped(code: int, own: int, wanted: int, said: str) -> tuple[int, str]:
    """Return what becomes of a SKIP, whose own code is `own`; another program's code stays."""
    if code not in (0, TORCHRUNS, own):
        return code, ""
    return wanted, said if code != wanted else ""


def _read(path: Path) -> list[dict[str, Any]]:
    """Read a file of this job; nothing for one that is cut short, or something else."""
    try:
        document = json.loads(path.read_text())
        is_result = document["schema"] == SCHEMA and bool(_name(document["test_info"]))
        is_own = _is_of_this_job(document["test_info"]["slurm"])
        return [document] if is_result and is_own else []
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _summary(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a result's summary, its reason with the node; None for what is none."""
    summary, info = document.get("summary"), document["test_info"]
    if not isinstance(summary, dict) or not isinstance(summary.get("exit_code"), int):
        return None
    if summary.get("status") not in WORST_FIRST:
        return None
    return {**summary, "reason": f"{_name(info)}: {summary.get('reason')}"}


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
