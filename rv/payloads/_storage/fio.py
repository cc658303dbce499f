"""Let fio write, read back and check, and read at random: an opinion besides our own.

What it writes carries checksums of its own (`--verify=crc32c`). The page cache is left out where
the file system takes direct input and output.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from _processes.programs import run_limited
from contract.schema import HIGHER, metric
from contract.verdicts import NotPassed

from .fio_output import MOST_CHARACTERS, Job, parse_fio

if TYPE_CHECKING:
    from pathlib import Path

    from _harness.main import Session

RANDOM_S, QUICK_RANDOM_S = 5, 1
READERS = 4
CHANGED = 84  # EILSEQ: fio's own checksum did not fit
TEST = "storage.fio"
SKIPPED = {"code": "tool_absent", "reason": "fio is not installed: our own figures stand alone"}


def measure(session: Session, folder: Path) -> None:
    """Report what fio measures in a folder; a note where it is not installed.

    Raises NotPassed: FAIL `storage_mismatch`, FAIL `below_floor`, ERROR `could_not_run`.
    """
    program = shutil.which("fio")
    if program is None:
        session.report.add(TEST, "SKIP", **SKIPPED)
        return
    direct = _takes_direct(session, program, folder)
    common = [f"--size={max(1, round(session.options.size))}M", f"--direct={direct}"]
    written = _job(session, program, folder, "write", [*common, *WRITE])
    if session.faults.get("fio-corrupt"):
        _damage(folder / "fio")
    read = _job(session, program, folder, "verify", [*common, *VERIFY])
    seconds = QUICK_RANDOM_S if session.options.quick else RANDOM_S
    random = _job(session, program, folder, "random", [*common, *RANDOM, f"--runtime={seconds}"])
    _report(session, direct, written, read, random)


CHECKED = ("--bs=1M", "--verify=crc32c")
WRITE = ("--rw=write", *CHECKED, "--do_verify=0", "--end_fsync=1")
VERIFY = ("--rw=read", *CHECKED)
RANDOM = (
    "--rw=randread", "--bs=4k", "--time_based", f"--numjobs={READERS}", "--group_reporting",
)  # fmt: skip


def _takes_direct(session: Session, program: str, folder: Path) -> int:
    """Return 1 where the file system takes direct input and output, else 0."""
    arguments = ["--rw=write", "--bs=1M", "--size=1M", "--direct=1"]
    try:
        _job(session, program, folder, "direct", arguments)
    except NotPassed:
        return 0
    finally:
        (folder / "fio").unlink(missing_ok=True)
    return 1


def _job(session: Session, program: str, folder: Path, name: str, arguments: list[str]) -> Job:
    """Run one job on the one file, and read what it printed."""
    answer, log = folder / f"fio.{name}.json", folder / f"fio.{name}.log"
    own = [f"--name={name}", f"--filename={folder / 'fio'}", "--thread", "--output-format=json"]
    command = [program, *own, f"--output={answer}", *arguments]
    try:
        outcome = run_limited(command, log=log, timeout=session.left(), cwd=folder)
        text = answer.read_text(errors="replace") if answer.stat().st_size < MOST_CHARACTERS else ""
        job = parse_fio(text)
    except (OSError, ValueError) as error:
        raise NotPassed("ERROR", "could_not_run", f"fio {name}: {error}") from error
    if job.error == CHANGED:
        where = session.options.path
        reason = f"fio {name}: bytes on {where} came back changed (its checksum does not fit)"
        raise NotPassed("FAIL", "storage_mismatch", reason)
    if outcome.returncode != 0 or job.error:
        reason = f"fio {name} ended with {outcome.returncode}, error {job.error}"
        raise NotPassed("ERROR", "could_not_run", reason)
    return job


def _damage(file: Path) -> None:
    """Change a byte between writing and reading: the injected fault that fio must find."""
    with file.open("r+b") as target:
        target.seek(1234)
        old = target.read(1)
        target.seek(1234)
        target.write(bytes([old[0] ^ 1]))


def _report(session: Session, direct: int, written: Job, read: Job, random: Job) -> None:
    """Judge the rates: all bytes were read back, and writing is not below the floor."""
    if not 0 < written.write.nbytes <= read.read.nbytes:
        reason = f"fio read back {read.read.nbytes} of {written.write.nbytes} bytes"
        raise NotPassed("FAIL", "storage_mismatch", reason)
    asked = max(1, round(session.options.size)) * 2**20
    if written.write.nbytes < asked:
        short = f"fio wrote {written.write.nbytes} of the {asked} bytes that were asked for"
        raise NotPassed("ERROR", "could_not_run", short)
    rates = [written.write.bytes_a_second / 1e6, read.read.bytes_a_second / 1e6]
    if not all((*rates, random.read.operations_a_second)):
        raise NotPassed("ERROR", "could_not_run", "fio says that nothing was done in a second")
    if slow := session.faults.get("fio-slow"):
        rates[0] /= slow.number("factor", 1e6)
    at_random = random.read.operations_a_second
    session.say(
        "STORAGE",
        f"fio: write {rates[0]:.0f} MB/s, read {rates[1]:.0f} MB/s (checked),"
        f" {at_random:.0f} random reads of 4 KiB a second",
    )
    floor = session.options.floor
    is_slow = floor is not None and rates[0] < floor
    session.report.add(
        TEST, "FAIL" if is_slow else "PASS", code="below_floor" if is_slow else "",
        reason=f"fio: {rates[0]:.0f} MB/s written, {floor:g} wanted" if is_slow else "",
        details={"version": written.version, "direct": bool(direct), "readers": READERS},
        metrics=[
            metric("fio_write", [rates[0]], "MB/s", HIGHER),
            metric("fio_read", [rates[1]], "MB/s", HIGHER),
            metric("fio_random_read", [at_random], "1/s", HIGHER),
        ],
    )  # fmt: skip
