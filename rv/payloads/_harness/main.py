"""Run a payload: read its flags, give it its devices and ranks, and end with its verdict.

A payload is a function of a `Session`, described by a `Payload` and run by `run`:

    def body(session):
        torch = session.need_torch()
        device = session.devices()[0]
        with session.group(device) as group:
            ...
            session.report.add("mine.copy", "PASS", device=device, metrics=[...])

    if __name__ == "__main__":
        run(Payload("mine", "What it tests.", body))
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from _telemetry.health import Health
from _telemetry.sharing import Watch
from contract.catalogue import FAULTS
from contract.schema import SURROUNDINGS
from contract.verdicts import INTERRUPTED, TIMEOUT, NotPassed

from . import (
    collective_errors,
    cuda_errors,
    deadline,
    devices,
    environment,
    files,
    flags,
    for_job,
    judging,
    observing,
    ranks,
    timing,
    unfound,
)
from .first_forms import first_verdict
from .inject import Fault, Faults
from .report import Report

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

SOURCE_LINE = re.compile(r"^\[\S+:\d+\] ")  # gloo's own, before what it has to say
PATIENCE = 5.0  # seconds rank 0 waits for the others' files after a failure
ENDING = deadline.GRACE + PATIENCE  # after a signal: they may end by the grace; Slurm has 30 s
LATER = 8.0  # after its time: they may have begun later; `rv accept run` ends it after 10


def _nothing(*_: object) -> None:
    """No flags of its own, nothing more to check."""


@dataclass(frozen=True)
class Payload:
    """What a payload is: its name, what it does, and what it may be asked.

    `add_flags(parser)` adds its own; `check(parser, options)` refuses wrong ones with
    `parser.error`. The faults that its detectors find stand in `contract.catalogue`.
    `needs_numpy`: it calls parts of torch that are built on numpy.
    `aliases(report document)` gives more files to write: {name: JSON}. `stands_for` names the
    program of the first documents whose last line is printed too. `ends_with_job(options)`: it runs
    beside other work, such as a server, and may be ended without a verdict.
    """

    name: str
    description: str
    body: Callable[[Session], object]
    timeout: float = 900.0
    needs_numpy: bool = False
    add_flags: Callable[[argparse.ArgumentParser], object] = _nothing
    check: Callable[[argparse.ArgumentParser, argparse.Namespace], object] = _nothing
    aliases: Callable[[dict[str, Any]], dict[str, Any]] = field(default=lambda _: {})
    stands_for: str = ""
    ends_with_job: Callable[[argparse.Namespace], bool] = lambda _: False


class Session:
    """One run of a payload in one process."""

    def __init__(
        self,
        payload: Payload,
        options: argparse.Namespace,
        where: ranks.Ranks,
        noted: for_job.Run,
    ) -> None:
        self.payload, self.options, self.ranks = payload, options, where
        self.noted = noted
        self.report = Report(payload.name, where, quick=options.quick)
        self.report.requested_gpu = options.requested_gpu
        self.report.strict, self.report.skip_exit_code = options.strict, options.skip_exit_code
        self.faults = Faults(options.inject, where.rank)
        self.watch, self.health = Watch(None, {}), Health(None, {})
        self.tested = self.vouched = ""  # what the body tested, where the catalogue cannot say it
        self.torch, self.why_not = devices.load_torch()
        self.test = payload.name
        self.exit_code: int | None = None
        self.broken = self.is_found_elsewhere = self.skipped = self.is_watched = False
        self._waits_until = math.inf
        self._ending = threading.Lock()

    def need_torch(self) -> Any:
        """Return torch; raises NotPassed where there is none."""
        if self.torch is None:
            raise NotPassed("ERROR", "no_torch", f"no torch: {self.why_not}")
        return self.torch

    def devices(self) -> list[str]:
        """Return the devices to test.

        Raises NotPassed: see `devices.choose`; ERROR `no_numpy` where it is needed and missing.
        """
        self.test = "device"
        chosen = devices.choose(self.report, self.torch, self.why_not, self.options)
        if self.payload.needs_numpy:
            devices.require_numpy(self.need_torch())
        self.test = self.payload.name
        self.watch, self.health = observing.observers(self, chosen)
        self.watch.start()
        self.health.start()
        return chosen

    def probe(self, device: str) -> float:
        """Measure what part of the device's time this process gets, and note it; 1 if unknown."""
        share = 0.5 if self.faults.get("contended") else timing.own_share(self.torch, device)
        self.watch.add_share(device, share)
        return 1.0 if share is None else share

    @contextlib.contextmanager
    def group(self, device: str, backend: str = "") -> Iterator[ranks.Group]:
        """Join the process group for the block; `backend` overrides --backend.

        A SKIP that ends the block is one that all ranks agreed on: they leave the group together.
        """
        torch, backend = self.need_torch(), backend or self.options.backend
        joining = ranks.joined(torch, self.ranks, device, backend, self.left(), self.faults)
        self.broken = not self.ranks.alone
        before, self.test = self.test, "ranks"
        skip: NotPassed | None = None
        with joining as group:
            self.test, self.report.backend = before, group.backend
            try:
                yield group
            except NotPassed as outcome:
                if outcome.status != "SKIP":
                    raise
                skip = outcome
        self.broken = False
        if skip:
            raise skip

    def to_find(self) -> Sequence[Fault]:
        """Return the faults that this run must find; those of a server its clients find."""
        return () if self.is_found_elsewhere else self.options.inject

    def left(self) -> float:
        """Return the seconds left until the timeout."""
        return max(1.0, self.options.timeout - (time.monotonic() - self.report.started))

    def say(self, prefix: str, text: str) -> None:
        """Print a line of console output, `[TRAIN] …`, from rank 0 (from all with --verbose)."""
        if self.ranks.rank == 0 or self.options.verbose:
            print(f"[{prefix}] {text}\n", end="", flush=True)  # whole: there are threads

    def execute(self) -> None:
        """Run the body; what stops it is a verdict, never a traceback (but with --verbose)."""
        try:
            self._test()
        except NotPassed as outcome:
            self.fail(outcome)
            self.skipped = outcome.status == "SKIP"
        except KeyboardInterrupt as signalled:
            self._wait_no_longer_than(ENDING)
            self.exit_code = 128 + signalled.args[0] if signalled.args else INTERRUPTED
            self.report.add(self.test, "ERROR", code="interrupted", reason="interrupted")
        except Exception as error:
            if self.options.verbose:
                sys.excepthook(*sys.exc_info())
            self.fail(_explained(error))
        judging.add_contention(self)
        judging.add_wear(self)
        judging.add_ranks(self)
        if self.skipped:
            self.report.drop_passes(SURROUNDINGS)
        self.vouched = judging.vouched(self, judging.judge_speeds(self))

    def _test(self) -> None:
        """Run the body. From its end on signals only hurry.

        torchrun sends SIGTERM to all ranks when one has failed, and what the others found is still
        to be written.
        """
        try:
            self.report.env = environment.environment(self.torch)
            if self.ranks.rank == 0:
                environment.show(self.report.env)
            unfound.refuse_vain(self.payload.name, self.options.inject, self.ranks)
            self.payload.body(self)
        finally:
            if self.is_watched:
                deadline.interrupt_no_more(lambda: self._wait_no_longer_than(ENDING))

    def _wait_no_longer_than(self, patience_s: float) -> None:
        """Bound how long rank 0 waits for the other ranks' files."""
        self._waits_until = min(self._waits_until, time.monotonic() + patience_s)

    @contextlib.contextmanager
    def attempt(self, test: str, **more: Any) -> Iterator[None]:
        """Record an exception in the block as this test's outcome, and continue after the block."""
        try:
            yield
        except NotPassed as outcome:
            outcome.more = {**more, **outcome.more}
            self.fail(outcome, test)
        except Exception as error:
            explained = _explained(error)
            explained.more = more
            self.fail(explained, test)

    def fail(self, outcome: NotPassed, test: str = "") -> None:
        """Add a test that did not pass."""
        self.report.add(
            test or self.test, outcome.status, code=outcome.code, reason=outcome.reason,
            **outcome.more,
        )  # fmt: skip

    def give_up(self, why: str, code: int) -> None:
        """End now, from the watchdog's thread: the main one may hang for ever."""
        kind = "timeout" if code == TIMEOUT else "interrupted"
        self.report.add(self.test, "ERROR", code=kind, reason=f"{self.test}: {why}")
        self.exit_code, self.broken = code, True
        self.end(patience_s=LATER if code == TIMEOUT else PATIENCE)

    def end(self, patience_s: float) -> NoReturn:
        """Write the result, print the verdict and leave with its exit code.

        Rank 0 waits up to `patience_s` for the other ranks' files, less after SIGTERM. It alone
        tells of a SKIP: at another rank's code torchrun would end it before that.
        """
        if not self._ending.acquire(blocking=False):
            threading.Event().wait()
        self._wait_no_longer_than(patience_s)
        code = _published(self, lambda: time.monotonic() > self._waits_until)
        sys.stdout.flush()
        sys.stderr.flush()
        for child in multiprocessing.active_children():
            child.kill()
        if self.broken or self.exit_code is not None:
            os._exit(code)  # a broken process group would wait for ever while Python ends
        _ignore_late_signals()
        sys.exit(code)


def run(payload: Payload, argv: Sequence[str] | None = None) -> NoReturn:
    """Run a payload and leave with its exit code."""
    where = ranks.from_environment()
    noted = for_job.Run(payload.name, where)
    try:
        options = _options(payload, argv)
    except SystemExit as ended:
        with contextlib.suppress(OSError):
            # With wrong options it owes a verdict all the same, whatever runs behind it.
            noted.begin() if ended.code else noted.excuse()
        raise
    if options.json == "-":
        sys.stdout = sys.stderr
    session = Session(payload, options, where, noted)
    folder = Path(options.report_dir)
    try:
        now = files.try_folder(folder)
        files.remove_leftovers(folder, options.report_name, where, now)
        if payload.ends_with_job(options):
            noted.excuse()
        else:
            noted.begin()
    except OSError as error:
        session.fail(_not_written(error), "report")
        session.end(patience_s=0)
    stop = deadline.watch(options.timeout, session.give_up)
    session.is_watched = True
    session.execute()
    stop()
    session.end(patience_s=PATIENCE if session.broken else session.left() + LATER)


def _ignore_late_signals() -> None:
    """Let none that asks for a checkpoint kill it now: Python's own handlers go before its end."""
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def _options(payload: Payload, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = flags.parser(payload.name, payload.description, payload.timeout)
    payload.add_flags(parser)
    options = parser.parse_args(argv)
    flags.check(parser, options, FAULTS.get(payload.name, ()))
    payload.check(parser, options)
    return options


def _explained(error: Exception) -> NotPassed:
    """Return the outcome of an exception: out of memory, CUDA, a collective, or unknown."""
    first = str(error).strip().partition("\n")[0]
    message = f"{type(error).__name__}: {SOURCE_LINE.sub('', first)[:300]}"
    if type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError):
        return NotPassed("FAIL", "out_of_memory", message)
    if cuda_errors.is_raised(message):
        return NotPassed(*cuda_errors.verdict(message), message)
    status, code = collective_errors.verdict(error) or ("ERROR", "could_not_run")
    return NotPassed(status, code, message)


def _not_written(error: OSError) -> NotPassed:
    return NotPassed("ERROR", "not_written", f"no result written: {error}")


def _published(session: Session, enough: Callable[[], bool]) -> int:
    """Write this rank's result, and on rank 0 the merged one; return the exit code."""
    options, where = session.options, session.ranks
    folder, name = Path(options.report_dir), options.report_name
    document = _document(session)
    try:
        if not where.alone:
            files.write(files.rank_file(folder, name, where.rank), document)
        if where.rank == 0:
            others = files.collect(folder, name, where, enough)
            document = files.merged(document, others, where)
            document = _coded(session, unfound.with_unfound(document, session.to_find()))
            files.write(folder / name, document)
            for alias, content in session.payload.aliases(document).items():
                files.write(folder / alias, content)
            _write_for_job(folder, name, document)
            session.noted.end(document["summary"])
    except OSError as error:
        if not any(test["code"] == "not_written" for test in session.report.tests):
            session.fail(_not_written(error), "report")
        document = _document(session)
        with contextlib.suppress(OSError):  # it may be another folder
            session.noted.end(document["summary"])
    if where.rank == 0:
        _print_verdict(session, document)
    is_told_by_first = where.rank > 0 and document["summary"]["status"] == "SKIP"
    return 0 if is_told_by_first else int(document["summary"]["exit_code"])


def _write_for_job(folder: Path, name: str, document: dict[str, Any]) -> None:
    """Write the result where those of the job are, too."""
    job = os.environ.get("RV_OUTPUT_DIR")
    if job and Path(job).resolve() != folder.resolve():
        files.write(Path(job) / name, document)


def _document(session: Session) -> dict[str, Any]:
    return _coded(session, session.report.as_json())


def _coded(session: Session, document: dict[str, Any]) -> dict[str, Any]:
    """Set the exit code of a payload that was cut short, 124 or 130, unless a test failed."""
    summary = document["summary"]
    if session.exit_code is not None and summary["status"] != "FAIL":
        summary["exit_code"] = session.exit_code
    return document


def _print_verdict(session: Session, document: dict[str, Any]) -> None:
    summary = document["summary"]
    if session.options.json == "-":
        print(json.dumps(document, default=str), file=sys.__stdout__, flush=True)
    parts = [session.vouched if summary["status"] == "PASS" else "", summary["reason"]]
    said = "; ".join(filter(None, parts))
    if session.payload.stands_for:
        print(first_verdict(document))
    print(f"[RESULT] {summary['status']}{': ' if said else ''}{said}", flush=True)
