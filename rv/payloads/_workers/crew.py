"""A crew of workers: started afresh, watched, and gone when their time is over."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .worker import Order, work

if TYPE_CHECKING:
    from collections.abc import Callable

MARK = "RV_ALLOC_MARK"
GRACE = 30.0
"""Seconds beyond its duration that a worker may take to end."""

GONE_WITHIN = 10.0


def run(orders: list[Order], start_within: float) -> list[dict[str, Any]]:
    """Let the workers work at the same time; give what each said, in order.

    Each is a fresh interpreter (spawn): what this process knows of CUDA does not reach it.
    """
    context = multiprocessing.get_context("spawn")
    go, over, said = context.Event(), context.Event(), context.Queue()
    os.environ[MARK] = orders[0].mark  # the workers' variables are what this process has now
    workers = [context.Process(target=work, args=(order, go, over, said)) for order in orders]
    try:
        for worker in workers:
            worker.start()
        del os.environ[MARK]
        ears = _Ears(workers, said)
        ears.until(lambda: ears.ready | set(ears.answers), start_within)
        go.set()
        ears.until(lambda: set(ears.answers), orders[0].duration + GRACE)
        over.set()
        for worker in workers:
            worker.join(GONE_WITHIN)
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.kill()
                worker.join()
    return [ears.answers.get(order.number) or _silent(order, worker)
            for order, worker in zip(orders, workers, strict=True)]  # fmt: skip


class _Ears:
    """What workers have said so far. One that is dead, or has failed, is not waited for."""

    def __init__(self, workers: list[Any], said: Any) -> None:
        self._workers, self._said = workers, said
        self.ready: set[int] = set()
        self.answers: dict[int, dict[str, Any]] = {}

    def until(self, enough: Callable[[], set[int]], seconds: float) -> None:
        """Listen until `enough` names every living worker, or the time is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            dead = {n for n, worker in enumerate(self._workers) if worker.exitcode is not None}
            heard = self._hear()
            if not heard and len(dead | enough()) == len(self._workers):
                return

    def _hear(self) -> bool:
        try:
            one = self._said.get(timeout=0.1)
        except queue.Empty:
            return False
        if "status" in one:
            self.answers[one["worker"]] = one
        else:
            self.ready.add(one["worker"])
        return True


def _silent(order: Order, worker: Any) -> dict[str, Any]:
    """Speak for a worker that died or never came back."""
    died = worker.exitcode not in (None, -signal.SIGKILL)
    reason = f"ended with {worker.exitcode}" if died else "did not end in time, and was killed"
    return {
        "worker": order.number, "pid": worker.pid, "slot": order.slot_name,
        "status": "error" if died else "timeout_or_error", "error": reason,
    }  # fmt: skip


def left_over(mark: str) -> list[int]:
    """Give the processes that carry a run's mark in their variables, this one not counted."""
    wanted = f"{MARK}={mark}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            held = path.read_bytes()
        except OSError:
            continue
        pid = int(path.parent.name)
        if wanted in held and pid != os.getpid() and not _is_helper(pid):
            found.append(pid)
    return found


def _is_helper(pid: int) -> bool:
    """Say whether a process is multiprocessing's own resource tracker, or a zombie."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return b"resource_tracker" in command or stat.rpartition(")")[2].split()[0] == "Z"


def gone(mark: str, within: float = GONE_WITHIN) -> list[int]:
    """Wait for all of a run's processes to be gone; give, and end, those that stay."""
    deadline = time.monotonic() + within
    while (left := left_over(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)  # it carries our mark: we made it
    return left
