#!/usr/bin/env python3
"""Run all payloads on this node, in an order in which each rests on those before it.

    run_all.py --profile smoke       # about a minute
    run_all.py --profile accept      # a quarter of an hour
    run_all.py --profile burnin --budget 14400

A payload that needs a failed one is not run; the others are. The end names what was not run, and
why: a short run is no complete one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _harness import files
from _harness.flags import positive, whole
from _harness.main import Payload, Session, run
from _processes import programs
from contract.catalogue import BUDGETS_S, PAYLOADS, PROFILES, RANKS, SMOKE, Step
from contract.dcgm import TIMES_S
from contract.schema import SCHEMA
from contract.verdicts import EXIT_CODES, WORST_FIRST, worst

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Mapping, Sequence

    from contract.catalogue import PayloadSpec

LEGACY_KEYS = {"gpu_tests": "check", "ddp_tests": "allreduce", "ddp_train": "train"}
SPARE_S = 60.0  # of a job, and of a load test, left for its own end
GRACE_S = 15.0  # for a payload to end by itself before it is ended
ON_CPU = 2  # ranks where there is no GPU
TEXT = 8000  # characters of a payload's output that go into the summary


@dataclass
class Ended:
    """How one payload ended; `summary` is its result's."""

    name: str
    status: str
    code: str = ""
    reason: str = ""
    seconds: float = 0.0
    returncode: int | None = None
    stdout: str = ""
    stderr: str = ""
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def may_be_built_on(self) -> bool:
        """Whether payloads that need this one may run: after its own SKIP they may."""
        was_blocked = self.status == "SKIP" and self.code == "not_run"
        return self.status in ("PASS", "WARN", "SKIP") and not was_blocked

    def as_legacy(self) -> dict[str, Any]:
        """Return the record that the first `summary.json` had for each program."""
        return {"returncode": self.returncode, "stdout": self.stdout, "stderr": self.stderr}


def body(session: Session) -> None:
    """Run payload after payload while there is time, and print each outcome."""
    options = session.options
    session.test = "run_all.env"
    devices = _devices(session)
    session.report.add("run_all.env", "PASS", details={"devices": devices})
    payloads = chosen(options.profile, options.only)
    deadline = time.monotonic() + options.budget
    ended: dict[str, Ended] = {}
    try:
        for payload in payloads:
            session.test = f"run_all.{payload.name}"
            done = _outcome(session, payload, devices, deadline - time.monotonic(), ended)
            session.say(
                "RUN", f"{done.name} {done.status} in {done.seconds:.1f} s  {done.reason}".rstrip()
            )
            _add(session, done)
            ended[payload.name] = done
    finally:
        _summarize(session, [payload.name for payload in payloads], ended)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this payload."""
    names = ", ".join(payload.name for payload in PAYLOADS)
    parser.add_argument("--profile", choices=sorted(PROFILES), help="how thorough (default: smoke)")
    parser.add_argument("--budget", type=positive, help="seconds for all of it (by profile)")
    parser.add_argument("--only", default="", help=f"comma-separated: {names}")
    parser.add_argument("--dcgm", type=int, choices=sorted(TIMES_S), help="in check.py, first")
    parser.add_argument("--ranks", type=whole, help="processes of collectives (one a device)")
    parser.set_defaults(report_name="summary.json")


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Settle profile and budget; `--quick` is the smoke profile's older name."""
    options.profile = options.profile or SMOKE
    options.budget = min(options.budget or BUDGETS_S[options.profile], _job_time_s())
    options.timeout = max(options.timeout, options.budget + SPARE_S)
    options.only = [name for name in options.only.split(",") if name]
    unknown = set(options.only) - {payload.name for payload in PAYLOADS}
    if unknown:
        parser.error(f"no such payload: {', '.join(sorted(unknown))}")
    for fault in options.inject:
        if fault.name == "child" and not {"step", "fault"} <= set(fault.where):
            parser.error("child needs step= and fault=")


def _job_time_s() -> float:
    """Return the seconds that are left of the job, where Slurm says when it ends."""
    end = os.environ.get("SLURM_JOB_END_TIME", "")
    return max(SPARE_S, float(end) - time.time() - SPARE_S) if end.isdecimal() else float("inf")


def _devices(session: Session) -> int:
    """Count the devices; the record of the first runners is part of the environment."""
    torch = session.need_torch()
    devices = session.devices()
    env = session.report.env
    env["cuda_available"] = bool(torch.cuda.is_available())
    env["cuda_device_count"] = torch.cuda.device_count()
    default = ON_CPU if devices == ["cpu"] else len(devices)
    return session.options.ranks or default


def _outcome(
    session: Session, payload: PayloadSpec, devices: int, left_s: float, ended: dict[str, Ended]
) -> Ended:
    """Run a payload, or say why not."""
    name, step = payload.name, _step(payload, session.options)
    need = blocked(payload, ended)
    if need:
        return Ended(name, "SKIP", "not_run", f"{name}: not run, it needs {need}")
    seconds = time_for(step, left_s)
    if seconds is None:
        short = f"{max(0, left_s):.0f} s are left of the budget, {step.expected_s:.0f} are needed"
        return Ended(name, "WARN", "not_run", f"{name}: not run, {short}")
    session.say("RUN", f"{name} …")
    return _run(payload, session.options, devices, seconds)


def _step(payload: PayloadSpec, options: argparse.Namespace) -> Step:
    """Return a payload's step in the profile; `check` gets DCGM's diagnosis and its time."""
    step = payload.steps[options.profile]
    if payload.name != "check" or not options.dcgm:
        return step
    more = int(TIMES_S[options.dcgm])
    return Step(
        (*step.arguments, "--dcgm", str(options.dcgm)), step.expected_s, step.timeout_s + more
    )


def _run(payload: PayloadSpec, options: argparse.Namespace, devices: int, seconds: float) -> Ended:
    """Run a payload for at most so many seconds, its output and its result in files."""
    folder, name = Path(options.report_dir), payload.name
    result, log, errors = (folder / f"{name}{end}" for end in ("_result.json", ".out", ".err"))
    command = _command(payload, options, devices, seconds)
    try:
        result.unlink(missing_ok=True)  # what an earlier run left is no answer
        files.opened(errors).close()
        outcome = programs.run_limited(command, log=log, errors=errors, timeout=seconds + GRACE_S)
    except OSError as error:
        return Ended(name, "ERROR", "could_not_run", f"{name}: {error}")
    _spoil(name, options, result)
    done = judge(name, result, outcome)
    done.stdout = log.read_text(errors="replace")[-TEXT:]
    done.stderr = errors.read_text(errors="replace")[-TEXT:]
    return done


def _command(
    payload: PayloadSpec, options: argparse.Namespace, devices: int, seconds: float
) -> list[str]:
    """Return the command line: torchrun where each device has a rank of its own."""
    words = [sys.executable]
    if payload.starts == RANKS and devices > 1:
        words += ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={devices}"]
    words.append(str(Path(__file__).with_name(f"{payload.name}.py")))
    words += _fitted(_step(payload, options).arguments, seconds)
    words += ["--device", options.device, "--backend", options.backend, "--seed", str(options.seed)]
    words += ["--report-dir", options.report_dir, "--report-name", f"{payload.name}_result.json"]
    words += ["--timeout", f"{seconds:.0f}"]
    words += ["--require-gpu"] * options.require_gpu + ["--verbose"] * options.verbose
    if options.requested_gpu:
        words += ["--requested-gpu", options.requested_gpu]
    for fault in options.inject:
        if fault.name == "child" and fault.where["step"] == payload.name:
            words += ["--inject", fault.where["fault"]]
    return words


def _fitted(arguments: Sequence[str], seconds: float) -> list[str]:
    """Shorten `--duration N` to what there is time for."""
    fitted = list(arguments)
    if "--duration" in fitted:
        at = fitted.index("--duration") + 1
        fitted[at] = f"{min(float(fitted[at]), max(5.0, seconds - SPARE_S)):g}"
    return fitted


def _spoil(name: str, options: argparse.Namespace, result: Path) -> None:
    """Delete or truncate a result file (injected faults)."""
    for fault in options.inject:
        if fault.where.get("step") == name and result.exists():
            if fault.name == "lost-result":
                result.unlink()
            elif fault.name == "cut-short":
                result.write_text(result.read_text()[:-20])


def _add(session: Session, done: Ended) -> None:
    details = {"seconds": round(done.seconds, 2), "returncode": done.returncode}
    session.report.add(
        f"run_all.{done.name}", done.status, code=done.code, reason=done.reason,
        details={**details, "summary": done.summary},
    )  # fmt: skip


def _summarize(session: Session, names: Sequence[str], ended: dict[str, Ended]) -> None:
    """Print the outcomes and add them to the report, under the first version's keys too."""
    missing = {"returncode": None, "stdout": "", "stderr": ""}
    extra = session.report.extra
    for key, payload in LEGACY_KEYS.items():
        extra[key] = ended[payload].as_legacy() if payload in ended else missing
    codes = [f"{key} rc={extra[key]['returncode']}" for key in LEGACY_KEYS]
    session.say("SUMMARY", "; ".join(codes))
    for done in ended.values():
        session.say("SUMMARY", f"{done.name:14} {done.status:5} {done.seconds:6.1f} s")
    not_run = [done.name for done in ended.values() if done.code == "not_run"]
    extra["not_run"] = not_run + [name for name in names if name not in ended]
    not_run_text = ", ".join(extra["not_run"]) or "nothing, all of it was"
    session.say("SUMMARY", f"not run: {not_run_text}")
    session.tested = what_passed(ended.values())


def what_passed(ended: Collection[Ended]) -> str:
    """Name the payloads that passed, and what they say they could not test."""
    passed = [done for done in ended if done.status == "PASS"]
    lacking = [done.reason for done in passed if done.reason]
    return "; ".join([", ".join(done.name for done in passed), *lacking])


def chosen(profile: str, only: Collection[str]) -> list[PayloadSpec]:
    """Return the payloads of a profile, or those that were named, in the catalogue's order."""
    if only:
        return [payload for payload in PAYLOADS if payload.name in only]
    return [payload for payload in PAYLOADS if profile != SMOKE or not payload.extra]


def blocked(payload: PayloadSpec, ended: Mapping[str, Ended]) -> str | None:
    """Name the payload that this one needs and that failed or was blocked; None if it may run.

    What was not chosen blocks nothing. Siblings of a failed payload run: they may name another
    fault.
    """
    for need in payload.needs:
        if need in ended and not ended[need].may_be_built_on:
            return need
    return None


def time_for(step: Step, left_s: float) -> float | None:
    """Return the seconds a step may take; None where fewer are left than it should take."""
    return None if left_s < step.expected_s else min(left_s, step.timeout_s)


def judge(name: str, path: Path, outcome: programs.Outcome) -> Ended:
    """Decide from the result file; without one nothing passed, whatever the exit code says."""
    document, why_not = _read(path)
    facts: dict[str, Any] = {"seconds": outcome.seconds, "returncode": outcome.returncode}
    if document is None:
        late = f" within {outcome.seconds:.0f} s" if outcome.timed_out else ""
        reason = f"{name}: {why_not}{late} (exit code {outcome.returncode})"
        code = "timeout" if outcome.timed_out else "no_result"
        return Ended(name, "ERROR", code, reason, **facts)
    summary = document["summary"]
    status, code = summary["status"], _code(document, summary["status"])
    reason = f"{name}: {summary['reason']}" if summary.get("reason") else ""
    odd = _odd_end(summary, outcome)
    if odd:
        code = "timeout" if outcome.timed_out else "crashed"
        status, reason = "ERROR", f"{name}: said {status}, and {odd} after it"
    return Ended(name, status, code, reason, summary=summary, **facts)


def _odd_end(summary: Mapping[str, Any], outcome: programs.Outcome) -> str:
    """Say how a program ended that said it was well, "" where it ended well too."""
    own = summary["exit_code"]
    # torchrun ends with 1 for any code of its ranks.
    ends = (0, 1, EXIT_CODES["SKIP"]) if summary["status"] == "SKIP" else (own, min(own, 1))
    is_well = summary["status"] in ("PASS", "WARN", "SKIP")
    if not is_well or (outcome.returncode in ends and not outcome.timed_out):
        return ""
    if outcome.timed_out:
        return "had to be ended"
    if outcome.returncode < 0:
        return f"died of signal {-outcome.returncode}"
    return f"ended with exit code {outcome.returncode}"


def _read(path: Path) -> tuple[dict[str, Any] | None, str]:
    """Read a result file; None and why for one that is no whole and honest result."""
    try:
        document = json.loads(path.read_text())
    except OSError:
        return None, "it wrote no result"
    except ValueError:
        return None, "its result file is cut short"
    wrong = _what_is_wrong(document)
    return (None, f"its result file {wrong}") if wrong else (document, "")


def _what_is_wrong(document: Any) -> str:
    """Return what makes a document no valid result, or ""."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return f"is not of schema {SCHEMA}"
    summary, tests = document.get("summary"), document.get("tests")
    if not isinstance(summary, dict) or not isinstance(tests, list):
        return "lacks its tests or its summary"
    statuses = [test.get("status") for test in tests if isinstance(test, dict)]
    status = summary.get("status")
    if status not in WORST_FIRST or status != worst(statuses):
        return "has a summary that does not follow from its tests"
    if not isinstance(summary.get("exit_code"), int):
        return "has no exit code"
    return ""


def _code(document: dict[str, Any], status: str) -> str:
    """Return the code of the test whose reason the status has; a pass has none."""
    if status == "PASS":
        return ""
    codes = [test.get("code") or "" for test in document["tests"] if test.get("status") == status]
    return min(codes, key=lambda code: code == "interrupted", default="")


PAYLOAD = Payload(
    "run_all",
    "Run all payloads on this node, each resting on those before it.",
    body,
    add_flags=add_flags,
    check=check,
    stands_for="run_all_tests",
)

if __name__ == "__main__":
    run(PAYLOAD)
