"""Payloads whose folder of results others may write to: tried as two users of this machine."""

import json
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


def as_ann(scratch: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a payload as Ann, with a bound on its memory and time."""
    uid = pwd.getpwnam(ANN).pw_uid
    drop = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
    command = (str(PAYLOADS / words[0]), *words[1:], "--report-dir", str(folder))
    return subprocess.run(
        ["prlimit", "--as=1500000000", *drop, sys.executable, *command], cwd=scratch, capture_output=True, text=True, timeout=60,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(scratch), "HOME": str(scratch)},
    )  # fmt: skip


def check(scratch: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run check.py without torch, which is soon over and writes its result."""
    (scratch / "torch.py").write_text("raise ImportError('none here')")
    return as_ann(scratch, folder, "check.py", "--quick", "--device", "cpu")


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


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("check.err", ("run_all.py", "--only", "check", "--quick", "--device", "cpu")),
        ("telemetry.jsonl", ("stress.py", "--duration", "1", "--device", "cpu", "--inject", "ecc")),
        ("test_analysis_report.md", ("tensor_service.py", "report")),
    ],
)
def test_no_file_beside_the_result_is_written_through_a_link(
    scratch: Path, name: str, words: tuple[str, ...]
) -> None:
    """Bob knows their names."""
    tests = [{"name": "t", "status": "PASS"}]
    (scratch / "client_test_results_20260101_000000.json").write_text(json.dumps({"tests": tests}))
    (scratch / name).symlink_to(scratch / "precious")
    own(scratch / name, BOB)
    as_ann(scratch, scratch, *words)
    assert (scratch / "precious").read_text() == "precious"


@pytest.mark.parametrize("kind", ["fifo", "device", "sparse"])
def test_a_report_on_anothers_results_neither_hangs_nor_exhausts(scratch: Path, kind: str) -> None:
    """What cannot be read is named as cut short."""
    bad = scratch / "client_test_results_20260101_000001.json"
    if kind == "fifo":
        os.mkfifo(bad)
    elif kind == "device":
        bad.symlink_to("/dev/zero")
    else:
        with bad.open("wb") as file:
            file.truncate(2**40)
    done = as_ann(scratch, scratch, "tensor_service.py", "report")
    assert done.returncode == 99, done.stdout[-500:] + done.stderr
    assert (scratch / "test_analysis_report.md").is_file()


def test_details_that_are_read_as_python_grow_little() -> None:
    """A bracket of them took hundreds of bytes."""
    program = """
from pathlib import Path
from _tensor_service.report import details_of
details_of({"details": "[" + "()," * 600_000 + "]"})
# Not ru_maxrss, which begins with what the parent had.
(peak,) = [line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
print(int(peak.split()[1]) // 1024)
"""
    environment = {**os.environ, "PYTHONPATH": str(PAYLOADS)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert int(done.stdout) < 100, f"{done.stdout.strip()} MiB {done.stderr}"


def test_another_users_process_that_proc_hides_is_there() -> None:
    """Ann's /proc is mounted with hidepid, as sites do; a number that nobody has is nobody's."""
    program = """
import os
from _processes.processes import is_there, proc_stat
print(proc_stat(1) is None, is_there(1), is_there(4194303), is_there(0), is_there(os.getpid()))
"""
    uid = pwd.getpwnam(ANN).pw_uid
    script = (
        "mount -t proc -o hidepid=2 proc /proc || exit 77; "
        f'exec setpriv --reuid={uid} --regid={uid} --clear-groups "$@"'
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PAYLOADS)}, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        pytest.skip("no /proc can be mounted here")
    assert done.stdout.split() == ["True", "True", "False", "False", "True"], done.stderr
