#!/usr/bin/env python3
"""Checkpoint and go on: interrupted in every way, a training must come to the same bits.

    python ckpt_cycle.py                                    # all cases, here, one after the other
    rv run --checkpoint --time 30m -- python ckpt_cycle.py --steps 600 --pause 1     # a real chain
    torchrun --nproc_per_node=4 ckpt_cycle.py --mode segment --steps 600

By itself it runs cases: straight, stopped and resumed, SIGUSR1, SIGTERM, kill -9 in the middle of a
save, a truncated checkpoint, two writers, a full disk, two ranks loaded by one. As a segment of a
chain it trains from the newest checkpoint in --checkpoint-dir until its steps are done or until it
is asked to save, ends with 75 for "run me again", and checks the whole chain at its end.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import multiprocessing
import os
import signal
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _checkpoint import cases, segment
from _checkpoint.reshard import resharded
from _checkpoint.runner import SegmentRunner
from _checkpoint.training import Training
from _harness.flags import whole
from _harness.main import Payload, Session, run
from contract.schema import HIGHER, LOWER, metric
from contract.verdicts import NotPassed

if TYPE_CHECKING:
    from collections.abc import Callable

CASES: dict[str, Callable[[SegmentRunner], dict[str, Any]]] = {
    "straight": cases.straight,
    "resumed": cases.resumed,
    "usr1": functools.partial(cases.told_to_save, number=signal.SIGUSR1),
    "term": functools.partial(cases.told_to_save, number=signal.SIGTERM),
    "killed": cases.killed,
    "truncated": cases.truncated,
    "writers": cases.two_writers,
    "full": cases.full_disk,
    "reshard": resharded,
}
PATIENCE = 120.0
HEAVY = ("torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.checkpoint")


def body(session: Session) -> None:
    """Run the cases, or one segment of a chain."""
    if session.options.mode == "segment":
        with session.attempt("checkpoint.segment"):
            _segment(session)
    else:
        _cases(session)


def _cases(session: Session) -> None:
    torch, options = session.need_torch(), session.options
    device = session.devices()[0]
    names = ["straight", *(name for name in options.cases if name != "straight")]
    if options.checkpoint_dir:
        Path(options.checkpoint_dir).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ckpt-", dir=options.checkpoint_dir or None) as root:
        basis = segment.Plan(folder=root, steps=cases.STEPS, seed=options.seed, device=device)
        faults = frozenset(fault.name for fault in options.inject)
        patience_s = min(PATIENCE, session.left())
        runner = SegmentRunner(torch, Path(root), _context(device), basis, faults, patience_s)
        for name in names:
            session.test = f"checkpoint.{name}"
            _try(session, runner, name)


def _context(device: str) -> Any:
    """Return a context whose processes need not import torch: that takes longer than most cases.

    A process that has asked CUDA for its devices cannot fork; one that never did does it then.
    """
    if device != "cpu":
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(HEAVY))
        return context
    for name in HEAVY:
        importlib.import_module(name)
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork.*")
    return multiprocessing.get_context("fork")


def _try(session: Session, runner: SegmentRunner, name: str) -> None:
    try:
        details = CASES[name](runner)
    except NotPassed as outcome:
        session.fail(outcome)
        session.say("TRAIN", f"{name}: {outcome.status} {outcome.reason}")
    else:
        metrics = _metrics(details) if "save_s" in details else []
        session.report.add(session.test, "PASS", details=details, metrics=metrics)
        figures = "  ".join(f"{one['name']} {one['value']:.4g} {one['unit']}" for one in metrics)
        session.say("TRAIN", f"{name}: PASS {figures}")


def _metrics(details: dict[str, Any]) -> list[dict[str, Any]]:
    saves, nbytes, metrics = details["save_s"], details["bytes"], []
    if saves:
        metrics.append(metric("save_s", saves, "s", LOWER, bytes=nbytes))
        rates = [nbytes / seconds / 1e9 for seconds in saves]
        metrics.append(metric("save_rate", rates, "GB/s", HIGHER))
    if details["restore_s"]:
        metrics.append(metric("restore_s", details["restore_s"], "s", LOWER, bytes=nbytes))
    return metrics


def _segment(session: Session) -> None:
    """Train until done or asked to save; then write `done` or `again` to `.rv-next` for rv."""
    torch, options = session.need_torch(), session.options
    device = session.devices()[0]
    torch.set_num_threads(1)  # the model is small: more threads only wait for each other
    folder = Path(options.checkpoint_dir)
    folder.mkdir(parents=True, exist_ok=True)
    plan = segment.Plan(
        folder=str(folder), steps=options.steps, seed=options.seed, device=device,
        every=options.every, pause=options.pause,
        faults=tuple(fault.name for fault in options.inject),
    )  # fmt: skip
    joined = contextlib.nullcontext() if session.ranks.alone else session.group(device)
    with joined as group:
        must_save = segment.SaveRequest(folder, (signal.SIGUSR1, signal.SIGTERM))
        dist = group.dist if group else None
        ran = segment.run(torch, plan, must_save, dist)
        session.say("TRAIN", f"segment {ran.segment}: steps {ran.first} to {ran.last}, {ran.why}")
        if ran.why == "done":
            with session.attempt("checkpoint.chain"):
                _check_chain(session, plan, ran, dist)
    if session.ranks.rank == 0:
        (folder / ".rv-next").write_text("done" if ran.why == "done" else "again")
    if ran.why != "done":
        reason = f"segment {ran.segment} saved step {ran.last} of {options.steps}: run it again"
        session.report.add("checkpoint.segment", "WARN", code="preempted", reason=reason)
        session.exit_code = segment.AGAIN


def _check_chain(session: Session, plan: segment.Plan, ran: segment.Ran, dist: Any) -> None:
    """Check the whole chain: every step once, and the bits of a run without interruptions."""
    folder, expected = Path(plan.folder), _straight_digest(session.torch, plan, dist)
    covered = segment.coverage(segment.read_steps(folder)) if session.ranks.rank == 0 else None
    if expected != ran.digest:
        reason = f"after {ran.segment} segments the weights are not those of a straight run"
        raise NotPassed("FAIL", "resume_mismatch", reason)
    if covered and (covered.wrong or covered.last != plan.steps):
        reason = covered.wrong or f"the last step is {covered.last}, not {plan.steps}"
        raise NotPassed("FAIL", "steps_lost", reason)
    if covered is None:
        session.report.add("checkpoint.chain", "PASS")
        return
    segment.require_kept(folder)
    segment.require_none_skipped(folder)
    done = {"segments": ran.segment, "lost_steps": covered.lost, "digest": ran.digest}
    details = {**done, **segment.figures(folder)}
    session.report.add("checkpoint.chain", "PASS", details=details, metrics=_metrics(details))
    session.say("TRAIN", f"chain of {ran.segment}: every step once, {covered.lost} done again")


def _straight_digest(torch: Any, plan: segment.Plan, dist: Any) -> str:
    """Train all steps without an interruption; return the digest of the weights."""
    straight = Training(torch, plan.device, plan.seed, steps=plan.steps, dist=dist)
    for _ in range(plan.steps):
        straight.step()
    return straight.digest()


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this payload's flags."""
    parser.add_argument("--mode", choices=["auto", "cases", "segment"], default="auto",
                        help="auto: a segment in a chain of rv's, else the cases")  # fmt: skip
    parser.add_argument("--cases", type=_cases_named, default=list(CASES), help="comma-separated")
    parser.add_argument("--checkpoint-dir", default=os.environ.get("RV_CHECKPOINT_DIR", ""),
                        help="where checkpoints go (default: RV_CHECKPOINT_DIR)")  # fmt: skip
    parser.add_argument("--steps", type=whole, default=200, help="of a chain")
    parser.add_argument(
        "--every", type=whole, default=10, help="steps between checkpoints of a chain"
    )
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds after each step of a chain"
    )


def _cases_named(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no case {unknown[0]!r}: {', '.join(CASES)}")
    return names


def check_flags(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Choose the mode, and refuse what it cannot be used with."""
    chained = os.environ.get("RV_SEGMENT", "") != ""
    if options.mode == "auto":
        options.mode = "segment" if chained else "cases"
    if options.mode == "cases" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        parser.error("the cases start ranks of their own: run it with python, not torchrun")
    if options.mode == "segment" and not options.checkpoint_dir:
        parser.error("a segment needs --checkpoint-dir or RV_CHECKPOINT_DIR")
    if options.pause < 0:
        parser.error("--pause is not below 0")


if __name__ == "__main__":
    run(
        Payload(
            name="ckpt_cycle",
            description="Interrupted in every way, a training comes to the same bits.",
            body=body,
            timeout=86400.0 if os.environ.get("RV_SEGMENT") else 600.0,
            add_flags=add_flags,
            check=check_flags,
            needs_numpy=True,
        )
    )
