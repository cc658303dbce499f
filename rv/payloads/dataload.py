#!/usr/bin/env python3
"""How many DataLoader workers pay on this node, and whether every sample comes exactly once.

    python dataload.py
    python dataload.py --workers 0,2,4,8 --samples 2000 --work-ms 2
    python dataload.py --files /scratch/me             # real files, cold and warm

Needs no GPU; where there is one, pinned memory is tried too. Stand-alone: stdlib and torch.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import multiprocessing
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _harness.flags import positive, whole
from _harness.main import Payload, Session, run
from _loading import cpus
from contract.schema import HIGHER, LOWER, metric
from contract.verdicts import NotPassed

if TYPE_CHECKING:
    from collections.abc import Iterator

SQUARES = 328350  # of the numbers below 100
MOST_WORKERS = 1024
FILES, FILE_BYTES = 256, 256 * 1024


def body(session: Session) -> None:
    """Count CPUs, try a pool, then load with more and more workers."""
    session.need_torch()
    if session.ranks.local_rank:
        reason = "only the first rank of a node loads"
        session.report.add("dataload", "SKIP", code="not_asked", reason=reason)
        return
    count = check_cpus(session)
    check_pool(session, count)
    check_shared_memory(session)
    best = sweep(session)
    if best is not None:
        vary(session, best)
    if session.options.files:
        read_files(session, best or 0)


def check_cpus(session: Session) -> int:
    """Report the CPUs there are; more workers than that only wait for each other."""
    count, limits = cpus.effective()
    shown = "  ".join(f"{name} {value}" for name, value in limits.items() if value)
    session.say("ENV", f"effective CPUs {count}: {shown}")
    details = {"effective": count, **limits}
    most = max(session.options.workers, default=0)
    if most > count:
        reason = f"{most} workers were asked for, with {count} CPUs"
        more = {"code": "too_many_workers", "reason": reason, "details": details}
        session.report.add("dataload.cpus", "WARN", **more)
    else:
        session.report.add("dataload.cpus", "PASS", details=details)
    return count


def check_pool(session: Session, count: int) -> None:
    """Sum up squares in a pool of processes."""
    from _loading.loading import square

    with session.attempt("dataload.pool"):
        with multiprocessing.get_context("fork").Pool(min(4, count)) as pool:
            squares = pool.map(square, range(100))
        if session.faults.get("wrong-pool"):
            squares[7], squares[8] = squares[8], squares[7]
        total = sum(squares)
        if squares != [number * number for number in range(100)]:
            reason = f"a pool's squares below 100 are wrong; their sum is {total} for {SQUARES}"
            raise NotPassed("FAIL", "wrong_answer", reason)
        session.say("DATA", f"pool of processes: sum of squares {total}")
        session.report.add("dataload.pool", "PASS", details={"sum": total})


def check_shared_memory(session: Session) -> None:
    """Compare what workers put there at once with what is free: too little is a bus error."""
    from _loading.loading import FEATURES

    options = session.options
    with session.attempt("dataload.shm"):
        free = 1024 if session.faults.get("small-shm") else shutil.disk_usage("/dev/shm").free  # noqa: S108 - where torch keeps tensors of workers
        need = max(workers_of(session)) * 4 * options.batch_size * FEATURES * 4
        if free < need:
            reason = (
                f"{free / 2**20:,.0f} MiB of shared memory are free, of {need / 2**20:,.0f} needed"
            )
            raise NotPassed("FAIL", "shm_too_small", reason)
        session.report.add("dataload.shm", "PASS", details={"free": free, "need": need})


def workers_of(session: Session) -> list[int]:
    """Return the numbers of workers to try."""
    from _loading.loading import sweep_of

    most = sweep_of(cpus.effective()[0])
    return list(session.options.workers or (most[:4] if session.options.quick else most))


def trouble_of(session: Session, source: str) -> Any:
    """Return the faults that were asked for, of the samples or of the files."""
    from _loading.loading import Trouble

    names = {
        "duplicate": "duplicate", "worker-dies": "deadly", "balanced-loss": "balanced",
        "other-data": "other_data", "torn-sample": "torn",
    }  # fmt: skip
    found = (name for name in names if session.faults.get(name, source=source))
    return Trouble(**{names[name]: True for name in found})


def data_of(session: Session) -> Any:
    """Make the samples, with the faults that were asked for."""
    from _loading.loading import Samples

    options = session.options
    size = options.samples or (200 if options.quick else 1000)
    return Samples(size, options.work_ms, trouble_of(session, "samples"))


def sweep(session: Session) -> int | None:
    """Load with each number of workers; return the knee, None where a load was wrong."""
    from _loading.loading import Settings, knee, load

    data, taken = data_of(session), dict[int, float]()
    for workers in workers_of(session):
        name = f"dataload.workers{workers}"
        with session.attempt(name):
            patience = min(60.0, session.left() / 2)
            taken[workers] = load(data, session.options.batch_size, Settings(workers), patience)
            add(session, name, str(Settings(workers)), taken[workers], len(data))
    if len(taken) < len(workers_of(session)):
        return None
    best = knee(taken)
    session.say("DATA", f"knee: {best} workers")
    value = metric("knee", [float(best)], "workers", LOWER)
    details = {"seconds": {str(workers): seconds for workers, seconds in taken.items()}}
    session.report.add("dataload.knee", "PASS", metrics=[value], details=details)
    return best


def vary(session: Session, workers: int) -> None:
    """At the knee, try the DataLoader's other settings."""
    from _loading.loading import Settings, load

    base, data = Settings(max(1, workers)), data_of(session)
    tries: dict[str, dict[str, Any]] = {
        "persistent": {"persistent": True},
        "prefetch": {"prefetch": 8},
        "spawn": {"start": "spawn"},
    }
    if session.options.device != "cpu" and session.torch.cuda.is_available():
        tries["pin"] = {"pin": True}
    for name in [] if session.options.quick else tries:
        settings = dataclasses.replace(base, **tries[name])
        with session.attempt(f"dataload.{name}"):
            patience = min(60.0, session.left() / 2)
            seconds = load(data, session.options.batch_size, settings, patience)
            add(session, f"dataload.{name}", str(settings), seconds, len(data))


def add(session: Session, name: str, settings: str, seconds: float, samples: int) -> None:
    """Report how long a load took."""
    rate = metric("samples_per_s", [samples / seconds], "1/s", HIGHER, seconds=seconds)
    session.report.add(name, "PASS", metrics=[rate], details={"settings": settings})
    session.say("DATA", f"{settings}: {seconds:.2f} s, each of {samples} samples exactly once")


def read_files(session: Session, workers: int) -> None:
    """Load files from the file system that is asked about: not cached, then cached."""
    from _loading.loading import Files, Settings, load

    with session.attempt("dataload.files"), some_files(Path(session.options.files)) as made:
        paths, data = made[0], Files(*made, trouble_of(session, "files"))
        for state in ("cold", "warm"):
            seconds = load(data, session.options.batch_size, Settings(workers), 60.0)
            speed = len(paths) * FILE_BYTES / seconds / 1e9
            value = metric("read", [speed], "GB/s", HIGHER, cache=state)
            session.report.add(f"dataload.files.{state}", "PASS", metrics=[value])
            session.say("DATA", f"{len(paths)} files, {state}: {seconds:.2f} s, {speed:.2f} GB/s")


@contextlib.contextmanager
def some_files(folder: Path) -> Iterator[tuple[list[Path], Any]]:
    """Write files, and drop them from this node's cache, as far as it lets us; yield both."""
    import torch

    contents = torch.empty(FILES, FILE_BYTES, dtype=torch.uint8)
    with tempfile.TemporaryDirectory(prefix="rv-dataload-", dir=folder) as own:
        paths = [Path(own) / f"{number:04d}" for number in range(FILES)]
        for path, content in zip(paths, contents, strict=True):
            drawn = bytearray(os.urandom(FILE_BYTES))
            content.copy_(torch.frombuffer(drawn, dtype=torch.uint8))
            with path.open("wb") as file:
                file.write(drawn)
                file.flush()
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        yield paths, contents


def numbers(text: str) -> list[int]:
    """Read `0,2,4`."""
    numbers = [int(number) for number in text.split(",")]
    if any(not 0 <= number <= MOST_WORKERS for number in numbers):
        raise argparse.ArgumentTypeError(f"{text}: workers are 0 to {MOST_WORKERS}")
    return numbers


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this payload."""
    parser.add_argument("--workers", type=numbers, default=[], metavar="N,…", help="numbers to try")
    parser.add_argument("--samples", type=whole, help="of one load")
    parser.add_argument("--work-ms", type=positive, default=1.0, help="of CPU time a sample takes")
    parser.add_argument("--batch-size", type=whole, default=32)
    parser.add_argument("--files", default="", metavar="DIR", help="also load files, written there")


DATALOAD = Payload(
    "dataload",
    "How many DataLoader workers pay, and that every sample comes exactly once.",
    body,
    add_flags=add_flags,
)

if __name__ == "__main__":
    run(DATALOAD)
