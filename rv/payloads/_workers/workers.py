"""Workers, each alone on its slot: started as fresh processes, watched, and gone in the end.

A worker binds itself to its slot before it touches the device, then works until its time is over.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import queue
import signal
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


MATRICES = 3
MIB = 1 << 20


@dataclass(frozen=True)
class Order:
    """What a worker is to do: `memory` is MiB in all, `mark` is in its processes' variables."""

    number: int
    slot_name: str
    key: str
    kind: str
    memory: int
    duration: float
    patience: float
    mark: str
    faults: tuple[str, ...] = ()


def work(order: Order, go: Any, over: Any, said: Any) -> None:
    """Run in a fresh process: be ready, work when all are, say how it went, leave when all have.

    So that all load the GPUs at the same time, and no memory is given back while others work.
    """
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    mine: dict[str, Any] = {"worker": order.number, "pid": os.getpid(), "slot": order.slot_name}
    held: list[Any] = []
    try:
        device, seen, torch = _ready(order, held)
        said.put({"worker": order.number, "ready": True})
        if not go.wait(order.patience):
            raise TimeoutError("the other workers did not get ready")
        found = {"seen": seen, **_load(torch, held, device, order.duration)}
        mine |= {"status": "success", **found}
    except BaseException as error:
        mine |= _failure(error)
    said.put(mine)
    over.wait(order.patience)
    if "leak" in order.faults:
        _leave_one_behind()


def _failure(error: BaseException) -> dict[str, Any]:
    name = type(error).__name__
    last = traceback.extract_tb(error.__traceback__)[-1]
    reason = f"{name}: {str(error).partition(chr(10))[0]} ({last.name}:{last.lineno})"
    return {
        "status": "no_cuda" if "No CUDA GPUs" in str(error) else "error",
        "error": reason,
        "out_of_memory": name in ("OutOfMemoryError", "MemoryError"),
        "isolation": isinstance(error, NotMine),
    }


def _ready(order: Order, held: list[Any]) -> tuple[str, str, Any]:
    """Bind to the slot, see that it is the only device, take memory and warm up."""
    _bind(order)
    import torch

    torch.set_num_threads(1)
    device, seen = _device(torch, order)
    if "die" in order.faults:
        os._exit(7)
    if "allocate" in order.faults:
        raise MemoryError("injected")
    held += _matrices(torch, order.memory, device)
    _multiply(torch, held, device)
    return device, seen, torch


def _load(torch: Any, held: list[Any], device: str, duration: float) -> dict[str, Any]:
    begun, processor_s = time.time(), time.thread_time()
    operations, seconds = _until(torch, held, device, duration)
    processor_s = time.thread_time() - processor_s
    return {
        "operations": operations,
        "duration": seconds,
        "processor_s": processor_s,
        "ops_per_second": operations / seconds,
        "begun": begun,
        "ended": time.time(),
        "bytes": sum(one.numel() * one.element_size() for one in held),
    }


def _bind(order: Order) -> None:
    """Restrict this process to its slot, before CUDA is there to look."""
    wrong = "wrong-slot" in order.faults
    if order.kind == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = order.key
    elif not wrong:
        os.sched_setaffinity(0, {int(order.key)})


def _device(torch: Any, order: Order) -> tuple[str, str]:
    """Give the device, and what this process sees as its only one; raises for anything else."""
    if order.kind == "cpu":
        allowed = sorted(os.sched_getaffinity(0))
        _require(allowed == [int(order.key)], f"CPUs {allowed}, not {order.key} alone")
        return "cpu", str(allowed[0])
    count = torch.cuda.device_count()
    if count == 0:
        raise RuntimeError("No CUDA GPUs are available")
    _require(count == 1, f"{count} GPUs, not one")
    uuid = str(getattr(torch.cuda.get_device_properties(0), "uuid", "")) or order.key
    seen = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    wrong = "wrong-slot" in order.faults
    same = order.key.startswith("MIG-") or seen == order.key
    _require(same and not wrong, f"{seen}, not {order.key}")
    return "cuda:0", seen


class NotMine(Exception):  # noqa: N818 - what a worker saw
    """A worker sees another device than the one it was given."""


def _require(right: bool, seen: str) -> None:  # noqa: FBT001 - a condition
    if not right:
        raise NotMine(f"the worker sees {seen}")


def side(memory: int) -> int:
    """Give the side of square float32 matrices that together take so many MiB."""
    return max(16, math.isqrt(memory * MIB // (4 * MATRICES)))


def _matrices(torch: Any, memory: int, device: str) -> list[Any]:
    size = side(memory)
    made = [torch.randn(size, size, device=device) / math.sqrt(size) for _ in range(2)]
    return [*made, torch.empty(size, size, device=device)]


def _multiply(torch: Any, matrices: list[Any], device: str) -> None:
    left, right, out = matrices
    torch.mm(left, right, out=out)
    if device != "cpu":
        torch.cuda.synchronize()


def _until(torch: Any, matrices: list[Any], device: str, duration: float) -> tuple[int, float]:
    start, operations = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < duration:
        _multiply(torch, matrices, device)
        operations += 1
    return operations, spent


def _leave_one_behind() -> None:
    """Start a process that outlives this one, as a careless program does."""
    if os.fork() == 0:
        os.setsid()
        os.execvp("sleep", ["sleep", "600"])  # noqa: S606 - no shell is wanted


MARK = "RV_ALLOC_MARK"
GRACE = 30.0
"""Seconds beyond its duration that a worker may take to end."""

GONE_WITHIN = 10.0


def run_workers(orders: list[Order], start_within: float) -> list[dict[str, Any]]:
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


def end_left_over(mark: str, within: float = GONE_WITHIN) -> list[int]:
    """Wait for all of a run's processes to be gone; give, and end, those that stay."""
    deadline = time.monotonic() + within
    while (left := left_over(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)  # it carries our mark: we made it
    return left
