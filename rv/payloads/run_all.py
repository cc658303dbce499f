#!/usr/bin/env python3
"""Run all payloads on this node, in an order in which each rests on those before it.

    run_all.py --profile smoke       # about a minute
    run_all.py --profile accept      # a quarter of an hour
    run_all.py --profile burnin --budget 14400

What a failed step would have been needed for is not run; the others are. What was not run, and why,
is said in the end: a short run is no whole one.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from _harness.flags import positive, whole
from _harness.main import Payload, Session, run
from _run_all import runner
from _run_all.outcome import Ended
from _run_all.steps import PROFILES, STEPS, Step, blocked, chosen, time_for

if TYPE_CHECKING:
    import argparse

SEEDS = {"gpu_tests": "check", "ddp_tests": "allreduce", "ddp_train": "train"}
SPARE = 60.0  # seconds of a job left for its own end
ON_CPU = 2  # ranks where there is no GPU


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this payload."""
    names = ", ".join(step.name for step in STEPS)
    parser.add_argument("--profile", choices=sorted(PROFILES), help="how thorough (default: smoke)")
    parser.add_argument("--budget", type=positive, help="seconds for all of it (by profile)")
    parser.add_argument("--only", default="", help=f"comma-separated: {names}")
    parser.add_argument("--ranks", type=whole, help="processes of collectives (one a device)")
    parser.set_defaults(report_name="summary.json")


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Settle profile and budget; `--quick` is the smoke profile's older name."""
    options.profile = options.profile or "smoke"
    options.budget = min(options.budget or PROFILES[options.profile], _job_time())
    options.timeout = max(options.timeout, options.budget + SPARE)
    options.only = [name for name in options.only.split(",") if name]
    unknown = set(options.only) - {step.name for step in STEPS}
    if unknown:
        parser.error(f"no such payload: {', '.join(sorted(unknown))}")
    for fault in options.inject:
        if fault.name == "child" and not {"step", "fault"} <= set(fault.where):
            parser.error("child needs step= and fault=")


def _job_time() -> float:
    """Give the seconds that are left of the job, where Slurm says when it ends."""
    end = os.environ.get("SLURM_JOB_END_TIME", "")
    return max(SPARE, float(end) - time.time() - SPARE) if end.isdecimal() else float("inf")


def body(session: Session) -> None:
    """Run step after step while there is time, and say what each came to."""
    options = session.options
    session.test = "run_all.env"
    devices = _devices(session)
    session.report.add("run_all.env", "PASS", details={"devices": devices})
    steps = chosen(options.profile, options.only)
    deadline = time.monotonic() + options.budget
    ended: dict[str, Ended] = {}
    try:
        for step in steps:
            session.test = f"run_all.{step.name}"
            ended[step.name] = _step(session, step, devices, deadline, ended)
    finally:
        _summarize(session, steps, ended)


def _devices(session: Session) -> int:
    """Count the devices; the record of the first runners is part of the environment."""
    torch = session.need_torch()
    found = session.devices()
    env = session.report.env
    env["cuda_available"] = bool(torch.cuda.is_available())
    env["cuda_device_count"] = torch.cuda.device_count()
    default = ON_CPU if found == ["cpu"] else len(found)
    return session.options.ranks or default


def _step(
    session: Session, step: Step, devices: int, deadline: float, ended: dict[str, Ended]
) -> Ended:
    """Run a step, or say why not."""
    options = session.options
    statuses = {name: done.status for name, done in ended.items() if not _stopped(done)}
    statuses |= {name: "FAIL" for name, done in ended.items() if _stopped(done)}
    culprit = blocked(step, statuses)
    left = deadline - time.monotonic()
    seconds = time_for(step, options.profile, left)
    if culprit:
        done = Ended(step.name, "SKIP", "not_run", f"{step.name}: not run, it needs {culprit}")
    elif seconds is None:
        expected = step.expected(options.profile)
        short = f"not run, {max(0, left):.0f} s are left of the budget, {expected:.0f} are needed"
        done = Ended(step.name, "WARN", "not_run", f"{step.name}: {short}")
    else:
        session.say("RUN", f"{step.name} …")
        done = runner.run(step, options, devices, seconds)
    told = f"{done.name} {done.status} in {done.seconds:.1f} s  {done.reason}"
    session.say("RUN", told.rstrip())
    _add(session, done)
    return done


def _stopped(done: Ended) -> bool:
    """Tell a step that was not run for what it needs: what needs it is not run either."""
    return done.code == "not_run" and done.status == "SKIP"


def _add(session: Session, done: Ended) -> None:
    details = {"seconds": round(done.seconds, 2), "returncode": done.returncode}
    session.report.add(
        f"run_all.{done.name}", done.status, code=done.code, reason=done.reason,
        details={**details, "summary": done.summary},
    )  # fmt: skip


def _summarize(session: Session, steps: list[Step], ended: dict[str, Ended]) -> None:
    """Print and keep what everything came to, under the old names too."""
    missing = {"returncode": None, "stdout": "", "stderr": ""}
    for name, payload in SEEDS.items():
        session.report.extra[name] = ended[payload].as_seed() if payload in ended else missing
    codes = [f"{name} rc={session.report.extra[name]['returncode']}" for name in SEEDS]
    session.say("SUMMARY", "; ".join(codes))
    for done in ended.values():
        session.say("SUMMARY", f"{done.name:14} {done.status:5} {done.seconds:6.1f} s")
    not_run = [d.name for d in ended.values() if d.code == "not_run"]
    not_run += [step.name for step in steps if step.name not in ended]
    session.report.extra["not_run"] = not_run
    session.say("SUMMARY", f"not run: {', '.join(not_run) or 'nothing, all of it was'}")


PAYLOAD = Payload(
    "run_all",
    "Run all payloads on this node, each resting on those before it.",
    body,
    faults=("child", "lost-result", "cut-short"),
    add_flags=add_flags,
    check=check,
)

if __name__ == "__main__":
    run(PAYLOAD)
