"""The torch burn of one device: one product again and again, each compared bit by bit.

A and B are never changed: feeding results back grows to infinity and then NaN within a few rounds,
after which nothing can be compared and power falls. Results fill a ring of buffers over most of the
memory. A buffer is compared with the reference just before it is written again, so that one
comparison sees both a wrong product and memory that did not keep a right one. It holds A B and B A
in turn: what is not written any more holds the product before, which is then the wrong one.
"""

from __future__ import annotations

import collections
import ctypes
import hashlib
import importlib
import itertools
import math
import os
import signal
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from _harness import cuda_errors, timing
from _matmul.dtypes import KINDS, Factors
from _matmul.exact import require_small
from _processes import processes
from contract.verdicts import NotPassed

from .peer_copies import PeerCopies

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Counts = tuple[int, int, int]  # products, those that were compared, wrong elements

BITS = {2: "int16", 4: "int32", 8: "int64"}
BATCH_S = 0.2  # of work queued at once
PROBE_EVERY_S = 10.0  # for the others on the device: each takes a batch's time and 30 ms
NAMES = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}
"""Of torch's types, as `_matmul` has them."""


@dataclass(frozen=True)
class Job:
    """What one worker is to burn."""

    device: str
    index: int
    dtype: str
    sizes: tuple[int, ...]  # the first that fits
    memory: float  # bytes to fill, or below or equal 1 the share of what is free
    seed: int
    faults: dict[str, dict[str, str]]
    pulse: float = 0.0  # seconds of work and then of rest; 0 works always
    turns: tuple[str, ...] = ()  # the types to burn in turn; () burns one type alone
    turn_s: float = 0.0
    peer: str = ""  # the device to copy to beside the products; "" copies nothing

    def turn(self, number: int) -> Job:
        """Return the job of one turn: its type, and factors that no other turn has."""
        if not self.turns:
            return self
        dtype = self.turns[number % len(self.turns)]
        return replace(self, dtype=dtype, seed=self.seed + number)

    @property
    def label(self) -> str:
        """The device's name for people; there may be several workers on a CPU."""
        return self.device if self.device.startswith("cuda") else f"cpu:{self.index}"


class TooSmall(Exception):  # noqa: N818 - an outcome, told to the user
    """No size of matrix fits into the memory."""


class RingBuffer:
    """Fixed factors, their products both ways round, and a ring of further ones on one device."""

    def __init__(self, torch: Any, job: Job) -> None:
        self.torch, self.job = torch, job
        self.on_gpu = job.device.startswith("cuda")
        self.dtype = getattr(torch, "float32" if job.dtype == "tf32" else job.dtype)
        self.bits = getattr(torch, BITS[self.dtype.itemsize])
        _set_precision(torch, job.dtype)
        self.products = self.compared = 0
        self.slots: list[Any] = []
        self.a: Any = None
        self.b: Any = None
        self.references: list[Any] = []
        self.mask: Any = None
        self.size = self._allocate()
        self.errors = torch.zeros(1, dtype=torch.int64, device=job.device)
        self._marks: collections.deque[tuple[Any, Any, int, int]] = collections.deque()

    def _allocate(self) -> int:
        """Make factors and ring of the first size that fits; return the size."""
        budget = self.job.memory
        if budget <= 1:
            budget *= self.torch.cuda.mem_get_info(self.job.device)[0]
        for size in self.job.sizes:
            one = size * size * self.dtype.itemsize
            slots = int((budget - 4 * one - size * size) // one)  # factors, references and mask
            try:
                if slots >= 2:
                    self._fill(size, slots)
                    return size
            except (RuntimeError, MemoryError):  # out of memory: the next size
                self.a = self.b = self.mask = None
                self.slots, self.references = [], []
                if self.on_gpu:
                    self.torch.cuda.empty_cache()
        raise TooSmall(f"{budget / 2**20:.0f} MiB hold no ring of {self.job.sizes[-1]}²")

    def _fill(self, size: int, slots: int) -> None:
        torch, device, shape = self.torch, self.job.device, (size, size)
        random = torch.Generator(device=device).manual_seed(self.job.seed)
        self.a = torch.randn(shape, device=device, dtype=self.dtype, generator=random)
        self.b = torch.randn(shape, device=device, dtype=self.dtype, generator=random)
        self.references = [self._proven(left, right) for left, right in self._factors()]
        self.mask = torch.empty(shape, dtype=torch.bool, device=device)
        self.slots = [torch.full_like(self.a, float("nan")) for _ in range(slots)]

    def _factors(self) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        return (self.a, self.b), (self.b, self.a)

    def _proven(self, left: Any, right: Any) -> Any:
        """Return the product that others are compared with. Raises NotPassed for a wrong one."""
        kind = KINDS[NAMES.get(self.job.dtype, self.job.dtype)]
        given = Factors(self.torch, kind, left, right)
        product = given.product()
        if "wrong-reference" in self.job.faults:
            product[1, 2] = -product[1, 2] - 1000
        require_small(given, product, self.job.device, self.job.seed)
        return product

    def digest(self) -> str:
        """Hash the reference: equal on all GPUs of one model and software."""
        kept = self.references[0].cpu()
        size = kept.numel() * kept.element_size()
        return hashlib.sha256((ctypes.c_char * size).from_address(kept.data_ptr())).hexdigest()

    def step(self) -> None:
        """Make one product where the oldest lies, which is compared first; then make faults."""
        slot, number = self.slots[self.products % len(self.slots)], self.products
        if number >= len(self.slots):
            self._compare(number - len(self.slots))
        self.products += 1
        steps = {name: int(where.get("step", 3)) for name, where in self.job.faults.items()}
        here = {name for name, step in steps.items() if step == self.products}
        if "not-launched" not in here:
            left, right = self._factors()[self._way(number)]
            rows = len(left) // 2 if "half-written" in here else len(left)
            self.torch.mm(left[:rows], right, out=slot[:rows])
        for name in here:
            _strike(name, slot.view(self.bits))

    def _way(self, number: int) -> int:
        """Return which way round a product is: another one in each slot from turn to turn."""
        return (number + number // len(self.slots)) % 2

    def sweep(self) -> None:
        """Compare every product that was not yet."""
        for number in range(max(0, self.products - len(self.slots)), self.products):
            self._compare(number)

    def _compare(self, number: int) -> None:
        """Count elements whose bits differ: NaN equals NaN so, and -0 is not 0."""
        slot, right = self.slots[number % len(self.slots)], self.references[self._way(number)]
        self.torch.ne(slot.view(self.bits), right.view(self.bits), out=self.mask)
        self.errors += self.torch.count_nonzero(self.mask)
        self.compared += 1

    def mark(self) -> None:
        """Remember how far the work that was queued so far goes."""
        if self.on_gpu:
            host = self.torch.empty(1, dtype=self.torch.int64, pin_memory=True)
            host.copy_(self.errors, non_blocking=True)
            event = self.torch.cuda.Event(blocking=True)  # sleeps: the CPU is others' too
            event.record()
        else:
            host, event = self.errors.clone(), None
        self._marks.append((event, host, self.products, self.compared))

    def settle(self, left: int) -> tuple[int, int, int] | None:
        """Wait until at most `left` marks are not reached; return counts of the last that is.

        The products, those compared, and the wrong elements in them.

        One mark stays open while burning, so that the device never waits for this program.
        """
        reached = None
        while len(self._marks) > left:
            event, host, products, compared = self._marks.popleft()
            if event is not None:
                event.synchronize()
            reached = (products, compared, int(host))
        return reached


def _set_precision(torch: Any, dtype: str) -> None:
    """Sum exactly the same way each time, and use TF32 only where it was asked for."""
    matmul = torch.backends.cuda.matmul
    matmul.allow_bf16_reduced_precision_reduction = False
    matmul.allow_fp16_reduced_precision_reduction = False
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")


def _strike(fault: str, bits: Any) -> None:
    """Make a fault: one changed bit of the newest product, a hang or a crash."""
    if fault == "bitflip":
        bits[1, 2] ^= 1 << 9
    elif fault == "hang":
        time.sleep(1e6)
    elif fault == "crash":
        os._exit(9)


def work(job: Job, pipe: Connection) -> None:
    """Burn until told to stop; every end is sent to the pipe, except for being killed."""
    processes.die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the supervisor, who says when
        signal.signal(number, signal.SIG_IGN)
    try:
        torch = importlib.import_module("torch")
        if job.device.startswith("cuda"):
            torch.cuda.set_device(job.device)
        _burn(torch, job, pipe)
    except (BrokenPipeError, EOFError):
        return  # nobody is left to tell
    except NotPassed as outcome:
        pipe.send({"kind": "error", "code": outcome.code, "reason": outcome.reason})
    except TooSmall as error:
        pipe.send({"kind": "error", "code": "out_of_memory", "reason": str(error)})
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        is_cuda = cuda_errors.is_raised(reason)
        code = cuda_errors.verdict(reason)[1] if is_cuda else "could_not_run"
        pipe.send({"kind": "error", "code": code, "reason": reason})


def _burn(torch: Any, job: Job, pipe: Connection) -> None:
    """Burn turn after turn, each with factors of its own; without --rotate there is one turn."""
    if "digest" in job.faults:
        job = replace(job, seed=job.seed + 1)
    before, stopped, kind = (0, 0, 0), False, "ready"
    copies = PeerCopies(torch, job) if job.peer else None
    for number in itertools.count():
        turn = job.turn(number)
        ring = RingBuffer(torch, turn)
        ready = {"size": ring.size, "slots": len(ring.slots), "dtype": turn.dtype}
        pipe.send({"kind": kind, "pid": os.getpid(), "digest": ring.digest(), **ready})
        stopped = _burn_turn(ring, pipe, before, copies)
        if copies:
            pipe.send(copies.told())
        ring.sweep()
        ring.mark()
        reached = ring.settle(0) or (0, 0, 0)
        _send(pipe, "done" if stopped else "turned", reached, before)
        if stopped:
            return
        before, kind = _sum(before, reached), "turn"
        del ring  # its memory is the next one's
        if job.device.startswith("cuda"):
            torch.cuda.empty_cache()


def _burn_turn(
    ring: RingBuffer, pipe: Connection, before: Counts, copies: PeerCopies | None
) -> bool:
    """Burn one ring until its turn is over, or until told to stop; return whether it was told."""
    torch, job = ring.torch, ring.job
    batch = _batch_size(ring)
    probed_s = _probe(torch, job, pipe)
    over_s = time.monotonic() + job.turn_s if job.turns else math.inf
    _send(pipe, "beat", (ring.products, 0, 0), before)  # from here on rates are counted
    stopped = False
    while not stopped and time.monotonic() < over_s:
        rest_at_s = time.monotonic() + job.pulse
        while True:
            _run(ring, batch)
            if copies:
                copies.make()
                _tell_pace(pipe, copies)
            _send(pipe, "beat", ring.settle(1), before)
            if "slow" in job.faults:
                time.sleep(0.2)
            if not job.pulse or time.monotonic() > rest_at_s:
                break
        if time.monotonic() - probed_s > PROBE_EVERY_S:
            probed_s = _probe(torch, job, pipe)
        stopped = pipe.poll(job.pulse)  # where there is a pulse, this is its rest
    _probe(torch, job, pipe)
    return stopped


def _tell_pace(pipe: Connection, copies: PeerCopies) -> None:
    pipe.send({"kind": "copying", "copies": copies.arrived, "at": time.monotonic()})


def _probe(torch: Any, job: Job, pipe: Connection) -> float:
    """Send what part of the device's time this process gets, behind all that is queued."""
    share = timing.own_share(torch, job.device)
    if share is not None:
        pipe.send({"kind": "share", "share": share})
    return time.monotonic()


def _run(ring: RingBuffer, products: int) -> None:
    for _ in range(products):
        ring.step()
    ring.mark()


def _batch_size(ring: RingBuffer) -> int:
    """Measure how many products fill a batch; the first one is slower and does not count."""
    if ring.job.faults:
        return 1  # so that faults strike at their step, and not later
    start_s = 0.0
    for _ in range(2):
        start_s = time.monotonic()
        _run(ring, 1)
        ring.settle(0)
    return max(1, min(10_000, round(BATCH_S / max(1e-6, time.monotonic() - start_s))))


def _sum(before: Counts, reached: Counts) -> Counts:
    products, compared, errors = (sum(both) for both in zip(before, reached, strict=True))
    return products, compared, errors


def _send(pipe: Connection, kind: str, reached: Counts | None, before: Counts) -> None:
    """Send the counts of all turns; `before` are those of the turns before this one."""
    if reached is not None:
        names = ("products", "compared", "errors")
        counts = dict(zip(names, _sum(before, reached), strict=True))
        pipe.send({"kind": kind, "at": time.monotonic(), **counts})
