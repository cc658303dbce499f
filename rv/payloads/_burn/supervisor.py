"""One worker a device, all at once, under a supervisor that sees each of them working or not."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, NamedTuple

from .peer_copies import Pace
from .torch_burn import work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from .torch_burn import Job

TICK_S = 0.25
STARTING_S = 180.0  # a cold file system reads torch slowly
INTERRUPTED_S = 2.0  # to end in after a signal, which leaves five for everything


class Beat(NamedTuple):
    """What was done between two beats: floating-point operations at a size, and seconds."""

    size: int
    operations: float
    seconds: float


@dataclass
class Worker:
    """One device's burn, as far as it was heard of."""

    job: Job
    process: Any
    pipe: Connection
    state: str = "starting"  # then burning, done, cut (ended before its last comparison), failed
    code: str = ""
    reason: str = ""
    size: int = 0
    slots: int = 0
    digest: str = ""
    products: int = 0
    compared: int = 0
    errors: int = 0
    heard_s: float = field(default_factory=time.monotonic)
    beat_s: float | None = None  # the worker's clock at its last beat
    rates: list[float] = field(default_factory=list)  # TFLOPS between two beats
    counted: tuple[float, float] = (0.0, 0.0)  # operations of all these beats, and their seconds
    warm_up: tuple[list[float], tuple[float, float]] = field(default_factory=lambda: ([], (0, 0.0)))
    dtype: str = ""  # of this turn
    by_dtype: dict[str, list[Beat]] = field(default_factory=dict)
    copies: dict[str, int] = field(default_factory=dict)  # to its peer: copies, bytes, wrong
    pace: Pace = field(default_factory=Pace)
    shares: list[float] = field(default_factory=list)  # of the device's time that it got

    @property
    def rate(self) -> float:
        """TFLOPS over the whole time that was counted, by the clock."""
        operations, seconds = self.counted
        return operations / seconds / 1e12 if seconds else 0.0

    def restart(self) -> None:
        """Count anew: the warm-up is no part of the work, where anything comes after it."""
        self.warm_up, self.rates, self.counted = (self.rates, self.counted), [], (0.0, 0.0)
        self.by_dtype = {}

    def settle(self) -> None:
        """Take the warm-up's rates where nothing was counted after it."""
        if not self.rates:
            self.rates, self.counted = self.warm_up

    @property
    def active(self) -> bool:
        """Whether it is still expected to work."""
        return self.state in ("starting", "burning")

    def fail(self, code: str, reason: str) -> None:
        """End this worker's part: what it was, and why."""
        self.state, self.code, self.reason = "failed", code, reason
        self.process.kill()

    def stop(self) -> None:
        """Ask it to compare what it has and to end."""
        try:
            self.pipe.send("stop")
        except OSError:
            self.receive()

    def end(self) -> None:
        """End its process, at once unless it is done."""
        if self.state != "done":
            self.process.kill()
        self.process.join(1)
        self.process.kill()

    def receive(self) -> None:
        """Take in everything that it sent; a closed pipe is the end of a worker that died."""
        try:
            while self.pipe.poll():
                self._take(self.pipe.recv())
        except (EOFError, OSError):
            if self.active:
                self.process.join(5)
                ended = f"ended by itself with code {self.process.exitcode}"
                self.fail("worker_failed", f"its burn {ended} after {self.products} products")

    def _take(self, message: dict[str, Any]) -> None:
        self.heard_s = time.monotonic()
        if message["kind"] == "error":
            self.fail(message["code"], message["reason"])
        elif message["kind"] == "ready":
            self.size, self.slots = message["size"], message["slots"]
            self.digest, self.state, self.dtype = message["digest"], "burning", message["dtype"]
        elif message["kind"] == "turn":
            self.size, self.slots, self.dtype = message["size"], message["slots"], message["dtype"]
            self.beat_s = None  # making the ring is no part of the work
            self.pace.pause()
        elif message["kind"] == "copying":
            self.pace.note(message["copies"], message["at"])
        elif message["kind"] == "peer":
            self.copies = {name: message[name] for name in ("copies", "bytes", "wrong")}
        elif message["kind"] == "share":
            self.shares.append(message["share"])
        else:
            self._count(message)
            self.state = "done" if message["kind"] == "done" else self.state

    def _count(self, message: dict[str, Any]) -> None:
        made, before_s = message["products"] - self.products, self.beat_s
        self.products, self.errors = message["products"], message["errors"]
        self.compared = message["compared"]
        self.beat_s = message["at"]
        # In what comes last the comparison of all is timed too: it counts where it is all there is.
        ends = message["kind"] in ("done", "turned")
        is_last = ends and (self.rates or self.warm_up[0])
        if made and not is_last and before_s is not None and message["at"] > before_s:
            seconds = message["at"] - before_s
            operations = 2.0 * self.size**3 * made
            self.rates.append(operations / seconds / 1e12)
            self.counted = (self.counted[0] + operations, self.counted[1] + seconds)
            beats = self.by_dtype.setdefault(self.dtype, [])
            beats.append(Beat(self.size, operations, seconds))


@contextlib.contextmanager
def signals_noted() -> Iterator[threading.Event]:
    """Note TERM and INT, which would else interrupt a worker's message in the middle."""
    interrupted = threading.Event()
    both = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: interrupted.set()) for number in both}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Supervisor:
    """All workers of this node; `interrupted` ends their burn early."""

    def __init__(self, jobs: list[Job], silence: float, interrupted: threading.Event) -> None:
        self.silence, self.interrupted = silence, interrupted
        spawn = multiprocessing.get_context("spawn")
        self.workers = []
        for job in jobs:
            pipe, workers_end = spawn.Pipe()
            process = spawn.Process(target=work, args=(job, workers_end), daemon=True)
            process.start()
            workers_end.close()
            self.workers.append(Worker(job, process, pipe))

    def start(self) -> None:
        """Wait until every worker burns or failed."""
        deadline_s = time.monotonic() + STARTING_S
        while self._any("starting") and not self.interrupted.is_set():
            self._receive()
            if time.monotonic() > deadline_s:
                self._fail_hung("starting", f"not ready within {STARTING_S:g} s")

    def burn(self, seconds: float | None, tick: Callable[[], object]) -> None:
        """Let them burn for so long, or without an end; until told, or none is left."""
        start_s = time.monotonic()
        while self._any("burning") and not self.interrupted.is_set():
            self._receive()
            for worker in self.workers:
                if worker.active and time.monotonic() - worker.heard_s > self.silence:
                    silent = f"hung: nothing heard for {self.silence:g} s"
                    worker.fail("worker_failed", f"{silent}, after {worker.products} products")
            tick()
            if seconds is not None and time.monotonic() - start_s >= seconds:
                return

    def stop(self) -> None:
        """Let every worker compare what it has and end; who does not is killed.

        After a signal there is no time: what was compared until then is what counts.
        """
        patience_s = INTERRUPTED_S if self.interrupted.is_set() else self.silence
        for worker in self.workers:
            if worker.active:
                worker.stop()
        deadline_s = time.monotonic() + patience_s
        while self._any("burning", "starting") and time.monotonic() < deadline_s:
            self._receive()
        for worker in self.workers:
            if worker.active and self.interrupted.is_set():
                worker.state = "cut"
        self._fail_hung("burning", f"did not stop within {patience_s:g} s")
        for worker in self.workers:
            worker.end()

    def _any(self, *states: str) -> bool:
        return any(worker.state in states for worker in self.workers)

    def _receive(self) -> None:
        wait([worker.pipe for worker in self.workers if worker.active], TICK_S)
        for worker in self.workers:
            if worker.active:
                worker.receive()

    def _fail_hung(self, state: str, what: str) -> None:
        for worker in self.workers:
            if worker.state == state:
                worker.fail("worker_failed", f"hung: {what}")
