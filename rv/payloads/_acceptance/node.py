#!/usr/bin/env python3
"""Run the payloads of an acceptance run on this node, one after the other.

    node.py 'python check 120 --quick' 'torchrun allreduce 120 --quick'

Each argument is a payload: how it starts, its name, its time limit in seconds, its own arguments.
What it leaves in $RV_OUTPUT_DIR is written down in `rv.accept.payload_command`.

Each payload is a fork of this process, which has imported torch: that takes longer than most of
the smoke profile's payloads. Nothing here asks CUDA for anything, as none that is forked after that
could use it. The ranks of a payload are fresh processes, started by a fork that is torchrun.
"""

from __future__ import annotations

import importlib
import os
import runpy
import shlex
import signal
import socket
import sys
import time
import uuid
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

PAYLOADS = Path(__file__).parents[1]
TORCHRUN = "torch.distributed.run"
FIRST_PORT = 29500  # torch's own, where the job names none
GRACE_S = 15.0  # between TERM and KILL
TICK_S = 0.05
TIMED_OUT, KILLED = 124, 137  # the exit codes of coreutils' timeout


@dataclass(frozen=True)
class Turn:
    """A payload to run: `ranks` says whether torchrun starts it."""

    name: str
    limit_s: float
    arguments: tuple[str, ...]
    ranks: bool


@dataclass(frozen=True)
class Marks:
    """Where a payload's results go, and where this node notes that it began and how it ended."""

    folder: Path
    node: int

    def begin(self, token: str) -> None:
        """Make the folders, and note the host's name and the word that the result repeats."""
        own = self.folder / f"node{self.node}"
        host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        try:
            own.mkdir(parents=True, exist_ok=True)
            own.with_suffix(".begun").write_text(f"{host}\n{token}\n")
        except OSError as error:
            say(f"no folder for results: {error}")

    def end(self, code: int) -> None:
        """Note the exit code."""
        try:
            (self.folder / f"node{self.node}.exit").write_text(f"{code}\n")
        except OSError as error:
            say(f"the exit code is not noted: {error}")


def main(words: list[str]) -> None:
    """Run each payload in turn."""
    turns = [turn_of(word) for word in words]
    cap_threads()
    has_torchrun = imported("torch") and imported(TORCHRUN)
    first = int(os.environ.get("MASTER_PORT") or FIRST_PORT)
    for port, turn in enumerate(turns, first + 1):
        say(turn.name)
        code = run(turn, port, torchrun=turn.ranks and has_torchrun)
        say(f"{turn.name} ended with exit code {code}")


def turn_of(word: str) -> Turn:
    """Read one argument of the command line."""
    starts, name, limit_s, *arguments = shlex.split(word)
    return Turn(name, float(limit_s), tuple(arguments), ranks=starts == "torchrun")


def cap_threads() -> None:
    """Let the ranks of this node have no more threads together than there are CPUs."""
    ranks = int(os.environ.get("PET_NPROC_PER_NODE") or 1)
    most = max(1, len(os.sched_getaffinity(0)) // ranks)
    if int(os.environ.get("OMP_NUM_THREADS") or 1) > most:
        os.environ["OMP_NUM_THREADS"] = str(most)


def imported(module: str) -> bool:
    """Import a module, for all forks; return whether that went well. Payloads say what is wrong."""
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # numpy is not needed
    try:
        importlib.import_module(module)
    except Exception:
        return False
    return True


def run(turn: Turn, port: int, *, torchrun: bool) -> int:
    """Run a payload until it ends or its time is over; return its exit code, as a shell has it."""
    marks = Marks(
        Path(os.environ["RV_OUTPUT_DIR"], turn.name), int(os.environ.get("NODE_RANK") or 0)
    )
    token = str(uuid.uuid4())
    marks.begin(token)
    results = marks.folder if torchrun else marks.folder / f"node{marks.node}"
    variables = {"RV_OUTPUT_DIR": str(results), "RV_RESULT_TOKEN": token}
    variables |= {"MASTER_PORT": str(port), "PET_MASTER_PORT": str(port)}
    pid = os.fork()
    if pid == 0:
        become(turn, variables, torchrun=torchrun)
    code = ended(pid, turn.limit_s)
    marks.end(code)
    return code


def become(turn: Turn, variables: dict[str, str], *, torchrun: bool) -> NoReturn:
    """Be the payload, or torchrun with it, in a process group of its own."""
    os.setpgid(0, 0)
    os.environ.update(variables)
    script = str(PAYLOADS / f"{turn.name}.py")
    sys.path[0] = str(PAYLOADS)
    sys.argv = [script, *turn.arguments]
    if torchrun:
        sys.argv = [TORCHRUN, *sys.argv]
        sys.modules.pop(TORCHRUN)  # runpy warns of a module that is there before it runs
        runpy.run_module(TORCHRUN, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(script, run_name="__main__")
    sys.exit(0)


def ended(pid: int, limit_s: float) -> int:
    """Wait for a process, and end its group when its time is over; return its exit code."""
    code = waited(pid, limit_s)
    if code is not None:
        return code if code >= 0 else 128 - code
    signal_group(pid, signal.SIGTERM)
    if waited(pid, GRACE_S) is not None:
        return TIMED_OUT
    signal_group(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return KILLED


def waited(pid: int, seconds: float) -> int | None:
    """Wait for a child; return its exit code, below zero for a signal, None while it runs."""
    deadline_s = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline_s:
            return None
        time.sleep(TICK_S)


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal a child and what it started; the child alone where it has made no group yet."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        os.kill(pid, number)


def say(text: str) -> None:
    """Print a line of this program's own."""
    print(f"[ACCEPT] {text}", flush=True)  # before a fork nothing may wait to be written


if __name__ == "__main__":
    main(sys.argv[1:])
