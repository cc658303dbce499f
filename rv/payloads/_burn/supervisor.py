"""One worker a device, all at once, under a supervisor that sees each of them working or not."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from .torch_burn import work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from .torch_burn import Job

TICK = 0.25  # seconds
STARTING = 180.0  # seconds: a cold file system reads torch slowly
LAST_WORDS = 2.0  # seconds to end in after a signal, which leaves five for everything


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
    errors: int = 0
    heard: float = field(default_factory=time.monotonic)
    at: float | None = None  # the worker's clock at its last beat
    rates: list[float] = field(default_factory=list)  # TFLOPS between two beats

    def fail(self, code: str, reason: str) -> None:
        """End this worker's part: what it was, and why."""
        self.state, self.code, self.reason = "failed", code, reason
        self.process.kill()

    def end(self) -> None:
        """End its process, at once unless it is done."""
        if self.state != "done":
            self.process.kill()
        self.process.join(1)
        self.process.kill()

    @property
    def active(self) -> bool:
        """Whether it is still expected to work."""
        return self.state in ("starting", "burning")

    def hear(self) -> None:
        """Take in everything that it said; a closed pipe is the end of a worker that died."""
        try:
            while self.pipe.poll():
                self._take(self.pipe.recv())
        except (EOFError, OSError):
            if self.active:
                self.process.join(5)
                ended = f"ended by itself with code {self.process.exitcode}"
                self.fail("worker_failed", f"its burn {ended} after {self.products} products")

    def _take(self, word: dict[str, Any]) -> None:
        self.heard = time.monotonic()
        if word["kind"] == "error":
            self.fail(word["code"], word["reason"])
        elif word["kind"] == "ready":
            self.size, self.slots = word["size"], word["slots"]
            self.digest, self.state = word["digest"], "burning"
        else:
            self._count(word)
            self.state = "done" if word["kind"] == "done" else self.state

    def _count(self, word: dict[str, Any]) -> None:
        made, before = word["products"] - self.products, self.at
        self.products, self.errors, self.at = word["products"], word["errors"], word["at"]
        if made and before is not None and word["at"] > before:
            self.rates.append(2 * self.size**3 * made / (word["at"] - before) / 1e12)


@contextlib.contextmanager
def noted() -> Iterator[threading.Event]:
    """Note TERM and INT, which would else interrupt a worker's message in the middle."""
    told = threading.Event()
    both = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: told.set()) for number in both}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Supervisor:
    """All workers of this node; `told` ends their burn early."""

    def __init__(self, jobs: list[Job], silence: float, told: threading.Event) -> None:
        self.silence, self.told = silence, told
        spawn = multiprocessing.get_context("spawn")
        self.workers = []
        for job in jobs:
            mine, theirs = spawn.Pipe()
            process = spawn.Process(target=work, args=(job, theirs), daemon=True)
            process.start()
            theirs.close()
            self.workers.append(Worker(job, process, mine))

    def start(self) -> None:
        """Wait until every worker burns or failed."""
        deadline = time.monotonic() + STARTING
        while self._any("starting") and not self.told.is_set():
            self._listen()
            if time.monotonic() > deadline:
                self._accuse("starting", STARTING, "not ready")

    def burn(self, seconds: float | None, tick: Callable[[], object]) -> None:
        """Let them burn for so long, or without an end; until told, or none is left."""
        start = time.monotonic()
        while self._any("burning") and not self.told.is_set():
            self._listen()
            for worker in self.workers:
                if worker.active and time.monotonic() - worker.heard > self.silence:
                    worker.fail("worker_failed", self._hung(worker))
            tick()
            if seconds is not None and time.monotonic() - start >= seconds:
                return

    def stop(self) -> None:
        """Let every worker compare what it has and end; who does not is killed.

        After a signal there is no time: what was compared until then is what counts.
        """
        patience = LAST_WORDS if self.told.is_set() else self.silence
        for worker in self.workers:
            if worker.active:
                self._tell(worker)
        deadline = time.monotonic() + patience
        while (self._any("burning") or self._any("starting")) and time.monotonic() < deadline:
            self._listen()
        if self.told.is_set():
            self._cut()
        self._accuse("burning", patience, "did not stop")
        for worker in self.workers:
            worker.end()

    def _cut(self) -> None:
        for worker in self.workers:
            if worker.active:
                worker.state = "cut"

    def _any(self, state: str) -> bool:
        return any(worker.state == state for worker in self.workers)

    def _listen(self) -> None:
        wait([worker.pipe for worker in self.workers if worker.active], TICK)
        for worker in self.workers:
            if worker.active:
                worker.hear()

    def _accuse(self, state: str, seconds: float, what: str) -> None:
        for worker in self.workers:
            if worker.state == state:
                worker.fail("worker_failed", f"hung: {what} within {seconds:g} s")

    def _hung(self, worker: Worker) -> str:
        return f"hung: nothing heard for {self.silence:g} s, after {worker.products} products"

    @staticmethod
    def _tell(worker: Worker) -> None:
        try:
            worker.pipe.send("stop")
        except OSError:
            worker.hear()
