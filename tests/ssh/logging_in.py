"""A program that logs in by one of rv's transports, at a terminal or without one."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.ssh.server import HOST, SshServer
from tests.ssh.terminal import Terminal

PROGRAM = """
import sys
from rv.errors import RvError
from rv.transport.remote_shell import RemoteShell
from rv.transport.ssh_choice import choose_ssh
try:
    shell = RemoteShell(choose_ssh(*sys.argv[1:3]).connect, "SLURM_.*")
    print(shell.run(sys.argv[3], timeout_s=20)[1].decode(), end="")
except KeyboardInterrupt:
    sys.exit(130)
except RvError as error:
    print(f"error[{error.kind}]: {error.message}")
    print(f"hint: {error.hint}")
    sys.exit(125)
"""
SCRIPT = "echo logged in as $(id -un)"


def environment(server: SshServer) -> Mapping[str, str]:
    """What the program is called with."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SSH_", "RV_"))}
    return {
        **kept,
        "PATH": server.search_path,
        "HOME": str(server.home),
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "XDG_RUNTIME_DIR": str(server.path.parent),
    }


def start(
    server: SshServer, kind: str, host: str = HOST, script: str = SCRIPT, **added: str
) -> Terminal:
    """Start it at a terminal."""
    argv = [sys.executable, "-c", PROGRAM, host, kind, script]
    return Terminal(argv, {**environment(server), **added})


def run(
    server: SshServer, kind: str, host: str = HOST, script: str = SCRIPT, **added: str
) -> "subprocess.CompletedProcess[str]":
    """Run it without a terminal."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, host, kind, script],
        env={**environment(server), **added}, stdin=subprocess.DEVNULL, start_new_session=True,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def one_line(text: str) -> str:
    """The error of a program that failed: a line and a hint, and nothing else of rv's."""
    lines = text.replace("\r", "").strip().splitlines()
    assert "Traceback" not in text, text
    errors = [
        number for number, line in enumerate(lines) if line.startswith("error[unreachable]: ")
    ]
    assert errors == [len(lines) - 2], text
    assert lines[-1].startswith("hint: "), text
    return lines[-2]
