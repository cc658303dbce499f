"""Reports and results where other users of this machine may write: tried as two of them."""

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as two users")

ANN, BOB = "nobody", "daemon"
RESULT = {
    "schema": "rv.accept/1",
    "tests": [{"name": "t", "status": "PASS"}],
    "summary": {"status": "PASS", "exit_code": 0},
}
MOST_MEMORY = 1_500 * 2**20
"""Address space in which a report is made of a hostile folder: it takes a third without one."""


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder where everybody may write, as /tmp is, with a folder for each of the two."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="rv-two-"))
    folder.chmod(0o1777)
    for user in (ANN, BOB):
        (folder / user).mkdir()
        own(folder / user, user)
    (folder / BOB / "check_result.json").write_text(json.dumps(RESULT))
    yield folder
    shutil.rmtree(folder)


def own(path: Path, user: str) -> Path:
    """Give a file or folder, or a link itself, to a user."""
    entry = pwd.getpwnam(user)
    os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)
    return path


def ann(scratch: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program as Ann, in the scratch folder, with a bound on its memory and time."""
    uid = pwd.getpwnam(ANN).pw_uid
    drop = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
    home = str(scratch / ANN)
    more = dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"), home)
    return subprocess.run(
        ["prlimit", f"--as={MOST_MEMORY}", *drop, sys.executable, *words],
        cwd=scratch, env={**os.environ, **more, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def report(scratch: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return ann(scratch, "-m", "rv", "accept", "report", str(scratch / BOB), *words)


def precious(scratch: Path) -> Path:
    """A file of Ann's that a report could be taken for."""
    folder = scratch / ANN / "kept"
    folder.mkdir()
    own(folder, ANN)
    (folder / "report.html").write_text("precious")
    return own(folder / "report.html", ANN)


def test_a_report_of_anothers_results_is_written(scratch: Path) -> None:
    """As long as nothing is planted."""
    done = report(scratch)
    assert done.returncode == 0, done.stderr
    assert "PASS" in (scratch / "rv-report" / "report.html").read_text()


def test_a_folder_that_another_links_to_a_third_is_refused(scratch: Path) -> None:
    """Bob lays `rv-report` to a folder of Ann's, whose report would be overwritten."""
    kept = precious(scratch)
    (scratch / "rv-report").symlink_to(kept.parent)
    own(scratch / "rv-report", BOB)
    done = report(scratch)
    assert done.returncode == 125, done.stderr
    assert "a link of daemon's" in done.stderr
    assert kept.read_text() == "precious"


def test_a_folder_of_anothers_is_refused(scratch: Path) -> None:
    """Whoever owns it can change what the report says."""
    folder = scratch / "rv-report"
    folder.mkdir()
    own(folder, BOB).chmod(0o777)
    done = report(scratch)
    assert done.returncode == 125, done.stderr
    assert "it belongs to daemon, on rv-report" in done.stderr
    assert [*folder.iterdir()] == []


def test_ones_own_link_is_followed(scratch: Path) -> None:
    """It says where one wants it."""
    kept = precious(scratch)
    (scratch / "rv-report").symlink_to(kept.parent)
    own(scratch / "rv-report", ANN)
    assert report(scratch).returncode == 0
    assert "PASS" in kept.read_text()


@pytest.mark.parametrize("form", ["export", "history"])
def test_an_export_is_not_written_through_a_link(scratch: Path, form: str) -> None:
    """Bob lays the name that Ann writes to."""
    kept = precious(scratch)
    (scratch / "out.xml").symlink_to(kept)
    own(scratch / "out.xml", BOB)
    words = ("export", str(scratch / BOB), "-o", "out.xml")
    if form == "history":
        words = ("history", "--export", "out.xml")
    done = ann(scratch, "-m", "rv", "accept", *words)
    assert done.returncode == 125, done.stderr
    assert kept.read_text() == "precious"


def plant_fifo(folder: Path) -> None:
    os.mkfifo(folder / "a.json")


def plant_device(folder: Path) -> None:
    (folder / "a.json").symlink_to("/dev/zero")


def plant_sparse(folder: Path) -> None:
    with (folder / "a.json").open("wb") as file:
        file.truncate(2**40)


def plant_brackets(folder: Path) -> None:
    """Few bytes on the disk, and much memory as values."""
    (folder / "a.json").write_text('{"schema": "rv.accept/1", "tests": [' + "[]," * 5_000_000)


def plant_nested(folder: Path) -> None:
    """Results that are valid, all of whose values would be kept."""
    lists = [[[[]] * 400] * 400] * 10
    text = json.dumps({**RESULT, "env": {"a": lists, "b": lists}})
    for number in range(20):
        (folder / f"b{number}.json").write_text(text)


def plant_kept(folder: Path) -> None:
    """A folder that looks as if rv had kept it, whose only result is a file without end."""
    (folder / "check_result.json").unlink()
    (folder / "run.json").write_text('{"race_id": "r", "cluster": "c", "payloads": ["check"]}')
    (folder / "results" / "check").mkdir(parents=True)
    with (folder / "results" / "check" / "check_result.json").open("wb") as file:
        file.truncate(2**40)


def plant_closed(folder: Path) -> None:
    """A folder and a result that nobody else may read."""
    (folder / "closed").mkdir(mode=0o700)
    (folder / "other_result.json").write_text(json.dumps(RESULT))
    (folder / "other_result.json").chmod(0o600)


PLANTED: Any = [
    plant_fifo, plant_device, plant_sparse, plant_brackets, plant_nested, plant_kept, plant_closed,
]  # fmt: skip
MAY_BE_RESULTS: Any = [plant_brackets, plant_nested, plant_kept, plant_closed]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_what_another_planted_among_results_neither_hangs_nor_exhausts(
    scratch: Path, plant: Any
) -> None:
    """The report is made of what is readable, and says where something else may have failed."""
    plant(scratch / BOB)
    done = report(scratch)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "not read: " in done.stderr
    verdict = "ERROR" if plant in MAY_BE_RESULTS else "PASS"
    exported = ann(scratch, "-m", "rv", "accept", "export", str(scratch / BOB))
    assert "not read: " in exported.stderr
    assert f'<div class="verdict">{verdict}' in (scratch / "rv-report/report.html").read_text()


MEASURE = """
import resource
from rv.accept.result_files import parse
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
parse(open(0).read(), "x.json")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_text_that_is_read_as_python_grows_little() -> None:
    """2 MB of brackets were 963 MiB as Python's syntax."""
    test = {"name": "t", "status": "PASS", "details": "[" + "()," * 600_000 + "]"}
    document = json.dumps({"server_info": {}, "tests": [test]})
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], input=document, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 50, f"{done.stdout.strip()} MiB"


def test_the_history_is_its_owners_alone(scratch: Path) -> None:
    """Also where an older rv left it open to all."""
    folder = scratch / ANN / "rv" / "accept"
    done = ann(scratch, "-m", "rv", "accept", "history")
    assert done.returncode == 0, done.stderr
    assert [p.stat().st_mode & 0o077 for p in folder.iterdir()] == [0]
    (folder / "history.sqlite").chmod(0o666)
    ann(scratch, "-m", "rv", "accept", "history")
    assert (folder / "history.sqlite").stat().st_mode & 0o777 == 0o600
