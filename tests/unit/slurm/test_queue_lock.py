"""The lock that lets one rv process at a time ask for the user's queue."""

import fcntl
import time

import pytest

from rv.slurm import squeue


def test_who_waits_too_long_goes_on_without_the_lock(tmp_path, monkeypatch):
    """A process that was stopped while it held the lock stops nobody else."""
    monkeypatch.setattr(squeue, "_TIMEOUT_S", 0.3)
    path = tmp_path / "rv" / "queue.lock"
    path.parent.mkdir()
    with path.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        started = time.monotonic()
        with squeue._one_at_a_time(path):
            assert 0.3 <= time.monotonic() - started < 5


def test_the_lock_is_held_and_let_go(tmp_path):
    """In a private file of a private folder."""
    path = tmp_path / "rv" / "queue.lock"
    with squeue._one_at_a_time(path):
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        with path.open("w") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with path.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_link_that_another_user_put_there_is_not_followed(tmp_path):
    """Nothing is made where it points, and the question is asked all the same."""
    path = tmp_path / "queue.lock"
    path.symlink_to(tmp_path / "made-by-rv")
    with squeue._one_at_a_time(path):
        assert not (tmp_path / "made-by-rv").exists()


def test_an_error_of_the_one_who_holds_it_is_not_swallowed(tmp_path):
    """Only what concerns the lock itself is ignored."""
    with pytest.raises(OSError, match="its own"), squeue._one_at_a_time(tmp_path / "queue.lock"):
        raise OSError("its own")
