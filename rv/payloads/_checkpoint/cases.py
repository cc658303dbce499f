"""Ways to interrupt a training, and what must hold after each: every case a function of a Lab.

A case gives details for the result, and raises NotPassed for what does not hold.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.verdicts import NotPassed

from . import steps, store
from .disk import small_disk
from .lab import fault_names
from .segment import AGAIN, Plan, history

if TYPE_CHECKING:
    from .lab import Lab

STEPS, EVERY = 24, 4
BEFORE, HOLD = 3, 30.0
"""Steps that a segment has done before it is interrupted, and seconds that it waits for that."""

SAVES = 12


def straight(lab: Lab) -> dict[str, Any]:
    """Train without an interruption: what all others must come to."""
    plan = lab.plan("straight", faults=fault_names(lab, "repeat-step"))
    lab.require_exit(plan, lab.finished(plan), 0, "resume_mismatch")
    log = steps.read(Path(plan.folder))
    lab.straight = {line.step: line.digest for line in log}
    lab.require_same(plan)
    return {"digest": history(Path(plan.folder))[-1]["digest"], "steps": plan.steps}


def resumed(lab: Lab) -> dict[str, Any]:
    """Stop half-way, go on in a new process: the same bits after every step."""
    half = lab.basis.steps // 2
    plan = lab.plan("resumed", stop_at=half)
    lab.require_exit(plan, lab.finished(plan), AGAIN, "resume_mismatch")
    faults = fault_names(lab, "forget-random", "forget-optimizer")
    return _gone_on(lab, lab.plan("resumed", faults=faults), lost=0) | _figures(plan)


def _gone_on(lab: Lab, plan: Plan, lost: int) -> dict[str, Any]:
    """Run the rest; steps beyond the last checkpoint, `lost` of them, were done twice."""
    lab.require_exit(plan, lab.finished(plan), 0, "checkpoint_lost")
    covered = lab.require_same(plan)
    if covered.lost != lost:
        reason = f"{Path(plan.folder).name}: {covered.lost} steps were lost, not {lost}"
        raise NotPassed("FAIL", "steps_lost", reason)
    last = history(Path(plan.folder))[-1]
    return {"lost_steps": covered.lost, "segments": last["segment"], "skipped": last["skipped"]}


def _figures(plan: Plan) -> dict[str, Any]:
    """Give what saving and loading took, from the segments' own record."""
    every = history(Path(plan.folder))
    return {
        "save_s": [seconds for one in every for seconds in one["saves"]],
        "restore_s": [one["restore"] for one in every if one["first"]],
        "bytes": max(one["nbytes"] for one in every),
    }


def told_to_save(lab: Lab, number: signal.Signals) -> dict[str, Any]:
    """Signal it in the middle: it saves at the next step and asks to be run again."""
    name = number.name.lower()
    faults = fault_names(lab, "ignore-signal")
    plan = lab.plan(name, hold_at=BEFORE, hold=2.0 if faults else HOLD, faults=faults)
    folder = Path(plan.folder)
    with lab.started(plan) as process:
        lab.wait(lambda: len(steps.read(folder)) >= BEFORE, "the first steps")
        os.kill(process.pid, number)
        code = lab.ended(process)
    lab.require_exit(plan, code, AGAIN, "signal_ignored")
    return _gone_on(lab, lab.plan(name), lost=0)


def killed(lab: Lab) -> dict[str, Any]:
    """Kill it outright between writing a checkpoint and giving it its name."""
    dies = 3 * EVERY
    plan = lab.plan("killed", die_at=dies, faults=fault_names(lab, "in-place"))
    lab.require_exit(plan, lab.finished(plan), -signal.SIGKILL, "signal_ignored")
    newest = lab.whole(plan)
    if newest.skipped or newest.step != dies - EVERY:
        reason = f"kill -9 left a broken checkpoint under its final name: {newest.skipped}"
        raise NotPassed("FAIL", "checkpoint_corrupt", reason)
    found = _gone_on(lab, lab.plan("killed"), lost=EVERY)
    _require_no_drafts(plan)
    return found


def _require_no_drafts(plan: Plan) -> None:
    left = store.drafts(Path(plan.folder))
    if left:
        reason = f"{Path(plan.folder).name}: drafts were left behind: {', '.join(left)}"
        raise NotPassed("FAIL", "checkpoint_corrupt", reason)


def truncated(lab: Lab) -> dict[str, Any]:
    """Cut the newest checkpoint short: it goes on from the one before."""
    half = 3 * EVERY
    plan = lab.plan("truncated", stop_at=half)
    lab.require_exit(plan, lab.finished(plan), AGAIN, "resume_mismatch")
    newest = sorted(Path(plan.folder).glob(store.PATTERN))[-1]
    os.truncate(newest, newest.stat().st_size // 2)
    resume = lab.plan("truncated", faults=fault_names(lab, "trust-newest"))
    found = _gone_on(lab, resume, lost=EVERY)
    if not found["skipped"]:
        reason = f"{newest.name} was cut short and nobody noticed"
        raise NotPassed("FAIL", "checkpoint_corrupt", reason)
    return found


def two_writers(lab: Lab) -> dict[str, Any]:
    """Two processes save the same steps into one folder: a reader never sees a broken one."""
    plan = lab.plan("writers", faults=fault_names(lab, "shared-draft"))
    gate = lab.context.Barrier(2)
    writers = [lab.context.Process(target=_write_often, args=(plan, gate)) for _ in range(2)]
    for writer in writers:
        writer.start()
    reads, broken = 0, []
    while any(writer.is_alive() for writer in writers):
        broken += lab.whole(plan).skipped
        reads += 1
        for writer in writers:
            writer.join(0.005)
    codes = [lab.ended(writer) for writer in writers]
    newest = lab.whole(plan)
    broken += newest.skipped
    if any(codes) or broken or newest.step != SAVES:
        said = broken or [f"the writers ended with {codes}, the newest is step {newest.step}"]
        raise NotPassed("FAIL", "checkpoint_corrupt", f"two writers at once: {said[0]}")
    _require_no_drafts(plan)
    return {"saves": 2 * SAVES, "reads": reads}


def _write_often(plan: Plan, gate: Any) -> None:
    """Save the same steps as the other writer, in step with it between draft and name."""
    import torch

    from .training import Training

    signal.set_wakeup_fd(-1)
    torch.set_num_threads(1)
    training = Training(torch, "cpu", plan.seed, steps=plan.steps, width=plan.width)
    folder = Path(plan.folder)
    for _ in range(SAVES):
        training.done += 1
        try:
            state = training.state()
            store.save(torch, state, folder, faults=plan.faults, between=lambda: gate.wait(30))
        except store.Unwritten:
            gate.abort()
            os._exit(1)


def full_disk(lab: Lab) -> dict[str, Any]:
    """Fill the disk: the save fails by name, the checkpoint before it stays, no draft is left."""
    plan = lab.plan("full", stop_at=EVERY)
    process = lab.context.Process(
        target=_fill, args=(plan, fault_names(lab, "keep-draft"), str(lab.root / "full.how"))
    )
    process.start()
    code = lab.ended(process)
    said = Path(f"{plan.folder}.error")
    if code != 0:
        reason = said.read_text() if said.exists() else f"ended with {code}"
        raise NotPassed("FAIL", "checkpoint_lost", f"a full disk: {reason}")
    return {"how": (lab.root / "full.how").read_text()}


def _fill(plan: Plan, faults: tuple[str, ...], how: str) -> None:
    """Save until a small disk is full; leave with 0 if all is as it should be."""
    import torch

    from .training import Training

    signal.set_wakeup_fd(-1)
    torch.set_num_threads(1)
    folder = Path(plan.folder)
    training = Training(torch, "cpu", plan.seed, steps=plan.steps, width=plan.width)
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
