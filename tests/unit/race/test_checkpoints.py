"""When a chain last left a checkpoint, and that no answer is not none."""

import os
from pathlib import Path

import pytest

from rv.errors import ErrorKind, RvError
from rv.models.race import Race
from rv.race.checkpoints import last_checkpoint
from rv.transport.local import LocalTransport
from tests.unit.race.test_directory import race


@pytest.fixture
def chain(tmp_path: Path) -> Race:
    """A race whose folder for checkpoints is empty but for a file of rv's own."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / ".rv-next").write_text("again")
    return race(directory=str(tmp_path))


def with_find(program: str, tmp_path: Path) -> LocalTransport:
    """A machine whose `find` does this."""
    (tmp_path / "find").write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "find").chmod(0o755)
    return LocalTransport({**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})


def test_the_latest_counts(chain: Race) -> None:
    """Through links too, for checkpoints are large; files of rv's own are none."""
    transport = LocalTransport(os.environ)
    folder = Path(chain.directory, "checkpoints")
    assert last_checkpoint(chain, transport) is None
    for name, at in (("a", 2000.5), ("b", 1000.0)):
        (folder / name).touch()
        os.utime(folder / name, (at, at))
    assert last_checkpoint(chain, transport) == 2000.5
    folder.rename(folder.with_name("large"))
    folder.symlink_to("large")
    assert last_checkpoint(chain, transport) == 2000.5
    (folder.with_name("large")).rename(folder.with_name("away"))
    with pytest.raises(RvError, match="they are in large, which is not there"):
        last_checkpoint(chain, transport)
    folder.unlink()
    assert last_checkpoint(chain, transport) is None


@pytest.mark.parametrize(
    "program",
    [
        "kill -KILL $$",
        "kill -KILL $PPID",
        "echo 'find: checkpoints: Stale file handle' >&2; exit 1",
    ],
)
def test_no_answer_is_not_none(chain: Race, program: str, tmp_path: Path) -> None:
    """A chain that began anew for that would lose what its checkpoints hold."""
    with pytest.raises(RvError, match="cannot be looked for") as caught:
        last_checkpoint(chain, with_find(program, tmp_path))
    assert caught.value.kind is ErrorKind.UNREACHABLE


def test_a_file_that_vanished_meanwhile_hides_no_other(chain: Race, tmp_path: Path) -> None:
    """`find` says what it saw, and ends with 1."""
    transport = with_find("echo 12.5; exit 1", tmp_path)
    assert last_checkpoint(chain, transport) == 12.5
