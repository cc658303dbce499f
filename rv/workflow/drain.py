"""Drain one node: the line for scontrol, and what Slurm says to it.

The name has to be that of one node of the cluster, and nothing that scontrol would take for more:
`ALL`, a list, brackets, the name of a node set.
"""

import re
from collections.abc import Iterable
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.snapshot import Node
from rv.render.quote import Quoted, shell, words
from rv.slurm.printable import last_line
from rv.transport import Transport, require_answer

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)
_NOT_IN_REASON: Final = re.compile(r"[^A-Za-z0-9 ._,:;/+()\[\]@#%<>=-]+")
_MOST_REASON: Final = 240
_DRAINING_S: Final = 30.0
_REFUSALS: Final = ("access/permission denied", "invalid user id", "user not permitted")


def node_to_drain(name: str, nodes: Iterable[Node]) -> Node:
    """Find the one node of this name. Raises `RvError(USAGE)` for anything else."""
    found = [node for node in nodes if node.name == name]
    if not _NAME.fullmatch(name) or name.upper() == "ALL" or len(found) != 1:
        raise RvError(
            ErrorKind.USAGE, f"there is no node {name!r}", hint="one name; sinfo -N lists them"
        )
    return found[0]


def drain_line(node: str, reason: str) -> Quoted:
    """Write the command that drains the node, as it can be pasted into a shell.

    Of the reason only plain characters are left: it is shown by sinfo and kept by slurmctld.
    """
    plain = " ".join(_NOT_IN_REASON.sub(" ", reason).split())[:_MOST_REASON].strip()
    update = words(["scontrol", "update", f"NodeName={node}", "State=DRAIN"])
    return Quoted(f"{update} Reason={shell(plain)}")


def drain(line: Quoted, transport: Transport) -> None:
    """Run the line. Raises `RvError(REFUSED)` for what Slurm does not do, or not for this user."""
    done = transport.run(line, timeout_s=_DRAINING_S)
    require_answer(done)
    if done.returncode == 0:
        return
    said = last_line(done.stderr) or last_line(done.stdout)
    said = said or ("it did not answer" if done.timed_out else f"exit code {done.returncode}")
    if any(word in said.lower() for word in _REFUSALS):
        raise RvError(
            ErrorKind.REFUSED,
            f"Slurm does not let you drain nodes: {said}",
            hint=f"those who may can run: {line}",
        )
    raise RvError(ErrorKind.REFUSED, f"the node was not drained: {said}", hint=f"by hand: {line}")
