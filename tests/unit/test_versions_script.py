"""Where tests/versions.sh cannot run it says so, and the gate goes on."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("programs", "why"),
    [({"id": "echo 1000"}, "chroots are for root"), ({"id": "echo 0"}, "no namespaces here")],
)
def test_it_says_why_it_does_not_run(tmp_path: Path, programs: dict[str, str], why: str) -> None:
    """Code 77, at once."""
    for name, line in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
    script = ["/bin/bash", str(ROOT / "tests" / "versions.sh"), "trixie"]
    done = subprocess.run(script, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (77, "")
    assert why in done.stderr
