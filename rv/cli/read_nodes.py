"""Read a list of nodes that somebody typed."""

import re
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.slurm.hostlist import LIMIT, expand

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def node_names(text: str) -> tuple[str, ...]:
    """Return the names of a list as Slurm writes it. Raises `RvError(USAGE)` for what is none."""
    names = expand(text)
    if len(names) >= LIMIT:
        problem = f"{text!r} names {LIMIT:,} nodes or more"
        raise RvError(ErrorKind.USAGE, problem, hint="such as a1,b[2-4]")
    odd = next((name for name in names if not _NAME.fullmatch(name)), None if names else text)
    if odd is not None:
        raise RvError(ErrorKind.USAGE, f"{odd!r} is no name of a node", hint="such as a1,b[2-4]")
    return names
