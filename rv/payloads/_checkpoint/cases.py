"""Ways to interrupt a training, and what must hold after each: one function a case.

A case returns details for the result, and raises NotPassed for what does not hold.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.verdicts import NotPassed

from . import segment, store
from .runner import fault_names
from .segment import AGAIN, Plan, history

if TYPE_CHECKING:
    from .runner import SegmentRunner


STEPS, EVERY = 24, 4
BEFORE, HOLD = 3, 30.0
"""Steps that a segment has done before it is interrupted, and seconds that it waits for that."""

SAVES = 12
OF_STRAIGHT = ("repeat-step", "corrupt-save", "lost-save")
"""Faults of the run that nothing interrupts, whose checkpoints nobody goes on from."""


def straight(runner: SegmentRunner) -> dict[str, Any]:
    """Train without an interruption: what all others must come to."""
    plan = runner.plan("straight", faults=fault_names(runner, *OF_STRAIGHT))
    runner.require_exit(plan, runner.finished(plan), 0, "resume_mismatch")
    log = segment.read_steps(Path(plan.folder))
    runner.straight = {line.step: line.digest for line in log}
    runner.require_same(plan)
    return {"digest": history(Path(plan.folder))[-1]["digest"], "steps": plan.steps}


def resumed(runner: SegmentRunner) -> dict[str, Any]:
    """Stop half-way, go on in a new process: the same bits after every step."""
    half = runner.basis.steps // 2
    plan = runner.plan("resumed", stop_at=half)
    runner.require_exit(plan, runner.finished(plan), AGAIN, "resume_mismatch")
    faults = fault_names(runner, "forget-random", "forget-optimizer")
    details = _gone_on(runner, runner.plan("resumed", faults=faults), lost=0)
    return details | segment.figures(Path(plan.folder))


def _gone_on(runner: SegmentRunner, plan: Plan, lost: int) -> dict[str, Any]:
    """Run the rest; steps beyond the last checkpoint, `lost` of them, were done twice."""
    runner.require_exit(plan, runner.finished(plan), 0, "checkpoint_lost")
    covered = runner.require_same(plan)
    if covered.lost != lost:
        reason = f"{Path(plan.folder).name}: {covered.lost} steps were lost, not {lost}"
        raise NotPassed("FAIL", "steps_lost", reason)
    last = history(Path(plan.folder))[-1]
    return {"lost_steps": covered.lost, "segments": last["segment"], "skipped": last["skipped"]}


def told_to_save(runner: SegmentRunner, number: signal.Signals) -> dict[str, Any]:
    """Signal it in the middle: it saves at the next step and asks to be run again."""
    name = number.name.lower()
    faults = fault_names(runner, "ignore-signal")
    plan = runner.plan(name, hold_at=BEFORE, hold=2.0 if faults else HOLD, faults=faults)
    folder = Path(plan.folder)
    with runner.started(plan) as process:
        runner.wait(lambda: len(segment.read_steps(folder)) >= BEFORE, "the first steps")
        os.kill(process.pid, number)
        code = runner.ended(process)
    runner.require_exit(plan, code, AGAIN, "signal_ignored")
    return _gone_on(runner, runner.plan(name), lost=0)


def killed(runner: SegmentRunner) -> dict[str, Any]:
    """Kill it outright between writing a checkpoint and giving it its name."""
    dies = 3 * EVERY
    plan = runner.plan("killed", die_at=dies, faults=fault_names(runner, "in-place"))
    runner.require_exit(plan, runner.finished(plan), -signal.SIGKILL, "signal_ignored")
    newest = runner.whole(plan)
    if newest.skipped or newest.step != dies - EVERY:
        reason = f"kill -9 left a broken checkpoint under its final name: {newest.skipped}"
        raise NotPassed("FAIL", "checkpoint_corrupt", reason)
    details = _gone_on(runner, runner.plan("killed"), lost=EVERY)
    _require_no_drafts(plan)
    return details


def _require_no_drafts(plan: Plan) -> None:
    left = store.drafts(Path(plan.folder))
    if left:
        reason = f"{Path(plan.folder).name}: drafts were left behind: {', '.join(left)}"
        raise NotPassed("FAIL", "checkpoint_corrupt", reason)


def truncated(runner: SegmentRunner) -> dict[str, Any]:
    """Cut the newest checkpoint short: it goes on from the one before."""
    half = 3 * EVERY
    plan = runner.plan("truncated", stop_at=half)
    runner.require_exit(plan, runner.finished(plan), AGAIN, "resume_mismatch")
    newest = sorted(Path(plan.folder).glob(store.PATTERN))[-1]
    os.truncate(newest, newest.stat().st_size // 2)
    resume = runner.plan("truncated", faults=fault_names(runner, "trust-newest"))
    details = _gone_on(runner, resume, lost=EVERY)
    if not details["skipped"]:
        reason = f"{newest.name} was cut short and nobody noticed"
        raise NotPassed("FAIL", "checkpoint_corrupt", reason)
    return details


def two_writers(runner: SegmentRunner) -> dict[str, Any]:
    """Two processes save the same steps into one folder: a reader never sees a broken one."""
    plan = runner.plan("writers", faults=fault_names(runner, "shared-draft"))
    gate = runner.context.Barrier(2)
    writers = [runner.context.Process(target=_write_often, args=(plan, gate)) for _ in range(2)]
    for writer in writers:
        writer.start()
    broken, reads = _read_while(runner, plan, writers)
    codes = [runner.ended(writer) for writer in writers]
    newest = runner.whole(plan)
    broken += newest.skipped
    if any(codes) or broken or newest.step != SAVES:
        problems = broken or [f"the writers ended with {codes}, the newest is step {newest.step}"]
        raise NotPassed("FAIL", "checkpoint_corrupt", f"two writers at once: {problems[0]}")
    _require_no_drafts(plan)
    return {"saves": 2 * SAVES, "reads": reads}


def _read_while(runner: SegmentRunner, plan: Plan, writers: list[Any]) -> tuple[list[str], int]:
    """Load the newest checkpoint while they write; return the broken ones and how many loads."""
    reads, broken = 0, []
    while any(writer.is_alive() for writer in writers):
        broken += runner.whole(plan).skipped
        reads += 1
        for writer in writers:
            writer.join(0.005)
    return broken, reads


def _write_often(plan: Plan, gate: Any) -> None:
    """Save the same steps as the other writer, in step with it between draft and name."""
    import torch

    from .training import Training

    signal.set_wakeup_fd(-1)
    torch.set_num_threads(1)
    training = Training(torch, "cpu", plan.seed, steps=plan.steps)
    folder = Path(plan.folder)
    for _ in range(SAVES):
        training.done += 1
        try:
            state = training.state()
            store.save(torch, state, folder, faults=plan.faults, between=lambda: gate.wait(30))
        except store.Unwritten:
            gate.abort()
            os._exit(1)


def full_disk(runner: SegmentRunner) -> dict[str, Any]:
    """Fill the disk: the save fails by name, the checkpoint before it stays, no draft is left."""
    plan = runner.plan("full", stop_at=EVERY)
    process = runner.context.Process(
        target=_fill, args=(plan, fault_names(runner, "keep-draft"), str(runner.root / "full.how"))
    )
    process.start()
    code = runner.ended(process)
    error = Path(f"{plan.folder}.error")
    if code != 0:
        reason = error.read_text() if error.exists() else f"ended with {code}"
        raise NotPassed("FAIL", "checkpoint_lost", f"a full disk: {reason}")
    return {"how": (runner.root / "full.how").read_text()}


def _fill(plan: Plan, faults: tuple[str, ...], how: str) -> None:
    """Save until a small disk is full; leave with 0 if all is as it should be."""
    import torch

    from .training import Training

    signal.set_wakeup_fd(-1)
    torch.set_num_threads(1)
    folder = Path(plan.folder)
    training = Training(torch, "cpu", plan.seed, steps=plan.steps)
    training.done = 1
    one = store.save(torch, training.state(), folder).nbytes
    Path(how).write_text(small_disk(folder, one + one // 2))
    if not any(folder.iterdir()):
        store.save(torch, training.state(), folder)
    training.done = 2
    error = "a disk of one checkpoint and a half took two"
    try:
        store.save(torch, training.state(), folder, faults=faults)
    except store.Unwritten:
        newest, left = store.load(torch, folder), store.drafts(folder)
        error = "" if newest.step == 1 and not newest.skipped else "the one before it is gone"
        error = f"a draft was left behind: {left[0]}" if left else error
    if error:
        Path(f"{plan.folder}.error").write_text(error)
    # Not sys.exit: what Python and torch still want to flush would meet the full disk.
    os._exit(1 if error else 0)


CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000


def small_disk(folder: Path, nbytes: int) -> str:
    """Mount a disk of `nbytes` on a folder, for this process alone; return how it is limited.

    Where a process may not mount, files over half of it are refused instead.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNS) != 0:
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0:
            return _limited(nbytes)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    # Without the first of them everybody would see the second.
    private = libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
    size = f"size={nbytes}".encode()
    if not private or libc.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, size) != 0:
        return _limited(nbytes)
    return f"tmpfs of {nbytes} bytes"


def _limited(nbytes: int) -> str:
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes // 2, nbytes // 2))
    return f"files limited to {nbytes // 2} bytes"
