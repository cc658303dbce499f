"""Payloads as jobs run them: programs with an environment, an exit code and a result file."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.payloads.starting import ONLY, PAYLOADS, Launcher

PATIENCE = 240
ALONE = {**ONLY, "HOME": "/nonexistent"}


def without_torch(folder: Path) -> dict[str, str]:
    """An environment whose torch cannot be imported; it saves seconds where none is needed."""
    hidden = folder / "hidden"
    hidden.mkdir(exist_ok=True)
    (hidden / "torch.py").write_text("raise ImportError('torch is hidden')\n")
    return {"PYTHONPATH": str(hidden)}


def start(payload: str, *words: object, **env: str) -> subprocess.Popen[str]:
    """Start a payload in an environment of its own."""
    command = [sys.executable, str(PAYLOADS / f"{payload}.py"), *map(str, words)]
    return subprocess.Popen(
        command,
        env={**ALONE, **env},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def run(
    payload: str, folder: Path, *words: object, launch: Launcher | None = None, **env: str
) -> tuple[int, str, dict[str, Any]]:
    """Run a payload on the CPU to its end; give exit code, output and result.

    With `launch` it is forked from a process that has torch, which saves seconds.
    """
    words = (*words, "--device", "cpu", "--report-dir", folder, "--report-name", "result.json")
    if launch is not None:
        done = launch(payload, folder, *words, **env)
        code, output = done.code, done.out + done.err
    else:
        with start(payload, *words, **env) as process:
            output, _ = process.communicate(timeout=PATIENCE)
        code = process.returncode
    path = folder / "result.json"
    return code, output, json.loads(path.read_text()) if path.exists() else {}


def codes(result: dict[str, Any], status: str = "FAIL") -> set[str]:
    """Give the codes of a result's tests of a status."""
    return {test["code"] for test in result["tests"] if test["status"] == status}


def by_name(result: dict[str, Any], name: str) -> dict[str, Any]:
    """Give the first test of a name."""
    found: dict[str, Any] = next(test for test in result["tests"] if test["name"] == name)
    return found
