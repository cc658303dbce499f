"""Acceptance runs as they are kept on this machine: the files as fetched, and their record.

One folder a run, named by its race, below the user's data folder: `run.json` and `results/`.
"""

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rv.accept.collect import Origin, collect
from rv.accept.result_files import read_file, read_folder
from rv.accept.results import ResultError, RunResult
from rv.bundle import acceptance_dir
from rv.errors import ErrorKind, RvError
from rv.files import write_atomically
from rv.models.plain import build, plain

RECORD: Final = "run.json"
RESULTS: Final = "results"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord(Origin):
    """What a run was of: the race, and the job that won it.

    `race_id` names the run. Times are seconds since the epoch. `cluster` is the cluster's key, as
    races have it, `asked` the GPUs ("4 x a100"), `gpu` the model that the strategy promised.
    """

    race_id: str
    cluster: str
    label: str = ""
    profile: str = ""
    asked: str = ""
    gpu: str = ""
    payloads: tuple[str, ...] = ()
    submitted_at: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run with everything that was to report. `faults` names files that could not be read."""

    record: RunRecord
    results: tuple[RunResult, ...]
    faults: tuple[str, ...] = ()


def save(record: RunRecord, files: Mapping[str, bytes]) -> Run:
    """Keep a run's files, in place of what was kept of it before.

    Raises `RvError(STAGE)` where this machine's disk does not take them.
    """
    folder = acceptance_dir() / "runs" / record.race_id
    try:
        shutil.rmtree(folder / RESULTS, ignore_errors=True)
        for name, data in files.items():
            path = folder / RESULTS / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / RECORD, json.dumps(plain(record), indent=1))
    except OSError as error:
        why = error.strerror or str(error)
        raise RvError(ErrorKind.STAGE, f"cannot keep the results: {why}, on {folder}") from error
    return Run(record=record, results=collect(files, record.payloads, record))


def load(name: str) -> Run:
    """Find a run by its race's id, the beginning of one, `last`, or the path of a folder or file.

    A folder or file that rv did not keep is read as results of any known format.
    Raises `RvError(USAGE)` for what is none of these, or holds no result.
    """
    path = Path(name)
    if (path / RECORD).is_file():
        return _kept(path)
    if path.exists():
        return _foreign(path)
    folders = _folders()
    if name != "last":
        folders = [folder for folder in folders if folder.name.startswith(name)]
    if not folders:
        raise _not_found(f"{name!r} is no run here, nor a file")
    if len(folders) > 1 and name not in ("last", folders[0].name):
        raise _not_found(f"{name!r} fits several runs")
    return _kept(folders[0])


def _not_found(message: str) -> RvError:
    return RvError(ErrorKind.USAGE, message, hint="rv accept history --runs lists them")


def _folders() -> list[Path]:
    """List the folders of the runs kept here, the newest first."""
    paths = (acceptance_dir() / "runs").glob(f"*/{RECORD}")
    return [path.parent for path in sorted(paths, key=lambda path: -path.stat().st_mtime)]


def records() -> tuple[RunRecord, ...]:
    """List the runs kept here, the newest first; one that cannot be read is left out."""
    readable = []
    for folder in _folders():
        with suppress(RvError):
            readable.append(_record(folder))
    return tuple(readable)


def _kept(folder: Path) -> Run:
    record = _record(folder)
    root = folder / RESULTS
    files = {
        str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()
    }
    return Run(record=record, results=collect(files, record.payloads, record))


def _record(folder: Path) -> RunRecord:
    try:
        return build(RunRecord, json.loads((folder / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise RvError(ErrorKind.USAGE, f"{folder / RECORD} cannot be read: {error}") from error


def _foreign(path: Path) -> Run:
    if path.is_dir():
        results, faults = read_folder(path)
    else:
        try:
            results, faults = (read_file(path),), ()
        except ResultError as error:
            raise RvError(ErrorKind.USAGE, str(error)) from error
    if not results:
        raise RvError(ErrorKind.USAGE, f"{path} holds no result", hint="; ".join(faults[:3]))
    payloads = tuple(dict.fromkeys(result.test_type for result in results))
    record = RunRecord(race_id=path.name, cluster="", label=str(path), payloads=payloads)
    return Run(record=record, results=results, faults=faults)
