"""What another user of the machine may lay in the way of root's sandbox: real users, real modes."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rv.errors import RvError
from rv.files import why_not_private
from rv.sandbox import lifecycle, records
from rv.sandbox.records import Record

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to others")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def refused(place: Path) -> str:
    """Why `up` does not take a folder."""
    with pytest.raises(RvError) as raised:
        lifecycle.up("other", "small", directory=place, users=(), progress=print)
    assert records.read("other") is None
    return str(raised.value.message)


@as_root
def test_another_users_empty_folder_is_refused(home: Path) -> None:
    """Whoever owns it could put its own slurm.conf and prolog there, which run as root."""
    place = home / "theirs"
    place.mkdir()
    os.chown(place, NOBODY, NOBODY)
    assert f"{place} belongs to another user" in refused(place)
    assert list(place.iterdir()) == []


@as_root
def test_a_folder_below_another_users_is_refused(home: Path) -> None:
    """They could rename it away, and put another one there."""
    theirs = home / "theirs"
    (theirs / "mine").mkdir(parents=True)
    os.chown(theirs, NOBODY, NOBODY)
    for place in (theirs / "mine", theirs / "new"):
        assert f"{theirs} belongs to another user" in refused(place)


def test_a_folder_where_others_may_write_is_refused(home: Path) -> None:
    """And one below it, unless it is sticky, as /tmp is."""
    shared = home / "shared"
    (shared / "mine").mkdir(parents=True)
    shared.chmod(0o777)
    assert f"others may write to {shared} (mode 0777)" in refused(shared)
    assert f"others may write to {shared} (mode 0777)" in refused(shared / "mine")
    shared.chmod(0o1777)
    assert why_not_private(shared / "mine") == ""
    assert "others may write" in refused(shared)


@as_root
def test_down_says_what_it_must_leave(record: Record, home: Path) -> None:
    """A folder that became another user's still holds the key: the sandbox is not gone."""
    records.state_root().mkdir(parents=True)
    records.write(replace(record, name="left"))
    os.chown(record.directory, NOBODY, NOBODY)
    with pytest.raises(RvError, match=f"{record.directory}, which belongs to another user"):
        lifecycle.down("left")
    assert records.read("left") is not None
    os.chown(record.directory, 0, 0)
    assert lifecycle.down("left")
    assert not Path(record.directory).exists()


@as_root
def test_a_folder_that_was_taken_meanwhile_is_not_used(tmp_path: Path, record: Record) -> None:
    """Between the look and the making: /tmp is everybody's."""
    os.chown(record.run, NOBODY, NOBODY)
    with pytest.raises(PermissionError, match="belongs to another user"):
        record.layout.make()
