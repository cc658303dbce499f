"""A race's own copy of the code that was sent: a later sync changes nothing of what it runs."""

import shlex
from importlib.resources import files
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.code import Code
from rv.race.directory import CODE
from rv.slurm.values import last_line, printable
from rv.transport import Transport

_SCRIPT: Final = files("rv.race") / "scripts" / "copy_code.sh"
_COPY_S: Final = 900.0


def copy_code(code: Code, race_dir: str, transport: Transport) -> None:
    """Copy a tree into a race directory. Raises `RvError(STAGE)`."""
    words = shlex.join(["copy_tree", code.store, code.tree, f"{race_dir}/{CODE}"])
    copied = transport.run(f"{_SCRIPT.read_text()}\n{words}", timeout_s=_COPY_S)
    if copied.returncode != 0:
        why = printable(last_line(copied.stderr).rpartition(": ")[2]) or "no answer"
        raise RvError(
            ErrorKind.STAGE,
            f"the code cannot be copied for the race: {why}, on {race_dir}",
            hint="name a directory with more space with RV_RACE_ROOT=/path there",
        )
