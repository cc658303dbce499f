"""Running one step: its command, its files, and what became of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from _processes import child

from .outcome import TEXT, Ended, judge

if TYPE_CHECKING:
    from argparse import Namespace

    from .steps import Step

HERE = Path(__file__).parents[1]
LAST_WORDS = 15.0  # seconds for a payload to end by itself before it is ended


def run(step: Step, options: Namespace, devices: int, seconds: float) -> Ended:
    """Run a step for at most so many seconds."""
    folder = Path(options.report_dir)
    result = folder / f"{step.name}_result.json"
    result.unlink(missing_ok=True)  # what an earlier run left is no answer
    log, errors = folder / f"{step.name}.out", folder / f"{step.name}.err"
    errors.write_text("")
    try:
        ended = child.run(
            command(step, options, devices, seconds), log=log, errors=errors,
            timeout=seconds + LAST_WORDS,
        )  # fmt: skip
    except OSError as error:
        return Ended(step.name, "ERROR", "could_not_run", f"{step.name}: {error}")
    _strike(step, options, result)
    done = judge(step.name, result, ended)
    done.stdout = log.read_text(errors="replace")[-TEXT:]
    done.stderr = errors.read_text(errors="replace")[-TEXT:]
    return done


def command(step: Step, options: Namespace, devices: int, seconds: float) -> list[str]:
    """Give the command line: torchrun where each device has a rank of its own."""
    start = [sys.executable]
    if step.ranks and devices > 1:
        start += ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={devices}"]
    words = [str(HERE / f"{step.name}.py"), *step.words.get(options.profile, [])]
    words += ["--device", options.device, "--backend", options.backend, "--seed", str(options.seed)]
    words += ["--report-dir", options.report_dir, "--report-name", f"{step.name}_result.json"]
    words += ["--timeout", f"{seconds:.0f}"]
    words += ["--require-gpu"] * options.require_gpu + ["--verbose"] * options.verbose
    if options.requested_gpu:
        words += ["--requested-gpu", options.requested_gpu]
    if step.name == "stress":
        words += ["--duration", f"{_burning(options, seconds):.0f}"]
    for fault in options.inject:
        if fault.name == "child" and fault.where.get("step") == step.name:
            words += ["--inject", fault.where["fault"]]
    return start + words


def _burning(options: Namespace, seconds: float) -> float:
    """Give the seconds to burn: in a burn-in all that is left, else what the profile says."""
    if options.profile == "burnin":
        return max(10.0, seconds - 60)
    return {"smoke": 3.0 if options.device == "cpu" else 10.0}.get(options.profile, 60.0)


def _strike(step: Step, options: Namespace, result: Path) -> None:
    """Lose or cut a result file where that was asked for."""
    for fault in options.inject:
        if fault.where.get("step") == step.name and result.exists():
            if fault.name == "lost-result":
                result.unlink()
            elif fault.name == "cut-short":
                result.write_text(result.read_text()[:-20])
