"""The records of runs and sweeps that are kept on this machine, and which was begun last.

Below the user's data folder a run has a folder named by its race, with `run.json` once it is
fetched; a sweep, which is one run of many races, a file named by its id.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from rv.accept.result_files import MAX_BYTES
from rv.accept.runs import RunRecord, Sweep
from rv.bundle import acceptance_dir
from rv.errors import ErrorKind, RvError
from rv.files import modified_at, read_regular
from rv.models.plain import build

RECORD: Final = "run.json"
_CLOCK_S: Final = 60.0
"""By how much this machine's clock may have been put back."""

Kept = TypeVar("Kept", RunRecord, Sweep)


def note_begun(race: str) -> None:
    """Note that a run is begun, so that no older one is the last while it has no verdict."""
    with suppress(OSError):  # its results may not be kept either, and that is told then
        run_folder(race).mkdir(mode=0o700, parents=True, exist_ok=True)


def last_begun() -> str:
    """Name the run or sweep that was begun last.

    One that is not judged yet, or cannot be read, counts by when its file was written: it could be
    the last, and an older one in its place would be taken for it.
    """
    paths = sweep_files("")
    sweeps = sweeps_in(paths)
    begun = _runs_begun() | {path.stem: modified_at(path) for path in paths if path.is_file()}
    begun |= {sweep.sweep_id: sweep.begun_at for sweep in sweeps}
    for sweep in sweeps:
        for node in sweep.nodes:
            begun.pop(node.race, None)
    if not begun:
        raise no_run("last", "is no run here")
    return _newest(begun)


def _runs_begun() -> dict[str, float]:
    """Say when each run was begun, those of sweeps too."""
    folders = run_folders()
    begun = {each.name: modified_at(each / RECORD) or modified_at(each) for each in folders}
    kept = readable((folder / RECORD for folder in folders), RunRecord)
    return begun | {record.race_id: record.submitted_at for record in kept}


def _newest(begun: Mapping[str, float]) -> str:
    """Name what was begun last. Raises `RvError(USAGE)` where a clock was wrong, and none is."""
    name = max(begun, key=lambda name: begun[name])
    if begun[name] > time.time() + _CLOCK_S:
        problem = f"{name} was begun in the future, by this machine's clock: the last is not known"
        raise RvError(ErrorKind.USAGE, problem, hint="name the run, not last")
    return name


def last_sweep(cluster: str) -> list[Path]:
    """Give the file of a cluster's sweep that was begun last; one that is damaged may be that."""
    paths = {path.stem: path for path in sweep_files("") if path.is_file()}
    begun = {name: modified_at(path) for name, path in paths.items()}
    for sweep in sweeps_in(list(paths.values())):
        begun[sweep.sweep_id] = sweep.begun_at
        if sweep.cluster != cluster:
            del begun[sweep.sweep_id]
    return [paths[_newest(begun)]] if begun else []


def records() -> tuple[RunRecord, ...]:
    """List the runs kept here, that begun last first; one that cannot be read is left out."""
    kept = readable((folder / RECORD for folder in _folders()), RunRecord)
    return tuple(sorted(kept, key=lambda record: -record.submitted_at))


def damaged() -> list[str]:
    """Say of each record of a run or sweep that cannot be read why that is."""
    runs = [(folder / RECORD, RunRecord) for folder in _folders()]
    sweeps = [(path, Sweep) for path in sweep_files("")]
    found = []
    for path, kind in [*runs, *sweeps]:
        try:
            read_record(path, kind)
        except RvError as error:
            found.append(error.message)
    return found


def sweeps_by_race() -> dict[str, Sweep]:
    """Find the sweep that each race was of, of all that are kept here and can be read."""
    oldest_first = reversed(sweeps_in(sweep_files("")))
    return {node.race: sweep for sweep in oldest_first for node in sweep.nodes if node.race}


def sweeps_in(paths: Sequence[Path]) -> list[Sweep]:
    """Read the sweeps that can be read, that begun last first."""
    return sorted(readable(paths, Sweep), key=lambda sweep: -sweep.begun_at)


def _folders() -> list[Path]:
    """List the folders of the runs kept here, that written last first."""
    kept = [folder / RECORD for folder in run_folders() if is_there(folder / RECORD)]
    return [path.parent for path in _newest_first(kept)]


def run_folders() -> list[Path]:
    """List the folders of runs, those that are only begun too."""
    return [folder for folder in _listed(acceptance_dir() / "runs") if folder.is_dir()]


def _listed(folder: Path) -> list[Path]:
    """List what is in a folder. Raises `RvError(CONFIG)` where nobody may."""
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(folder, error, "make it readable") from error


def run_folder(race: str) -> Path:
    """Name the folder of a race's run, whether or not it is there."""
    return acceptance_dir() / "runs" / race


def sweep_files(beginning: str) -> list[Path]:
    """List the sweeps of an id, else those whose id begins so, that written last first."""
    whole = acceptance_dir() / "sweeps" / f"{beginning}.json"
    if Path(beginning).name == beginning and beginning and is_there(whole):
        return [whole]
    paths = [path for path in _listed(whole.parent) if path.suffix == ".json"]
    return [path for path in _newest_first(paths) if path.name.startswith(beginning)]


def _newest_first(paths: Iterable[Path]) -> list[Path]:
    # A link to nothing cannot be read, and is old; so is a file that was removed this moment.
    return sorted(paths, key=lambda path: -modified_at(path))


def is_there(path: Path) -> bool:
    """Whether a file or folder is there, be it one that this user may not read."""
    try:
        return path.exists()
    except OSError:
        return True


def read_record(path: Path, kind: type[Kept]) -> Kept:
    """Read a run's record or a sweep. Raises `RvError(CONFIG)` for a file that is damaged."""
    try:
        return build(kind, json.loads(read_regular(path, MAX_BYTES)))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        hint = f"remove it, and rv accept run --resume {path.parent.name} fetches it again"
        if kind is Sweep:
            hint = "remove it; rv accept sweep begins one"
        raise _unreadable(path, error, hint) from error


def _unreadable(path: Path, error: Exception, hint: str) -> RvError:
    why = error.strerror or error if isinstance(error, OSError) else error
    return RvError(ErrorKind.CONFIG, f"{path} cannot be read: {why}", hint=hint)


def readable(paths: Iterable[Path], kind: type[Kept]) -> Iterator[Kept]:
    """Read the records that can be read, and leave out the others."""
    for path in paths:
        with suppress(RvError):
            yield read_record(path, kind)


def no_run(name: str, problem: str) -> RvError:
    """Make the error for a name that is no run, with what to type next."""
    lists = "rv accept history --runs lists them"
    hint = f"{lists}; rv accept run --resume RACE judges one whose client ended first"
    return RvError(ErrorKind.USAGE, f"{name!r} {problem}", hint=hint)
