"""Where the answer goes is the caller's choice: closed, full, or a pipe whose reader has left."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rv.ui import console


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('"$@" >&-', 0),
        ('"$@" --version >&-', 0),
        ('"$@" --version 2>&-', 0),
        ('"$@" --version <&- >&- 2>&-', 0),
        ('"$@" nonsense 2>&-', 2),
        ('"$@" >/dev/full', 125),
        ('"$@" --version >/dev/full', 125),
        ('"$@" --help >/dev/full', 125),
        ('"$@" accept --help >/dev/full', 125),
        ('"$@" accept run --help >/dev/full', 125),
        ('"$@" accept list --json >/dev/full', 125),
        ('"$@" accept history --json >/dev/full', 125),
        ('"$@" accept list --json 2>/dev/full', 0),
        ('"$@" nonsense 2>/dev/full', 2),
        ('"$@" nonsense --json >&2 2>/dev/full', 2),
    ],
)
def test_no_output_is_a_fault_of_rvs(tmp_path: Path, line: str, code: int) -> None:
    """A closed one is as /dev/null; a full disk is one line, with what to do."""
    home = {f"XDG_{kind}_HOME": str(tmp_path) for kind in ("STATE", "CONFIG", "CACHE", "DATA")}
    argv = ["bash", "-c", line, "bash", sys.executable, "-m", "rv"]
    done = subprocess.run(argv, env=os.environ | home, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "error[internal]" not in done.stderr
    said = "error[stage]: the output could not be written: No space left on device\n"
    assert (said in done.stderr) == (code == 125)


def test_an_error_that_cannot_be_told_as_json_is_told_as_text(tmp_path: Path) -> None:
    """Of what happened, and by its own code: nobody asks for where the output goes then."""
    home = {f"XDG_{kind}_HOME": str(tmp_path) for kind in ("STATE", "CONFIG", "CACHE", "DATA")}
    argv = [sys.executable, "-m", "rv", "nonsense", "--json"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            argv, env=os.environ | home, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error[usage]: No such command 'nonsense'.\n")


def test_a_watch_ends_when_its_reader_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where that was found out by writing: nothing is left to be read from then on."""
    theirs, ours = os.pipe()
    with os.fdopen(ours, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(console, "_WITHOUT_READER", [])
        assert console.has_reader()
        os.close(theirs)
        assert not console.has_reader()
        console.answer("a line more")
        assert not console.has_reader()
