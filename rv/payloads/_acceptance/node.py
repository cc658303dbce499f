#!/usr/bin/env python3
"""Run the payloads of an acceptance run on this node, one after the other.

    node.py 'python check 120 --quick' 'torchrun allreduce 120 --quick'

Each argument is a payload: how it starts, its name, its time limit in seconds, its own arguments.
What it leaves in $RV_OUTPUT_DIR is written down in `rv.accept.payload_command`.

Each payload is a fork of a process that has imported torch: that takes longer than most of the
smoke profile's payloads. Nothing here asks CUDA for anything, as none that is forked after that
could use it. The ranks of a payload are fresh processes, started by a fork that is torchrun.
Where torch cannot be imported each payload tries it itself, and says what is wrong.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
import uuid
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

PAYLOADS = Path(__file__).parents[1]
sys.path.insert(0, str(PAYLOADS))  # for what follows, and as if each payload were the program

from _harness import for_job  # noqa: E402
from _harness.ranks import Ranks  # noqa: E402
from _processes import processes  # noqa: E402
from contract.catalogue import RANKS  # noqa: E402

TORCHRUN = "torch.distributed.run"
FIRST_PORT = 29500  # torch's own, where the job names none
PORTS = 6  # of a job's own after MASTER_PORT: the next job id has the seventh (_environment.sh.j2)
IMPORT_WITHIN_S = 300.0  # from a slow disk, for the first time
MEET_WITHIN_S = 600.0  # torchrun's own, for its nodes
GRACE_S = 15.0  # between SIGTERM and SIGKILL, and after it: one that waits for a device stays
ROOM_BYTES = 1 << 30  # fifteen times what the compiled files of torch and transformers take
TICK_S = 0.05
STDOUT = 1
TIMED_OUT = 124  # the exit code of coreutils' timeout


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
        """Make the folders, and note the host's name and the token that the result repeats."""
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
    with contextlib.suppress(OSError):
        # The job's exit code is not the verdict: rv reads the results of every node.
        for_job.Run("acceptance", Ranks()).excuse()
    cap_threads()
    compiled = keep_compiled()
    own = os.getpid()
    try:
        run_with_torch(turns)
    finally:
        if compiled and os.getpid() == own:  # forks come by here too
            shutil.rmtree(compiled, ignore_errors=True)


def keep_compiled() -> str | None:
    """Compile modules once on this node where Python would keep none of torch's compiled files.

    Many images have none, and cannot be written to: each rank then compiles thousands of modules
    anew, for seconds. Returns the folder of compiled files, if one was made. A run that is
    cancelled leaves it.
    """
    try:
        room = shutil.disk_usage(tempfile.gettempdir()).free
        if sys.pycache_prefix or are_kept() or room < ROOM_BYTES:  # half a file would be an error
            return None
        folder = tempfile.mkdtemp(prefix="rv-pyc-")
    except (ImportError, OSError, ValueError):
        return None
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = folder
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return folder


def are_kept() -> bool:
    """Whether torch's compiled files are there, or will be once it was imported; or no torch is."""
    torch = importlib.util.find_spec("torch")
    if torch is None or not torch.cached:
        return True
    cached = Path(torch.cached)
    can_write = not sys.dont_write_bytecode and os.access(cached.parents[1], os.W_OK)
    return can_write or cached.exists()


def run_with_torch(turns: list[Turn]) -> None:
    """Run the payloads in a child that imports torch, else here, without it."""
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        import_torch()
        os.write(told, b"1")
        os.close(told)
        run_all(turns, has_torchrun=True)
        return
    os.close(told)
    if select.select([ready], [], [], IMPORT_WITHIN_S)[0] and os.read(ready, 1):
        os.waitpid(pid, 0)
        return
    os.kill(pid, signal.SIGKILL)
    waited(pid, GRACE_S)
    run_all(turns, has_torchrun=False)


def import_torch() -> None:
    """Import torch and torchrun, or end: not every failure is an exception that can be caught."""
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # numpy is not needed
    try:
        for module in ("torch", TORCHRUN):
            importlib.import_module(module)
    except BaseException:
        os._exit(1)  # each payload tries again, and says what is wrong


def run_all(turns: list[Turn], *, has_torchrun: bool) -> None:
    """Run each payload in turn; nothing that one leaves behind runs beside the next."""
    processes.adopt_orphans()
    first = int(os.environ.get("MASTER_PORT") or FIRST_PORT)
    behind_s = IMPORT_WITHIN_S  # how far another node may be, having used all of its time
    for number, turn in enumerate(turns):
        say(turn.name)
        port = free_port(first + 1 + number % PORTS)
        allowed_s = turn.limit_s + (min(behind_s, MEET_WITHIN_S) if waits(turn) else 0)
        code = run(turn, port, allowed_s, torchrun=turn.ranks and has_torchrun)
        say(f"{turn.name} ended with exit code {code}")
        end_what_is_left()
        behind_s += turn.limit_s


def waits(turn: Turn) -> bool:
    """Whether a payload's ranks begin only when other nodes, which may be behind, are there too."""
    return turn.ranks and int(os.environ.get("NNODES") or 1) > 1


def free_port(own: int) -> int:
    """Return a port for a payload's ranks: the job's own, or another where somebody has taken it.

    Over several nodes it is the job's own in any case, as all of them have to know it.
    """
    if int(os.environ.get("NNODES") or 1) > 1:
        return own
    for port in (own, 0):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("", port))
            return int(listener.getsockname()[1])
    return own


def end_what_is_left() -> None:
    """Kill all that is below this process, and wait for the end of it."""
    left = processes.below(os.getpid())
    processes.end(left, grace_s=0)
    deadline_s = time.monotonic() + GRACE_S
    while any(map(processes.is_alive, left)) and time.monotonic() < deadline_s:
        time.sleep(TICK_S)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def turn_of(word: str) -> Turn:
    """Read one argument of the command line."""
    starts, name, limit_s, *arguments = shlex.split(word)
    return Turn(name, float(limit_s), tuple(arguments), ranks=starts == RANKS)


def cap_threads() -> None:
    """Let the ranks of this node have no more threads together than there are CPUs."""
    ranks = int(os.environ.get("PET_NPROC_PER_NODE") or 1)
    most = max(1, len(os.sched_getaffinity(0)) // ranks)
    asked = os.environ.get("OMP_NUM_THREADS") or "1"
    if not asked.isdecimal() or int(asked) > most:  # it may be a list, a number for each level
        os.environ["OMP_NUM_THREADS"] = str(most)


def run(turn: Turn, port: int, allowed_s: float, *, torchrun: bool) -> int:
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
    code = ended(pid, allowed_s)
    marks.end(code)
    return code


def become(turn: Turn, variables: dict[str, str], *, torchrun: bool) -> NoReturn:
    """Be the payload, or torchrun with it."""
    os.environ.update(variables)
    script = str(PAYLOADS / f"{turn.name}.py")
    sys.argv = [script, *turn.arguments]
    if torchrun:
        sys.argv = [TORCHRUN, *sys.argv]
        sys.modules.pop(TORCHRUN)  # runpy warns of a module that is there before it runs
        run_torchrun()
    else:
        runpy.run_path(script, run_name="__main__")
    sys.exit(0)


def run_torchrun() -> None:
    """Run torchrun, which makes 1 of all ends of its ranks; of SIGKILL this makes what a shell has.

    Raises what torchrun does.
    """
    try:
        runpy.run_module(TORCHRUN, run_name="__main__", alter_sys=True)
    except Exception as error:
        first = getattr(error, "get_first_failure", None)  # of ChildFailedError
        if first is not None and first()[1].exitcode == -signal.SIGKILL:
            traceback.print_exception(error)
            sys.exit(128 + signal.SIGKILL)
        raise


def ended(pid: int, limit_s: float) -> int:
    """Wait for a payload, and end it with all that it started when its time is over.

    Returns its exit code as a shell has it.
    """
    code = waited(pid, limit_s)
    if code is not None:
        return code if code >= 0 else 128 - code
    processes.end(processes.below(os.getpid()), GRACE_S)
    waited(pid, GRACE_S)
    return TIMED_OUT


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


def say(text: str) -> None:
    """Print a line of this program's own, if there is room for it; nothing of it waits in a buffer.

    What did would be written by each fork.
    """
    with contextlib.suppress(OSError):
        os.write(STDOUT, f"[ACCEPT] {text}\n".encode(errors="replace"))


if __name__ == "__main__":
    main(sys.argv[1:])
