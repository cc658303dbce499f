"""Result files: each rank's, written atomically; the merged one; those of older programs."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import stat
import tempfile
import time
from typing import IO, TYPE_CHECKING, Any

from contract.codes import CODES
from contract.schema import explained, summary_of

from .first_forms import failures
from .ranks import host_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .ranks import Ranks

MOST_BYTES = 16 * 2**20  # of a file that another user may have written
LOOK_AGAIN_S = 2.0  # between two writes that have an NFS client look again
STARTS = 300  # seconds that the starts of a launch's ranks may differ


def write(target: Path, document: dict[str, Any]) -> None:
    """Write a document so that a reader never sees half of it. Raises OSError."""
    write_text(target, json.dumps(document, indent=1, default=str))


def write_text(target: Path, text: str) -> None:
    """Write a text so that a reader never sees half of it. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _refuse_anothers(target.parent)
    draft = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    try:
        with draft.open("x") as file:  # new: no link that another user laid there
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def try_folder(folder: Path) -> float:
    """Check before the work that results can be written to a folder. Raises OSError.

    Returns the time by the clock of the folder's server: a node's own may be minutes off.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _refuse_anothers(folder)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"now")
        file.flush()
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_mtime


def remove_leftovers(folder: Path, report_name: str, ranks: Ranks, now: float) -> None:
    """Remove at a rank's start its own file of an earlier launch. Raises OSError.

    Rank 0 removes those of all, for a rank that will not start, and leaves what one that failed at
    once may have written before rank 0 began. `now` is of `try_folder`, as files' times are.
    """
    rank_file(folder, report_name, ranks.rank).unlink(missing_ok=True)
    others = range(1, ranks.world) if ranks.rank == 0 else ()
    for path in (rank_file(folder, report_name, rank) for rank in others):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < now - STARTS:
                path.unlink()


def _refuse_anothers(folder: Path) -> None:
    """Raise for a folder whose owner could put other results there; root's are nobody's."""
    owner = folder.stat().st_uid
    if os.geteuid() not in (0, owner) and owner != 0:
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = f"user {owner}"
        raise PermissionError(errno.EPERM, f"it belongs to {name}", str(folder))


def opened(path: Path, mode: str = "w") -> IO[Any]:
    """Open a file to write or append, through no link that another user laid. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
    flags |= os.O_APPEND if "a" in mode else os.O_TRUNC
    return os.fdopen(os.open(path, flags, 0o666), mode)


def read_regular(path: Path) -> str:
    """Read a regular file, without waiting, up to `MOST_BYTES`. Raises OSError, ValueError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, encoding="utf-8") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
            raise OSError(errno.EINVAL, "it is no file, or too large", str(path))
        return file.read(MOST_BYTES)


def read(path: Path) -> dict[str, Any] | None:
    """Read a result; None for one that is absent, cut short or something else."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and "summary" in document else None


def rank_file(folder: Path, report_name: str, rank: int) -> Path:
    """Return a rank's own file: `check_result.ranks/rank-00000.json`."""
    return folder / f"{report_name.removesuffix('.json')}.ranks" / f"rank-{rank:05d}.json"


def collect(
    folder: Path,
    report_name: str,
    ranks: Ranks,
    enough: Callable[[], bool],
) -> dict[int, dict[str, Any]]:
    """Wait for the other ranks' files until `enough`; return those that are there, by rank.

    Files that another launch left in the same folder do not count. Those of an earlier one with the
    same variables were removed when this one began.
    """
    others: dict[int, dict[str, Any]] = {}
    looked_s = time.monotonic()
    while True:
        last = enough()
        if time.monotonic() - looked_s > LOOK_AGAIN_S:
            _look_again(rank_file(folder, report_name, ranks.rank).parent)
            looked_s = time.monotonic()
        for rank in set(range(ranks.world)) - set(others) - {ranks.rank}:
            path = rank_file(folder, report_name, rank)
            document = read(path)
            if document and document.get("test_info", {}).get("launch") == ranks.launch:
                others[rank] = document
        if len(others) == ranks.world - 1 or last:
            return others
        time.sleep(0.05)


def _look_again(folder: Path) -> None:
    """Write to a folder, so that an NFS client drops its negative lookups, kept up to a minute."""
    with contextlib.suppress(OSError), tempfile.NamedTemporaryFile(dir=folder, prefix=".look-"):
        pass


def merged(
    first: dict[str, Any], others: dict[int, dict[str, Any]], ranks: Ranks
) -> dict[str, Any]:
    """Merge rank 0's result with those of the others; a rank without a result is a failure."""
    every = [first, *(others[rank] for rank in sorted(others))]
    infos = {document["test_info"]["rank"]: document["test_info"] for document in every}
    hosts = {rank: info["node"] for rank, info in infos.items()}
    tests = [test for document in every for test in document["tests"]]
    missing = [rank for rank in range(ranks.world) if rank not in hosts]
    tests += [_absent(rank, host_of(rank, hosts, ranks), first) for rank in missing]
    tests = explained(tests)
    own = first["summary"]
    strict, skip = own.get("strict", False), own["skip_exit_code"]
    return {
        **first,
        "devices": _devices(every),
        "tests": tests,
        "summary": summary_of(tests, strict=strict, skip_exit_code=skip),
        "ranks": [
            {"rank": rank, "host": hosts[rank], "token": infos[rank].get("token")}
            for rank in sorted(hosts)
        ],
    }


def _devices(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return every GPU once: all ranks of a node see the same ones."""
    devices: dict[tuple[str, str], dict[str, Any]] = {}
    for document in documents:
        host = document["test_info"]["node"]
        for device in document["devices"]:
            key = (host, str(device.get("uuid") or device.get("index")))
            devices.setdefault(key, {**device, "host": host})
    return list(devices.values())


def _absent(rank: int, host: str, first: dict[str, Any]) -> dict[str, Any]:
    fault = CODES["rank_missing"]
    has_no_time = any(test["code"] == "timeout" for test in first["tests"])
    return {
        "name": "ranks",
        "status": "ERROR" if has_no_time else "FAIL",  # it may have begun later than the first
        "code": "rank_missing",
        "class": fault.fault,
        "action": fault.action,
        "reason": f"no results reported by rank {rank} on {host}",
        "device": None,
        "rank": rank,
        "host": host,
        "timing_ms": 0,
        "timestamp": first["test_info"]["timestamp"],
        "details": {},
        "metrics": [],
    }


def training_aliases(document: dict[str, Any]) -> dict[str, Any]:
    """Return `ddp_training_result.json`, or `ddp_training_skipped.json`."""
    if document["summary"]["status"] == "SKIP":
        return {"ddp_training_skipped.json": _skipped(document)}
    trained = [test for test in document["tests"] if test["name"] == "ddp.train"]
    keys = ("world", "epochs", "batch_size", "steps", "loss_start", "loss_end", "improved")
    details = trained[0]["details"] if trained else {}
    fields = {key: details.get(key) for key in keys}
    passed = document["summary"]["status"] in {"PASS", "WARN"}
    fields["improved"] = bool(fields["improved"]) and passed
    return {"ddp_training_result.json": fields}


def compute_aliases(document: dict[str, Any]) -> dict[str, Any]:
    """Return `gpu_tests_result.json`, or `gpu_tests_skipped.json`."""
    if document["summary"]["status"] == "SKIP":
        return {"gpu_tests_skipped.json": _skipped(document)}
    if any(test["status"] in ("FAIL", "ERROR") for test in document["tests"]):
        return {"gpu_tests_result.json": {"env": document["env"], "failures": failures(document)}}
    return {"gpu_tests_result.json": {"env": document["env"], "compute": True}}


def _skipped(document: dict[str, Any]) -> dict[str, Any]:
    codes = [test["code"] for test in document["tests"] if test["status"] == "SKIP"]
    return {"skipped": True, "reason": codes[0]}
