"""The exit code after Ctrl-C, wherever it came."""

import subprocess
import sys
from pathlib import Path

import pytest

IN_EXEC = """
import sys
from rv import __main__ as rv

def interrupted(arguments):
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        sys.exit(4)

rv._run = interrupted
rv.main()
"""
NOT_HANDLED = IN_EXEC.replace("except KeyboardInterrupt", "except ZeroDivisionError")


@pytest.mark.parametrize(("program", "code"), [(IN_EXEC, 4), (NOT_HANDLED, 130)])
def test_it_is_the_documented_one(tmp_path: Path, program: str, code: int) -> None:
    """As data classes are made, too: there Python would end a module's run by the signal itself."""
    (tmp_path / "program.py").write_text(program)
    path = {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[3]}"}

    done = subprocess.run([sys.executable, "-m", "program"], env=path, capture_output=True)

    assert (done.returncode, done.stderr) == (code, b"")
