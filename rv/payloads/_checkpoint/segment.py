"""One segment of a training: go on from the newest checkpoint until done, or until asked to stop.

Each step adds a line to a log, which shows steps that were lost, skipped or repeated.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contract.verdicts import PREEMPTED, NotPassed

from . import store
from .training import Training

if TYPE_CHECKING:
    from collections.abc import Callable


STEPS_LOG = "steps.log"


class Step(NamedTuple):
    """One step as it was done: by which segment, and the digest after it."""

    segment: int
    step: int
    digest: str


class Coverage(NamedTuple):
    """What a log shows: steps done again after a crash, and what is wrong ("" for nothing)."""

    last: int
    lost: int
    wrong: str


def append_step(folder: Path, step: Step) -> None:
    """Add a line in one write, which no other writer's can split."""
    handle = os.open(folder / STEPS_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, f"{step.segment} {step.step} {step.digest}\n".encode())
    finally:
        os.close(handle)


def read_steps(folder: Path) -> list[Step]:
    """Read the log; a last line without its end is one that was being written."""
    path = folder / STEPS_LOG
    if not path.exists():
        return []
    whole = path.read_text().rpartition("\n")[0].splitlines()
    words = [line.split() for line in whole]
    return [Step(int(segment), int(step), digest) for segment, step, digest in words]


def last_segment(folder: Path) -> int:
    """Return the number of the last segment that did a step, 0 for none."""
    return max((step.segment for step in read_steps(folder)), default=0)


def coverage(log: list[Step]) -> Coverage:
    """Judge a log: within a segment steps follow each other, a new one goes on from a checkpoint.

    Steps after that checkpoint were lost and are done again, to the same digests.
    """
    current = lost = segment = 0
    digests: dict[int, str] = {}
    for line in log:
        if line.segment != segment:
            lost += max(0, current - line.step + 1)
            current, segment = min(current, line.step - 1), line.segment
        if line.step != current + 1:
            how = "repeated" if line.step <= current else f"comes after step {current}"
            return Coverage(current, lost, f"step {line.step} of segment {segment} {how}")
        if digests.setdefault(line.step, line.digest) != line.digest:
            return Coverage(current, lost, f"step {line.step} done again gave other weights")
        current = line.step
    return Coverage(current, lost, "")


AGAIN = PREEMPTED
"""EX_TEMPFAIL: a checkpoint is written, run me again."""

SEGMENTS = "segments.jsonl"


@dataclass(frozen=True)
class Plan:
    """What a segment does. `pause` is slept after each step; `stop_at` ends it early, asked or not.

    At the step `hold_at` it waits, for `hold` seconds at most, until it is asked to save.
    `faults` are names; `die_at` is the step whose checkpoint the process dies while writing.
    """

    folder: str
    steps: int
    seed: int = 42
    device: str = "cpu"
    every: int = 4
    pause: float = 0.0
    stop_at: int = 0
    hold_at: int = 0
    hold: float = 0.0
    die_at: int = 0
    faults: tuple[str, ...] = ()


@dataclass
class Ran:
    """How a segment went. `saves` are seconds; `why` is done, told or stopped.

    `skipped` are the checkpoints that were found broken when it began, `broken` the steps whose
    checkpoint was another one when it was read back.
    """

    segment: int
    first: int
    last: int
    why: str = "done"
    digest: str = ""
    restore: float = 0.0
    nbytes: int = 0
    skipped: list[str] = field(default_factory=list)
    saves: list[float] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)


class SaveRequest:
    """A request for a checkpoint: a signal, or the file `.rv-stop` that rv makes."""

    def __init__(self, folder: Path, signals: tuple[int, ...]) -> None:
        self._file, self._signals = folder / ".rv-stop", 0
        signal.set_wakeup_fd(-1)
        for number in signals:
            signal.signal(number, self._take)

    def _take(self, _number: int, _frame: object) -> None:
        self._signals += 1

    def __call__(self) -> bool:
        """Return whether a checkpoint was asked for."""
        return self._signals > 0 or self._file.exists()


def run(torch: Any, plan: Plan, must_save: Callable[[], bool], dist: Any = None) -> Ran:
    """Train; on every rank alike. Raises store.Unwritten where a checkpoint cannot be saved."""
    folder = Path(plan.folder)
    training = Training(torch, plan.device, plan.seed, steps=plan.steps, dist=dist)
    if training.rank == 0:
        store.sweep(folder)
    start = time.perf_counter()
    loaded = store.load(torch, folder, faults=plan.faults)
    if loaded.state is not None:
        forget = next((name[7:] for name in plan.faults if name.startswith("forget-")), "")
        training.take_up(loaded.state, forget)
    number, done, restore = last_segment(folder) + 1, training.done, time.perf_counter() - start
    ran = Ran(number, done, done, restore=restore, skipped=loaded.skipped)
    if dist:
        dist.barrier()
    _train(torch, training, plan, ran, must_save)
    ran.last, ran.digest = training.done, training.digest()
    if training.rank == 0:
        with (folder / SEGMENTS).open("a") as log:
            log.write(json.dumps(ran.__dict__) + "\n")
    return ran


def _train(
    torch: Any, training: Training, plan: Plan, ran: Ran, must_save: Callable[[], bool]
) -> None:
    saved = training.done
    while training.done < plan.steps:
        start = time.monotonic()
        training.step()
        time.sleep(plan.pause)
        training.elapsed += time.monotonic() - start
        _log(training, plan, ran.segment)
        if training.done == plan.hold_at:
            deadline = time.monotonic() + plan.hold
            while not must_save() and time.monotonic() < deadline:
                time.sleep(0.01)
        ran.why = _why(torch, training, plan, must_save)
        if ran.why or training.done % plan.every == 0:
            _save(torch, training, plan, ran)
            saved = training.done
        if ran.why:
            return
    ran.why = "done"
    if saved < training.done:
        _save(torch, training, plan, ran)


def _log(training: Training, plan: Plan, segment: int) -> None:
    if training.rank == 0:
        line = Step(segment, training.done, training.digest()[:16])
        append_step(Path(plan.folder), line)
        if "repeat-step" in plan.faults and training.done == plan.every:
            append_step(Path(plan.folder), line)


def _why(torch: Any, training: Training, plan: Plan, must_save: Callable[[], bool]) -> str:
    """Return why to end now, or ""; all ranks agree, although signals come at different steps."""
    if training.done == plan.stop_at:
        return "stopped"
    is_asked = must_save()
    if training.dist:
        flag = torch.tensor([int(is_asked)], device=training.device)
        training.dist.all_reduce(flag, op=training.dist.ReduceOp.MAX)
        is_asked = bool(flag.item())
    return "told" if is_asked and training.done < plan.steps else ""


def _save(torch: Any, training: Training, plan: Plan, ran: Ran) -> None:
    state = training.state()
    if training.rank:
        return
    dies = training.done == plan.die_at
    between = (lambda: os.kill(os.getpid(), signal.SIGKILL)) if dies else None
    saved = store.save(torch, state, Path(plan.folder), faults=plan.faults, between=between)
    if "corrupt-save" in plan.faults:
        store.corrupt(Path(plan.folder) / f"step-{training.done:08d}.pt")
    if not store.is_kept(torch, Path(plan.folder), state):
        ran.broken.append(training.done)
    ran.saves.append(saved.seconds)
    ran.nbytes = saved.nbytes


def child(plan: Plan) -> None:
    """Run a segment as a process of its own: 0 done, 75 run me again, 99 with `error` written."""
    import torch

    torch.set_num_threads(1)
    folder = Path(plan.folder)
    signals = () if "ignore-signal" in plan.faults else (signal.SIGUSR1, signal.SIGTERM)
    must_save = SaveRequest(folder, signals)
    if "ignore-signal" in plan.faults:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        ran = run(torch, plan, must_save)
    except Exception as error:
        message = f"{type(error).__name__}: {error}".partition("\n")[0]
        (folder.parent / f"{folder.name}.error").write_text(message)
        sys.exit(99)
    sys.exit(0 if ran.why == "done" else AGAIN)


def history(folder: Path) -> list[dict[str, Any]]:
    """Return the segments that ended by themselves, oldest first."""
    path = folder / SEGMENTS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def require_kept(folder: Path) -> None:
    """Raise NotPassed where a checkpoint was another one when it was read back."""
    broken = [step for one in history(folder) for step in one["broken"]]
    if broken:
        reason = f"the checkpoint of step {broken[0]} was read back and is not what was saved"
        raise NotPassed("FAIL", "checkpoint_corrupt", reason, details={"steps": broken})


def require_none_skipped(folder: Path) -> None:
    """Raise NotPassed where a segment of a chain found a broken checkpoint under its name."""
    skipped = [name for one in history(folder) for name in one["skipped"]]
    if skipped:
        reason = f"a segment began with a broken checkpoint: {skipped[0]}"
        raise NotPassed("FAIL", "checkpoint_corrupt", reason, details={"skipped": skipped})


def figures(folder: Path) -> dict[str, Any]:
    """Return what saving and loading took (seconds, bytes), from the segments' own record."""
    every = history(folder)
    return {
        "save_s": [seconds for one in every for seconds in one["saves"]],
        "restore_s": [one["restore"] for one in every if one["first"]],
        "bytes": max(one["nbytes"] for one in every),
    }
