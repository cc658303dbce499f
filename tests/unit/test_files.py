"""Files that are replaced whole."""

import errno
import fcntl
import os
import resource
import signal
import stat

import pytest

from rv.files import locked, write_atomically, write_own


def test_contents_are_replaced_and_nothing_else_is_left(tmp_path):
    """Text is UTF-8, bytes are themselves."""
    path = tmp_path / "record.json"
    write_atomically(path, "Grüße")
    write_atomically(path, path.read_bytes() + b"\xff", durable=True)
    assert path.read_bytes() == "Grüße".encode() + b"\xff"
    assert [each.name for each in tmp_path.iterdir()] == ["record.json"]


@pytest.mark.parametrize(("mode", "expected"), [(0o600, 0o600), (0o644, 0o644), (None, 0o640)])
def test_a_mode_holds_whatever_the_umask(tmp_path, mode, expected):
    """Without one the umask decides, as for any file."""
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", "x", mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == expected


def test_a_link_is_replaced_and_not_followed(tmp_path):
    """What it points to is somebody else's."""
    target = tmp_path / "theirs"
    target.write_text("theirs")
    (tmp_path / "file").symlink_to(target)
    write_atomically(tmp_path / "file", "ours")
    assert target.read_text() == "theirs"
    assert not (tmp_path / "file").is_symlink()


def test_what_cannot_be_written_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    """An interrupt counts too: the temporary file goes with it."""
    path = tmp_path / "file"
    write_atomically(path, "old")

    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new", durable=True)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_atomically(tmp_path / "folder", "x")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "folder"]


def test_a_full_disk_leaves_the_old_answer(tmp_path):
    """Half a file of golden values would stop every run after it."""
    path = tmp_path / "golden.yaml"
    write_own(path, "old\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
    try:
        with pytest.raises(OSError, match="large"):
            write_own(path, "new\n" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.read_text() == "old\n"
    assert [each.name for each in tmp_path.iterdir()] == ["golden.yaml"]


def test_an_answer_keeps_its_mode_and_goes_through_no_link(tmp_path):
    """A user's report that is private stays so."""
    path, link, pipe = (tmp_path / name for name in ("report.html", "link", "pipe"))
    path.write_text("old")
    path.chmod(0o600)
    link.symlink_to(path)
    os.mkfifo(pipe)
    write_own(path, "new")
    for other in (link, pipe):
        with pytest.raises(PermissionError, match="no file of yours"):
            write_own(other, "newer")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_one_process_at_a_time_holds_a_lock(tmp_path):
    """Another one is told so, and does not wait for ever."""
    path = tmp_path / "folder" / "c.lock"
    with locked(path, 1), pytest.raises(TimeoutError), locked(path, 0):
        pass
    with locked(path, 0):
        assert path.exists()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS])
def test_a_file_system_without_locks_is_used_without(tmp_path, monkeypatch, code):
    """As NFS without its lock service, and Lustre unless it is mounted with flock."""

    def refused(descriptor: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refused)
    with locked(tmp_path / "c.lock", 1):
        done = True
    assert done
