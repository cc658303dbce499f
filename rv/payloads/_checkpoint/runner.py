"""Run segments of a training as processes, in folders under one root, beside a straight run."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.verdicts import NotPassed

from . import segment, store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass
class SegmentRunner:
    """What the cases share. `context` starts processes, `patience_s` bounds each wait."""

    torch: Any
    root: Path
    context: Any
    basis: segment.Plan
    faults: frozenset[str]
    patience_s: float
    straight: dict[int, str] = field(default_factory=dict)

    def plan(self, name: str, **more: Any) -> segment.Plan:
        """Return a plan with a folder of its own."""
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        return replace(self.basis, folder=str(folder), **more)

    @contextlib.contextmanager
    def started(self, plan: segment.Plan) -> Iterator[Any]:
        """Run a segment in a process that does not outlive the block."""
        process = self.context.Process(target=segment.child, args=(plan,))
        process.start()
        try:
            yield process
        finally:
            if process.is_alive():
                process.kill()
            process.join()

    def finished(self, plan: segment.Plan) -> int:
        """Run a segment to its end; return its exit code."""
        with self.started(plan) as process:
            return self.ended(process)

    def ended(self, process: Any) -> int:
        """Wait for a process to end, return its exit code; raises NotPassed if it does not end."""
        process.join(self.patience_s)
        if process.exitcode is None:
            reason = f"a segment did not end within {self.patience_s:g} s"
            raise NotPassed("FAIL", "signal_ignored", reason)
        return int(process.exitcode)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds; raises NotPassed (`timeout`) after `patience_s`."""
        deadline = time.monotonic() + self.patience_s
        while not condition():
            if time.monotonic() > deadline:
                raise NotPassed("ERROR", "timeout", f"{what} did not come in {self.patience_s:g} s")
            time.sleep(0.005)

    def require_exit(self, plan: segment.Plan, code: int, expected: int, code_if_not: str) -> None:
        """Raise NotPassed for another exit code than expected, with the process's error."""
        if code == expected:
            return
        error = Path(f"{plan.folder}.error")
        message = f": {error.read_text()}" if error.exists() else ""
        reason = f"{Path(plan.folder).name}: ended with {code}, not {expected}{message}"
        raise NotPassed("FAIL", code_if_not, reason)

    def require_same(self, plan: segment.Plan) -> segment.Coverage:
        """Raise NotPassed unless each step was done once and to the straight run's digest."""
        log = segment.read_steps(Path(plan.folder))
        name, covered = Path(plan.folder).name, segment.coverage(log)
        for line in log:
            if line.digest != self.straight.get(line.step):
                reason = f"{name}: after resuming, step {line.step} gave other weights"
                raise NotPassed("FAIL", "resume_mismatch", reason)
        if covered.wrong or covered.last != plan.steps:
            reason = covered.wrong or f"the last step is {covered.last}, not {plan.steps}"
            raise NotPassed("FAIL", "steps_lost", f"{name}: {reason}")
        segment.require_kept(Path(plan.folder))
        return covered

    def whole(self, plan: segment.Plan) -> store.Loaded:
        """Load the newest whole checkpoint of a folder."""
        return store.load(self.torch, Path(plan.folder))


def fault_names(runner: SegmentRunner, *names: str) -> tuple[str, ...]:
    """Return those of `names` that are injected."""
    return tuple(name for name in names if name in runner.faults)
