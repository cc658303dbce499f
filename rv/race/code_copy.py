"""A race's own copy of the code that was sent: a later sync changes nothing of what it runs."""

import shlex
from importlib.resources import files
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.code import Code
from rv.race.file_names import CODE
from rv.slurm.printable import last_line, printable
from rv.transport.storage_errors import why_not_written_there

_SCRIPT: Final = files("rv.race") / "scripts" / "copy_code.sh"


def copy_script(code: Code) -> str:
    """Return the bash text that copies a tree into the directory that it runs in."""
    words = shlex.join(["copy_tree", code.store, code.tree])
    folder = shlex.quote(f"{CODE}/{code.folder}")  # nothing in it may have been sent
    return f'{_SCRIPT.read_text()}\n({words} "$PWD/{CODE}") && mkdir -p -- {folder} || exit 1\n'


def copy_failure(text: str, race_dir: str) -> RvError:
    """Return the error for what the script said when it failed."""
    said = printable(last_line(text).rpartition(": ")[2])
    why = why_not_written_there(text) or said or "no answer"
    return RvError(
        ErrorKind.STAGE,
        f"the code cannot be copied for the race: {why}, on {race_dir}",
        hint="name a directory with more space with RV_RACE_ROOT=/path there",
    )
