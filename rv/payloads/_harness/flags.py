"""The flags that all payloads have, and the checks of their values."""

from __future__ import annotations

import argparse
import math
import os
from typing import TYPE_CHECKING

from .inject import fault

if TYPE_CHECKING:
    from collections.abc import Sequence


def parser(name: str, description: str, timeout: float) -> argparse.ArgumentParser:
    """Make a parser with the common flags; `timeout` is the default of --timeout, in seconds."""
    made = argparse.ArgumentParser(prog=f"{name}.py", description=description)
    _running(made, timeout)
    _where(made)
    _reporting(made, name)
    return made


def _running(made: argparse.ArgumentParser, timeout: float) -> None:
    made.add_argument("--quick", action="store_true", help="small and short: seconds, not minutes")
    made.add_argument("--verbose", action="store_true", help="say more while it runs")
    made.add_argument("--seed", type=int, default=42, help="of all random numbers")
    made.add_argument(
        "--duration", type=positive, help="seconds to measure or to load (by payload)"
    )
    made.add_argument(
        "--timeout", type=positive, default=timeout, help="seconds until it ends with 124"
    )
    made.add_argument(
        "--inject", type=fault, action="append", default=[], metavar="FAULT[:K=V,...]",
        help="make a fault, to see it found",
    )  # fmt: skip


def _where(made: argparse.ArgumentParser) -> None:
    made.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    made.add_argument("--backend", choices=["auto", "nccl", "gloo"], default="auto")
    made.add_argument(
        "--allow-busy-gpus",
        action="store_true",
        default=os.environ.get("RV_ALLOW_BUSY_GPUS") == "1",
        help="others on the GPU are a warning, and no failure",
    )
    made.add_argument("--require-gpu", action="store_true", help="no GPU is FAIL, not SKIP")
    made.add_argument(
        "--no-reference", action="store_true", help="leave it to rv accept to judge the speeds"
    )
    made.add_argument(
        "--requested-gpu",
        default=os.environ.get("RV_GPU", ""),
        help="the GPU model that was asked for (default: rv's own word)",
    )


def _reporting(made: argparse.ArgumentParser, name: str) -> None:
    made.add_argument("--report-dir", default=os.environ.get("RV_OUTPUT_DIR") or ".")
    made.add_argument("--report-name", default=f"{name}_result.json")
    made.add_argument(
        "--json", choices=["-"], help="print the result on stdout, the rest on stderr"
    )
    made.add_argument("--strict", action="store_true", help="a warning ends with 1")
    made.add_argument(
        "--skip-exit-code", type=int, choices=[0, 77],
        help="what SKIP ends with (77; a job of rv turns that into 0 unless it is asked for here)",
    )  # fmt: skip


def check(
    made: argparse.ArgumentParser, options: argparse.Namespace, faults: Sequence[str]
) -> None:
    """End with 2 for a fault that nothing would detect, and for names that are paths."""
    for asked in options.inject:
        if asked.name not in faults:
            made.error(f"no fault {asked.name!r}: {', '.join(faults) or 'none here'}")
    if "/" in options.report_name or options.report_name in {"", ".", ".."}:
        made.error("--report-name is a file name; its folder is --report-dir")


def positive(text: str) -> float:
    """Read a number above zero."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def whole(text: str) -> int:
    """Read a whole number above zero."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value
