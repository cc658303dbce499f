"""`python -m rv.api.call`: make a submitted call on a node, and leave its result.

It runs in the user's own interpreter, once a node; where a node has several tasks it starts one
process for each. What cannot be read, called or sent back is told in the result.
"""

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from rv.api.delayed import DelayedSubmission
from rv.api.environment import LOCAL_RANK, LOCAL_WORLD_SIZE, RANK, WORLD_SIZE
from rv.api.pickles import (
    GOES_ON,
    RAISED,
    SUBMITTED,
    CallHeader,
    ResultHeader,
    dumps,
    read_call_header,
    result_file,
    this_python,
    unpickled,
    write_private,
)

_SAVING_S: Final = 600.0
_IN_CHILDREN: Final = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGUSR1: signal.SIG_IGN,
    signal.SIGUSR2: signal.SIG_IGN,
}


def main() -> NoReturn:
    """Make the call, or start a process for each task of this node."""
    race = Path(os.environ["RV_RACE_DIR"])
    submitted = race / GOES_ON if (race / GOES_ON).exists() else race / SUBMITTED
    data = submitted.read_bytes()
    header = read_call_header(data)
    if header.tasks_per_node > 1 and LOCAL_RANK not in os.environ:
        sys.exit(_start_tasks(header))
    ranks = _ranks(header, int(os.environ.get(LOCAL_RANK, "0")))
    if header.nodes * header.tasks_per_node > 1:  # plain Python is not to take itself for a rank
        os.environ.update(ranks)
    sys.path += [folder for folder in header.path if folder not in sys.path]
    if header.stderr_to_stdout:
        os.dup2(1, 2)
    sys.exit(Call(race, int(ranks[RANK])).make(data, header))


def _start_tasks(header: CallHeader) -> int:
    """Run the tasks of this node; the code is the highest of theirs, as a shell would give it.

    A signal is theirs to hear: who has started them waits until they have saved what goes on.
    """
    _hear(lambda *_: None)  # unlike SIG_IGN, that is not passed on
    argv = [sys.executable, "-u", "-m", "rv.api.call"]
    tasks = [
        subprocess.Popen(argv, env={**os.environ, LOCAL_RANK: str(rank)})
        for rank in range(header.tasks_per_node)
    ]
    codes = [task.wait() for task in tasks]
    return max(128 - code if code < 0 else code for code in codes)


def _ranks(header: CallHeader, local_rank: int) -> dict[str, str]:
    """Return the variables by which a task knows which of them it is, as torch reads them."""
    node = int(os.environ.get("NODE_RANK") or os.environ.get("SLURM_PROCID") or "0")
    numbers = {
        RANK: node * header.tasks_per_node + local_rank,
        LOCAL_RANK: local_rank,
        WORLD_SIZE: header.nodes * header.tasks_per_node,
        LOCAL_WORLD_SIZE: header.tasks_per_node,
    }
    return {name: str(number) for name, number in numbers.items()}


class Call:
    """One task's call."""

    def __init__(self, race: Path, rank: int) -> None:
        self._race, self._rank = race, rank
        self._delayed: DelayedSubmission | None = None
        self._header: CallHeader | None = None
        self._is_saved = False
        self._process = os.getpid()
        segment = os.environ.get("RV_SEGMENT", "1")
        self._saved = race / "checkpoints" / f".saved-{segment}"

    def make(self, data: bytes, header: CallHeader) -> int:
        """Make the call and write its result; return the code to exit with."""
        self._header = header
        try:
            self._delayed = self._read(data, header)
            if self._delayed.checkpoint:
                os.register_at_fork(after_in_child=self._hear_in_child)
                _hear(self._interrupted)
            value = self._delayed.result()
        except BaseException as failure:  # noqa: BLE001 - the user's; it is theirs to read
            if self._is_saved:
                return 0
            traceback.print_exc()
            return self._leave(ResultHeader(traceback=traceback.format_exc()), failure)
        return self._leave(ResultHeader(), value)

    def _read(self, data: bytes, header: CallHeader) -> DelayedSubmission:
        try:
            delayed: DelayedSubmission = unpickled(data)
        except Exception as failure:
            raise RuntimeError(
                f"the call cannot be read on {os.uname().nodename}, whose Python is"
                f" {this_python()}; it was submitted by {header.python}"
            ) from failure
        return delayed

    def _leave(self, header: ResultHeader, value: Any) -> int:
        """Write the result. What cannot be pickled is told in its place."""
        _hear(signal.SIG_IGN)  # the call was made: it is not to be made again
        try:
            data = dumps(header, value)
        except BaseException:  # noqa: BLE001 - whatever a value's own __reduce__ raises
            traceback.print_exc()
            told = header.traceback or f"the result cannot be pickled\n{traceback.format_exc()}"
            header = ResultHeader(traceback=told, has_value=False)
            data = dumps(header, None)
        write_private(self._race / result_file(self._rank), data)
        self._say_what_follows("done")
        return RAISED if header.traceback else 0

    def _say_what_follows(self, word: str) -> None:
        """Tell the chain of a call that can be interrupted whether another segment follows."""
        if self._rank == 0:
            write_private(self._race / "checkpoints" / ".rv-next", word.encode())

    def _interrupted(self, number: int, _: FrameType | None) -> None:
        """Save what goes on, and end; the first task alone saves, and none of its children."""
        if os.getpid() != self._process:  # a handler of the user's own may have called this one
            _leave_to_parent(number)
            return
        _hear(signal.SIG_IGN)
        if (self._race / "stop").exists():
            sys.exit(128 + number)
        if self._rank:
            self._await_first()
        else:
            self._save()
        self._is_saved = True
        sys.exit(0)

    def _hear_in_child(self) -> None:
        """Let a forked process end as any other does: what its copy would save is of the fork.

        A handler of the user's own stays.
        """
        for number, handler in _IN_CHILDREN.items():
            if signal.getsignal(number) in (self._interrupted, signal.SIG_IGN):
                signal.signal(number, handler)

    def _save(self) -> None:
        delayed, header = self._delayed, self._header
        if delayed is None or header is None or delayed.checkpoint is None:
            return
        goes_on = delayed.checkpoint(*delayed.args, **delayed.kwargs)
        if goes_on is None:
            raise RuntimeError("interrupted, and its checkpoint() returned None")
        write_private(self._race / GOES_ON, dumps(header, goes_on))
        self._say_what_follows("again")
        self._saved.touch()

    def _await_first(self) -> None:
        deadline = time.monotonic() + _SAVING_S
        while not self._saved.exists() and time.monotonic() < deadline:
            time.sleep(0.1)


def _leave_to_parent(number: int) -> None:
    """End by SIGTERM, and by no other: the process that makes the call saves."""
    if number == signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def _hear(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    """Do this at a signal that the time is over, or of a preemption."""
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
        signal.signal(number, handler)


if __name__ == "__main__":
    main()
