"""A command on several nodes ends with the code of the task that failed first, not of those ended for it."""

from pathlib import Path

import pytest

from rv import sandbox
from tests.slurm.conftest import small
from tests.slurm.launching import Rv

__all__ = ["small"]

# They turn the TERM that srun sends them into the highest code.
OTHERS_WAIT = '[ "$NODE_RANK" = 1 ] || { trap "exit 200" TERM; sleep 60 & wait; }; '
PRETENDED = "echo 'srun: error: a1: task 0: Exited with exit code 9' >&2; exit 3"


@pytest.mark.parametrize(
    ("end", "options", "code", "told"),
    [
        ("exit 7", (), 7, "exit code 7,"),
        ("exit 7", ("--checkpoint",), 7, "exit code 7,"),
        ("kill -KILL $$", (), 137, "exit code 137 (SIGKILL)"),
        ("kill -SEGV $$", (), 139, "exit code 139 (SIGSEGV)"),
        ("kill -TRAP $$", (), 133, "exit code 133 (SIGTRAP)"),
        ("kill -TERM $$", (), 143, "exit code 143 (SIGTERM)"),
        (PRETENDED, (), 3, "exit code 3,"),
    ],
)
def test_the_first_failure_is_told(
    small: sandbox.Sandbox, tmp_path: Path, end: str, options: tuple[str, ...], code: int, told: str
) -> None:
    """srun ends the others by a TERM, and returns the highest code of all."""
    rv = Rv(box=small, home=tmp_path)
    nodes = ("--gpu", "2", "--multi-node", "--time", "5m")
    done = rv("run", *nodes, *options, "--", "bash", "-c", OTHERS_WAIT + end)

    assert done.returncode == code, done.stderr
    assert told in done.stderr
