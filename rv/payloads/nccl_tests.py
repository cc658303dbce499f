#!/usr/bin/env python3
"""Run `all_reduce_perf` of NVIDIA's nccl-tests where it is installed, and judge what it says.

    nccl_tests.py                          # all GPUs of this node
    nccl_tests.py --read report.json       # what -J wrote elsewhere, or a table

It is looked for on PATH and in $NCCL_TESTS_HOME. Wrong elements fail, and so does a bus bandwidth
below what such GPUs reach, or below a fifth of NVLink's where it links all of them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from _harness.files import read_regular
from _harness.main import Payload, Session, run
from _harness.topology import share_of_ranks
from _nccl_tests.output import Table, parse_report, parse_table
from _processes.programs import run_limited
from contract.fabrics import BRIDGED, LARGE, SHARES
from contract.rates import mesh_rate
from contract.schema import HIGHER, metric
from contract.verdicts import NotPassed

if TYPE_CHECKING:
    import argparse

PROGRAM = "all_reduce_perf"
SIZES, QUICK_SIZES = ("-b", "8", "-e", "8G"), ("-b", "8", "-e", "1G")
HOW = ("-f", "2", "-c", "1")
ABSENT = f"{PROGRAM} of nccl-tests is not installed"
TEST = "nccl_tests.all_reduce"


def body(session: Session) -> None:
    """Read a report or make one, and judge it."""
    devices = session.devices()
    session.test = TEST
    if session.options.read:
        table = read(Path(session.options.read))
    else:
        program = find_program()
        if program is None or devices == ["cpu"]:
            reason = ABSENT if program is None else f"{PROGRAM} needs GPUs"
            code = "tool_absent" if program is None else "unsupported"
            session.say("DDP", reason)
            raise NotPassed("SKIP", code, reason)
        table = measure(session, program, len(devices))
    judge(session, spoiled(session, table))


def find_program() -> str | None:
    """Find the program on PATH, or where it was built."""
    home = os.environ.get("NCCL_TESTS_HOME", "")
    places = os.pathsep.join([os.environ.get("PATH", ""), home, f"{home}/build"])
    return shutil.which(PROGRAM, path=places)


def read(path: Path) -> Table:
    """Read a report or a table that is there already."""
    try:
        return parsed(read_regular(path))
    except (OSError, ValueError) as error:
        raise NotPassed("ERROR", "could_not_run", f"{path.name}: {error}") from error


def parsed(text: str) -> Table:
    """Read a text of either form. Raises ValueError."""
    return parse_report(text) if text.lstrip().startswith("{") else parse_table(text)


def measure(session: Session, program: str, gpus: int) -> Table:
    """Run it on all GPUs of this node; one that does not know `-J` has a table on its output.

    The report holds the environment, secrets too: it lies in a folder of ours, and is removed.
    """
    sizes = QUICK_SIZES if session.options.quick else SIZES
    command = [program, *sizes, *HOW, "-g", str(gpus)]
    with tempfile.TemporaryDirectory(prefix="rv-nccl-") as folder:
        report, log = Path(folder) / "report.json", Path(folder) / "log"
        try:
            outcome = run_limited([*command, "-J", str(report)], log=log, timeout=session.left())
            if not report.exists() and "Out of bounds" not in read_regular(log):
                outcome = run_limited(command, log=log, timeout=session.left())
            table = parsed(read_regular(report if report.exists() else log))
        except (OSError, ValueError) as error:
            reason = f"{PROGRAM}: {error}"
            raise NotPassed("ERROR", "could_not_run", reason) from error
    if outcome.returncode and not table.wrong:
        reason = f"{PROGRAM} ended with {outcome.returncode}"
        raise NotPassed("ERROR", "could_not_run", reason)
    if table.ranks != gpus:
        raise NotPassed("FAIL", "rank_missing", f"it measured {table.ranks} ranks on {gpus} GPUs")
    return table


def spoiled(session: Session, table: Table) -> Table:
    """Return the table as an injected fault makes it."""
    if session.faults.get("wrong"):
        return table._replace(wrong=3)
    if session.faults.get("unchecked"):
        return table._replace(wrong=None)
    return table


def judge(session: Session, table: Table) -> None:
    """Report wrong elements, elements that nobody checked, and bandwidths.

    One rank has none: its busbw, 2 (n - 1) / n of algbw, is 0 whatever its GPU does.
    """
    large = [row for row in table.rows if row.nbytes >= LARGE and table.ranks > 1]
    best = max(table.rows, key=lambda row: row.nbytes)
    session.say("DDP", f"{PROGRAM}: {table.ranks} ranks, {best.busbw:.1f} GB/s at {best.nbytes} B")
    rows = [row._asdict() for row in table.rows]
    details = {"ranks": table.ranks, "wrong": table.wrong, "rows": rows}
    # A report that is read is of other GPUs: its figures are no rates of these.
    better = "" if session.options.read else HIGHER
    share = share_of_ranks(session.report.devices, table.ranks) if better and large else None
    about = {} if share is None else {"link_share": share}
    metrics = [
        metric(f"busbw_{row.nbytes >> 20}M", [row.busbw], "GB/s", better, bytes=row.nbytes, **about)
        for row in large
    ]
    # The number of ranks is in the name: one process measures them all, and a reference is of many.
    name = f"{TEST}.{table.ranks}"
    said = _verdict(session, table)
    session.report.add(name, **said, details=details, metrics=metrics)


def _verdict(session: Session, table: Table) -> dict[str, str]:
    if table.wrong:
        reason = f"{PROGRAM}: {table.wrong} wrong elements"
        return {"status": "FAIL", "code": "wrong_collective", "reason": reason}
    if table.wrong is None:
        reason = f"{PROGRAM} did not check what came (-c 0)"
        return {"status": "WARN", "code": "not_run", "reason": reason}
    if table.ranks < 2:
        return {"status": "PASS"}
    best = max(table.rows, key=lambda row: row.nbytes)
    if best.nbytes < LARGE:
        reason = f"{PROGRAM} went to {best.nbytes} B only: too small to judge the links by"
        return {"status": "WARN", "code": "not_run", "reason": reason}
    floor = _floor(session, best.busbw, best.nbytes)
    if floor and best.busbw < floor:
        reason = f"{PROGRAM}: {best.busbw:.1f} GB/s, where NVLink gives {floor:.0f} at least"
        return {"status": "FAIL", "code": "slow_fabric", "reason": reason}
    return {"status": "PASS"}


def _floor(session: Session, busbw: float, nbytes: int) -> float | None:
    """Return the least bus bandwidth of GPUs that NVLink links; a report read is of others."""
    if session.faults.get("below-floor"):
        return 2 * busbw
    models = {device["name"] for device in session.report.devices}
    is_known = len(models) == 1 and nbytes >= LARGE and not session.options.read
    rate = mesh_rate(models.pop()) if is_known else None
    return None if rate is None else SHARES[BRIDGED] * rate


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this payload."""
    parser.add_argument("--read", metavar="FILE", help="judge what -J or the table says in a file")


PAYLOAD = Payload(
    "nccl_tests",
    "Run all_reduce_perf of nccl-tests where it is installed, and judge what it says.",
    body,
    add_flags=add_flags,
)

if __name__ == "__main__":
    run(PAYLOAD)
