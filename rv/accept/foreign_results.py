"""Results of any known format that rv did not fetch: a folder, or one file."""

from pathlib import Path

from rv.accept.collect import without_twins
from rv.accept.result_checks import shortfall, with_flaws
from rv.accept.result_files import read_file, read_folder
from rv.accept.results import ResultError, RunResult
from rv.errors import ErrorKind, RvError


def foreign_results(path: Path) -> tuple[tuple[RunResult, ...], tuple[str, ...]]:
    """Read results, and name the files that could not be read.

    Raises `RvError(USAGE)` where there is no result.
    """
    if path.is_dir():
        results, faults = read_folder(path)
    else:
        try:
            results, faults = (read_file(path),), ()
        except ResultError as error:
            raise RvError(ErrorKind.USAGE, str(error)) from error
    if not results:
        raise RvError(ErrorKind.USAGE, f"{path} holds no result", hint="; ".join(faults[:3]))
    return without_twins(tuple(map(_whole, results))), faults


def _whole(result: RunResult) -> RunResult:
    """Make an ERROR of a PASS without what each has; what was planned is not known."""
    if result.is_legacy:
        return result
    return with_flaws(result, shortfall(result, (), 0, 0))
