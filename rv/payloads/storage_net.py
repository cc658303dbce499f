#!/usr/bin/env python3
"""Write, sync and read files where checkpoints go, and see that they come back whole, how fast.

    storage_net.py --path /scratch/me                       # this node
    torchrun --nproc_per_node=4 storage_net.py              # many writers at once
    storage_net.py --download https://host/file             # the way out, only when asked for

Everything happens in a folder of its own, which is all that is removed in the end.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _checkpoint.store import drop_cache
from _harness.flags import positive, whole
from _harness.main import Payload, Session, run
from _storage import fio
from _storage.floors import (
    LEAST_FILES,
    LEAST_MIB,
    SLOW_PART,
    SLOW_PART_OF_LITTLE,
    below_floors,
    floors_of,
    mount_type,
    slow_ranks,
)
from _storage.meeting import Meeting, meeting
from _storage.small_files import PHASES, one_round
from contract.schema import HIGHER, metric
from contract.verdicts import NotPassed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

MIB = 2**20
BLOCK = 4 * MIB
SMALL = 4096  # bytes of a small file
TURNS = 4  # of writing over a file
RESERVE = 2.0  # times what is written must be free


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this payload."""
    default = os.environ.get("RV_CHECKPOINT_DIR") or os.environ.get("RV_OUTPUT_DIR") or "."
    parser.add_argument("--path", default=default, help="folder to test (default: for checkpoints)")
    parser.add_argument("--size", type=positive, help="MiB of the large file (64 quick, 1024)")
    parser.add_argument("--files", type=whole, help="number of small files (100 quick, 1000)")
    parser.add_argument("--repeats", type=whole, default=3, help="how often each is measured")
    parser.add_argument("--floor", type=positive, help="MB/s under which writing fails")
    parser.add_argument("--download", help="URL to fetch and drop; nothing is fetched without it")


def check(_parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Settle the sizes."""
    options.size = options.size or (64.0 if options.quick else 1024.0)
    options.files = options.files or (100 if options.quick else 1000)


def body(session: Session) -> None:
    """Test the file system with all ranks at once, then the network if asked for."""
    with _own_folder(Path(session.options.path), session.options) as folder:
        with meeting(session) as met:
            _at_once(session, met, "storage.large_file", lambda: _large(session, folder), "MB/s")
            _at_once(
                session, met, "storage.small_files", lambda: _small(session, folder), "files/s"
            )
        _attempt(session, "storage.overwrite", lambda: _overwrite(session, folder))
        _attempt(session, "storage.rename", lambda: _rename(session, folder))
        _attempt(session, fio.TEST, lambda: fio.measure(session, folder))
    _attempt(session, "network.download", lambda: _download(session))


def _attempt(session: Session, test: str, function: Callable[[], object]) -> None:
    """Run one test; the others run whatever becomes of it."""
    session.test = test
    try:
        function()
    except NotPassed as outcome:
        session.fail(outcome)


def _at_once(
    session: Session, met: Meeting, test: str, measure: Callable[[], float], unit: str
) -> None:
    """Run a test on all ranks at once; add up their rates, and name those far below the others."""
    reached: list[float] = []
    met.begin()
    _attempt(session, test, lambda: reached.append(measure()))
    rates = met.gather(reached[0] if reached else 0.0)
    if session.ranks.rank or session.ranks.alone:
        return
    session.say("STORAGE", f"{len(rates)} ranks together: {sum(rates):.0f} {unit}")
    is_enough = session.options.size >= LEAST_MIB and session.options.files >= LEAST_FILES
    part = SLOW_PART if is_enough else SLOW_PART_OF_LITTLE
    slow = slow_ranks(rates, met.hosts, unit, part)
    session.report.add(
        f"{test}.together", "WARN" if slow else "PASS", code="slow_storage" if slow else "",
        reason=slow, details={"ranks": len(rates), "rates": rates},
        metrics=[metric("together", [sum(rates)], unit, HIGHER)],
    )  # fmt: skip


def _below(session: Session, rates: dict[str, float], *, is_enough: bool) -> str:
    """Say which rates are below the floors of the file system; "" for none, or for too little."""
    kind = mount_type(Path(session.options.path))
    if session.faults.get("slow-storage"):
        return below_floors(rates, floors_of(kind) or floors_of("ext4"))
    return below_floors(rates, floors_of(kind)) if is_enough else ""


def _slowed(session: Session) -> float:
    """Return by what an injected fault divides the rates of this rank."""
    slow = session.faults.get("slow-storage")
    return slow.number("factor", 1e4) if slow else 1.0


@contextlib.contextmanager
def _own_folder(parent: Path, options: argparse.Namespace) -> Iterator[Path]:
    """Make a folder that nobody else has, and remove that one only."""
    needed = (options.size * MIB + options.files * SMALL) * RESERVE
    try:
        parent = parent.absolute()  # fio runs in the folder itself
        parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(parent).free
        folder = Path(tempfile.mkdtemp(prefix=".rv-storage-", dir=parent))
    except OSError as error:
        raise NotPassed("ERROR", "not_written", f"cannot write in {parent}: {error}") from error
    try:
        if free < needed:
            reason = f"{parent} has {free / MIB:.0f} MiB free, {needed / MIB:.0f} are needed"
            raise NotPassed("ERROR", "could_not_run", reason)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _large(session: Session, folder: Path) -> float:
    """Write, sync, read past the cache and compare a large file; return MB/s written."""
    options = session.options
    blocks = max(1, round(options.size * MIB / BLOCK))
    writes, reads, cold = [], [], True
    for repeat in range(options.repeats):
        file = folder / f"large.{repeat}"
        written, digest = _write(file, blocks, _key(session, "large", repeat))
        if session.faults.get("corrupt-file", repeat=repeat):
            _corrupt(file)
        cold = drop_cache(file) and cold
        seconds, read_digest = _read(file)
        if read_digest != digest:
            raise NotPassed(
                "FAIL", "storage_mismatch", f"{file.name} on {options.path} came back changed"
            )
        writes.append(blocks * BLOCK / written / 1e6)
        reads.append(blocks * BLOCK / seconds / 1e6)
        file.unlink()
    best = max(writes) / _slowed(session)
    details = {"path": options.path, "bytes": blocks * BLOCK, "read_past_cache": cold}
    details["file_system"] = mount_type(Path(options.path))
    session.say("STORAGE", f"write {best:.0f} MB/s (synced), read {max(reads):.0f} MB/s")
    session.report.add(
        "storage.large_file", **_write_verdict(session, best), details=details,
        metrics=[metric("write", writes, "MB/s", HIGHER), metric("read", reads, "MB/s", HIGHER)],
    )  # fmt: skip
    return best


def _write_verdict(session: Session, best: float) -> dict[str, str]:
    options = session.options
    if options.floor is not None and best < options.floor:
        reason = f"{best:.0f} MB/s written, {options.floor:g} wanted"
        return {"status": "FAIL", "code": "below_floor", "reason": reason}
    if reason := _below(session, {"write": best}, is_enough=options.size >= LEAST_MIB):
        return {"status": "WARN", "code": "slow_storage", "reason": reason}
    return {"status": "PASS"}


def _key(session: Session, kind: str, turn: int) -> str:
    """Return what a file's content is made of: no two files of any rank or turn are alike."""
    return f"{session.options.seed}/{kind}/{session.ranks.rank}/{turn}"


def _block(key: str, number: int, length: int = BLOCK) -> bytes:
    """Make bytes that no file system stores as less: a hash stretched, different in each block."""
    return hashlib.shake_128(f"{key}/{number}".encode()).digest(length)


def _write(file: Path, blocks: int, key: str) -> tuple[float, str]:
    """Write and sync; return the seconds in which the file system was at work, and the digest."""
    digest, seconds = hashlib.sha256(), 0.0
    with file.open("wb", buffering=0) as target:
        for number in range(blocks):
            block = _block(key, number)
            digest.update(block)
            start = time.perf_counter()
            target.write(block)
            seconds += time.perf_counter() - start
        start = time.perf_counter()
        os.fsync(target.fileno())
        return seconds + time.perf_counter() - start, digest.hexdigest()


def _read(file: Path) -> tuple[float, str]:
    """Read all of it; return the seconds in which the file system was at work, and the digest."""
    digest, seconds = hashlib.sha256(), 0.0
    with file.open("rb", buffering=0) as source:
        while True:
            start = time.perf_counter()
            block = source.read(BLOCK)
            seconds += time.perf_counter() - start
            if not block:
                return max(seconds, 1e-9), digest.hexdigest()
            digest.update(block)


def _corrupt(file: Path) -> None:
    """Change one byte: the injected fault that the comparison must find."""
    with file.open("r+b") as target:
        target.seek(1234)
        old = target.read(1)
        target.seek(1234)
        target.write(bytes([old[0] ^ 1]))


def _small(session: Session, folder: Path) -> float:
    """Make, look up, read and remove many small files; return the files made a second.

    Each has a content of its own, and in each turn another.
    """
    options = session.options
    rounds = [
        one_round(folder, _contents(_key(session, "small", turn), options.files), session.faults)
        for turn in range(options.repeats)
    ]
    best = {phase: max(each[phase] for each in rounds) for phase in PHASES}
    best["create"] /= _slowed(session)
    said = ", ".join(f"{phase} {rate:.0f}" for phase, rate in best.items())
    session.say("STORAGE", f"small files a second: {said}")
    reason = _below(session, {"create": best["create"]}, is_enough=options.files >= LEAST_FILES)
    session.report.add(
        "storage.small_files", "WARN" if reason else "PASS", code="slow_storage" if reason else "",
        reason=reason, details={"files": options.files, "bytes": SMALL},
        metrics=[metric(p, [each[p] for each in rounds], "files/s", HIGHER) for p in PHASES],
    )  # fmt: skip
    return best["create"]


def _contents(key: str, files: int) -> list[bytes]:
    """Return as many different contents of small files."""
    whole = b"".join(_block(key, number) for number in range(-(-files * SMALL // BLOCK)))
    return [whole[number * SMALL : (number + 1) * SMALL] for number in range(files)]


def _overwrite(session: Session, folder: Path) -> None:
    """Write over a file without making it anew: what was there before must be gone.

    Bytes that are not written any more, or read from an old copy, were right once.
    """
    file = folder / "overwritten"
    file.write_bytes(b"\0" * BLOCK)
    for turn in range(TURNS):
        content = _block(_key(session, "overwritten", turn), 0)
        lost = session.faults.get("stale-write", turn=turn)
        with file.open("r+b") as target:
            target.write(content[: BLOCK // 2] if lost else content)
            target.flush()
            os.fsync(target.fileno())
        drop_cache(file)
        if file.read_bytes() != content:
            reason = f"a file in {session.options.path} that was written over holds older bytes"
            raise NotPassed("FAIL", "storage_mismatch", reason)
    details = {"turns": TURNS, "bytes": BLOCK}
    session.report.add("storage.overwrite", "PASS", details=details)


def _rename(session: Session, folder: Path) -> None:
    """Replace a file by rename, as checkpoints are, and see the new one whole."""
    old, new = folder / "checkpoint", folder / "checkpoint.new"
    old.write_bytes(b"old")
    with new.open("wb") as target:
        target.write(b"new" * 1000)
        target.flush()
        os.fsync(target.fileno())
    new.replace(old)
    if old.read_bytes() != b"new" * 1000 or new.exists():
        raise NotPassed("FAIL", "storage_mismatch", "a rename did not replace the file")
    session.report.add("storage.rename", "PASS")


def _download(session: Session) -> None:
    """Fetch a URL and drop it, where one is given."""
    url = session.options.download
    if not url:
        reason = "no --download URL was given"
        session.report.add("network.download", "SKIP", code="not_asked", reason=reason)
        return
    start, size = time.perf_counter(), 0
    try:
        with urllib.request.urlopen(url, timeout=30) as source:  # noqa: S310 - the user's own URL
            while block := source.read(BLOCK):
                size += len(block)
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise NotPassed("FAIL", "server_unreachable", f"{url}: {error}") from error
    rate = size / (time.perf_counter() - start) / 1e6
    session.say("STORAGE", f"download {rate:.1f} MB/s")
    facts: dict[str, Any] = {"details": {"url": url, "bytes": size}}
    session.report.add(
        "network.download", "PASS", metrics=[metric("rate", [rate], "MB/s", HIGHER)], **facts
    )


PAYLOAD = Payload(
    "storage_net",
    "Write, sync and read files where checkpoints go; optionally download.",
    body,
    add_flags=add_flags,
    check=check,
)

if __name__ == "__main__":
    run(PAYLOAD)
