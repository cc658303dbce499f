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

from .products import Products, Pulse, WrongProduct

if TYPE_CHECKING:
    from collections.abc import Callable

    from .slots import Slot

MATRICES = 3
MIB = 1 << 20
MARK = "RV_ALLOC_MARK"
GRACE_S = 30.0  # beyond its duration that a worker may take to end
GONE_WITHIN_S = 10.0


@dataclass(frozen=True)
class Order:
    """What a worker is to do: `memory` is MiB in all, `mark` is in its processes' variables.

    It works for `alone_s` seconds while those of other slots wait, then for `duration` with all.
    """

    number: int
    slot: Slot
    memory: int
    duration: float
    patience: float
    mark: str
    faults: tuple[str, ...] = ()
    alone_s: float = 0.0


@dataclass(frozen=True)
class Events:
    """What a worker is told: to work alone, to work with all, to leave."""

    alone: Any
    go: Any
    over: Any


class NotOwnSlot(Exception):  # noqa: N818 - an outcome
    """A worker sees another device than the one it was given."""


def work(order: Order, told: Events, messages: Any) -> None:
    """Run in a fresh process: be ready, work when all are, report, leave when all have reported.

    So that all load the GPUs at the same time, and no memory is given back while others work.
    """
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    own: dict[str, Any] = {"worker": order.number, "pid": os.getpid(), "slot": order.slot.name}
    matrices: list[Any] = []
    try:
        products, device_id = _ready(order, matrices)
        messages.put({"worker": order.number, "ready": True})
        if order.alone_s:
            _await(told.alone, order)
            load = _load(products, matrices, order, order.alone_s)
            messages.put({"worker": order.number, "alone": load["ops_per_second"]})
        _await(told.go, order)
        load = _load(products, matrices, order, order.duration)
        own |= {"status": "success", "seen": device_id, **load}
    except BaseException as error:
        own |= _failure(error)
    messages.put(own)
    told.over.wait(order.patience)
    if "leak" in order.faults and os.fork() == 0:  # outlives this one, as of a careless program
        os.setsid()
        os.execvp("sleep", ["sleep", "600"])  # noqa: S606 - no shell is wanted


def _await(event: Any, order: Order) -> None:
    if not event.wait(order.patience):
        raise TimeoutError("the other workers did not get ready")


def _failure(error: BaseException) -> dict[str, Any]:
    name = type(error).__name__
    last = traceback.extract_tb(error.__traceback__)[-1]
    reason = f"{name}: {str(error).partition(chr(10))[0]} ({last.name}:{last.lineno})"
    return {
        "status": "no_cuda" if "No CUDA GPUs" in str(error) else "error",
        "error": reason,
        "out_of_memory": name in ("OutOfMemoryError", "MemoryError"),
        "isolation": isinstance(error, NotOwnSlot),
        "wrong": int(isinstance(error, WrongProduct)),
    }


def _ready(order: Order, matrices: list[Any]) -> tuple[Products, str]:
    """Bind to the slot before CUDA is there to look; check that it is the only one; warm up."""
    if order.slot.kind == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = order.slot.key
    elif "wrong-slot" not in order.faults:
        os.sched_setaffinity(0, {int(order.slot.key)})
    import torch

    torch.set_num_threads(1)
    device_id = _own_device(torch, order)
    if "die" in order.faults:
        os._exit(7)
    if "allocate" in order.faults:
        raise MemoryError("injected")
    device = "cpu" if order.slot.kind == "cpu" else "cuda:0"
    size = side(order.memory)
    matrices += [torch.randn(size, size, device=device) / math.sqrt(size) for _ in range(2)]
    matrices.append(torch.empty(size, size, device=device))
    products = Products(torch, matrices, device, order.faults)
    return products, device_id


def _own_device(torch: Any, order: Order) -> str:
    """Return the only device that this process sees. Raises NotOwnSlot for any other."""
    key = order.slot.key
    if order.slot.kind == "cpu":
        allowed = sorted(os.sched_getaffinity(0))
        _require(allowed == [int(key)], f"CPUs {allowed}, not {key} alone")
        return str(allowed[0])
    count = torch.cuda.device_count()
    if count == 0:
        raise RuntimeError("No CUDA GPUs are available")
    _require(count == 1, f"{count} GPUs, not one")
    uuid = str(getattr(torch.cuda.get_device_properties(0), "uuid", "")) or key
    uuid = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    same = key.startswith("MIG-") or uuid == key
    _require(same and "wrong-slot" not in order.faults, f"{uuid}, not {key}")
    return uuid


def _require(right: bool, what: str) -> None:  # noqa: FBT001 - a condition
    if not right:
        raise NotOwnSlot(f"the worker sees {what}")


def side(memory: int) -> int:
    """Return the side of square float32 matrices that together take so many MiB."""
    return max(16, math.isqrt(memory * MIB // (4 * MATRICES)))


def _load(products: Products, matrices: list[Any], order: Order, seconds: float) -> dict[str, Any]:
    begun, start_s, operations = time.time(), time.perf_counter(), 0
    processor_s, pulse = time.thread_time(), Pulse()
    while (spent_s := time.perf_counter() - start_s) < seconds:
        products()
        operations += 1
        pulse.beat()
        if "still" in order.faults:
            time.sleep(max(0.0, seconds - spent_s))
    return {
        **pulse.pace()._asdict(),
        "operations": operations,
        "wrong": products.wrong,
        "duration": spent_s,
        "processor_s": time.thread_time() - processor_s,
        "ops_per_second": operations / spent_s,
        "begun": begun,
        "ended": time.time(),
        "bytes": sum(matrix.numel() * matrix.element_size() for matrix in matrices),
    }


def run_workers(orders: list[Order], start_within_s: float) -> list[dict[str, Any]]:
    """Let the workers work at the same time; return what each reported, in order.

    Each is a fresh interpreter (spawn): what this process knows of CUDA does not reach it.
    """
    context = multiprocessing.get_context("spawn")
    told, messages = Events(*(context.Event() for _ in range(3))), context.Queue()
    os.environ[MARK] = orders[0].mark  # the workers' variables are what this process has now
    workers = [context.Process(target=work, args=(order, told, messages)) for order in orders]
    try:
        for worker in workers:
            worker.start()
        del os.environ[MARK]
        inbox = _Inbox(workers, messages)
        _run_phases(inbox, told, orders, start_within_s)
        for worker in workers:
            worker.join(GONE_WITHIN_S)
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.kill()
                worker.join()
    pairs = zip(orders, workers, strict=True)
    return [inbox.result(order, worker) for order, worker in pairs]


def _run_phases(inbox: _Inbox, told: Events, orders: list[Order], start_within_s: float) -> None:
    """Tell the workers when to work alone, all together, and when to leave."""
    inbox.wait(lambda: inbox.ready | set(inbox.answers), start_within_s)
    told.alone.set()
    others = {
        order.number for order in orders if not order.alone_s or order.number not in inbox.ready
    }
    alone_s = max(order.alone_s for order in orders)
    inbox.wait(lambda: {*inbox.alone, *others, *inbox.answers}, alone_s + GRACE_S)
    told.go.set()
    inbox.wait(lambda: set(inbox.answers), orders[0].duration + GRACE_S)
    told.over.set()


class _Inbox:
    """What workers have sent so far. One that is dead, or has failed, is not waited for."""

    def __init__(self, workers: list[Any], messages: Any) -> None:
        self._workers, self._messages = workers, messages
        self.ready: set[int] = set()
        self.alone: dict[int, float] = {}
        self.answers: dict[int, dict[str, Any]] = {}

    def wait(self, enough: Callable[[], set[int]], seconds: float) -> None:
        """Wait until `enough` names every living worker, or the time is over."""
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            dead = {n for n, worker in enumerate(self._workers) if worker.exitcode is not None}
            if not self._receive() and len(dead | enough()) == len(self._workers):
                return

    def _receive(self) -> bool:
        try:
            message = self._messages.get(timeout=0.1)
        except queue.Empty:
            return False
        if "status" in message:
            self.answers[message["worker"]] = message
        elif "alone" in message:
            self.alone[message["worker"]] = message["alone"]
        else:
            self.ready.add(message["worker"])
        return True

    def result(self, order: Order, worker: Any) -> dict[str, Any]:
        """Return what a worker reported, or what became of it, with the rate that it had alone."""
        report = self.answers.get(order.number) or _silent(order, worker)
        alone = self.alone.get(order.number)
        return report if alone is None else {**report, "alone_ops_per_second": alone}


def _silent(order: Order, worker: Any) -> dict[str, Any]:
    """Report in place of a worker that died or never came back."""
    died = worker.exitcode not in (None, -signal.SIGKILL)
    reason = f"ended with {worker.exitcode}" if died else "did not end in time, and was killed"
    status = "error" if died else "timeout_or_error"
    own = {"worker": order.number, "pid": worker.pid, "slot": order.slot.name}
    return {**own, "status": status, "error": reason}


def end_left_over(mark: str) -> list[int]:
    """Wait for all of a run's processes to be gone; end those that stay, and return them."""
    deadline_s = time.monotonic() + GONE_WITHIN_S
    while (left := _left_over(mark)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)  # it carries our mark: we made it
    return left


def _left_over(mark: str) -> list[int]:
    """Find the processes that carry a run's mark in their variables, this one not counted."""
    entry = f"{MARK}={mark}\0".encode()
    left = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        pid = int(path.parent.name)
        try:
            if entry in path.read_bytes() and pid != os.getpid() and not _is_helper(path.parent):
                left.append(pid)
        except OSError:
            continue
    return left


def _is_helper(process: Path) -> bool:
    """Return whether a process is multiprocessing's own resource tracker, or a zombie."""
    command = (process / "cmdline").read_bytes()
    state = (process / "stat").read_text().rpartition(")")[2].split()[0]
    return b"resource_tracker" in command or state == "Z"
