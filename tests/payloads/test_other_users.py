"""Payloads whose folder of results others may write to: tried as two users of this machine."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.payloads.starting import PAYLOADS

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as two users")

ANN, BOB = "nobody", "daemon"
AHEAD = 400
"""Process ids that Bob guesses; the next ones are in use soon."""


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder where everybody may write, as /tmp is, with something of Ann's."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="rv-two-"))
    folder.chmod(0o1777)
    (folder / "precious").write_text("precious")
    own(folder / "precious", ANN)
    yield folder
    shutil.rmtree(folder)


def own(path: Path, user: str) -> Path:
    """Give a file or folder, or a link itself, to a user."""
    entry = pwd.getpwnam(user)
    os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)
    return path


def plant(scratch: Path, folder: Path) -> None:
    """As Bob: links to Ann's file by every name that a draft may get soon."""
    latest = int(Path("/proc/loadavg").read_text().split()[-1])
    for pid in range(latest, latest + AHEAD):
        for name in (".probe", ".check_result.json", ".rank-00000.json"):
            (folder / f"{name}.{pid}").symlink_to(scratch / "precious")
            own(folder / f"{name}.{pid}", BOB)


def check(scratch: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run check.py as Ann, without torch, which is soon over and writes its result."""
    uid = pwd.getpwnam(ANN).pw_uid
    (scratch / "torch.py").write_text("raise ImportError('none here')")
    drop = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
    words = (str(PAYLOADS / "check.py"), "--quick", "--device", "cpu", "--report-dir", str(folder))
    return subprocess.run(
        [*drop, sys.executable, *words], cwd=scratch, capture_output=True, text=True, timeout=60,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(scratch), "HOME": str(scratch)},
    )  # fmt: skip


def test_a_draft_has_no_name_that_another_could_guess(scratch: Path) -> None:
    """Bob laid links to a file of Ann's into a folder of everybody's."""
    plant(scratch, scratch)
    done = check(scratch, scratch)
    assert (done.returncode, "no torch" in done.stdout) == (0, True), done.stdout
    assert (scratch / "check_result.json").is_file()
    assert (scratch / "precious").read_text() == "precious"


def test_a_folder_of_anothers_is_refused(scratch: Path) -> None:
    """Bob could put another result in the place of Ann's."""
    folder = scratch / "bobs"
    folder.mkdir()
    own(folder, BOB).chmod(0o777)
    done = check(scratch, folder)
    assert done.returncode != 0
    assert "belongs to daemon" in done.stdout + done.stderr
    assert [*folder.iterdir()] == []
