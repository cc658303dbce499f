"""The process that burns one device, and what it tells the supervisor over a pipe."""

from __future__ import annotations

import importlib
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from _processes import tree

from .ring import Job, Ring, TooSmall

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

BATCH = 0.2  # seconds of work given out at once


def work(job: Job, pipe: Connection) -> None:
    """Burn until told to stop; every end is told, except for being killed."""
    tree.die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the supervisor, who says when
        signal.signal(number, signal.SIG_IGN)
    try:
        torch = importlib.import_module("torch")
        if job.device.startswith("cuda"):
            torch.cuda.set_device(job.device)
        _burn(torch, job, pipe)
    except (BrokenPipeError, EOFError):
        return  # nobody is left to tell
    except TooSmall as error:
        pipe.send({"kind": "error", "code": "out_of_memory", "reason": str(error)})
    except Exception as error:
        said = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        code = "cuda_error" if "CUDA" in said or "CUBLAS" in said else "could_not_run"
        pipe.send({"kind": "error", "code": code, "reason": said})


def _burn(torch: Any, job: Job, pipe: Connection) -> None:
    if "digest" in job.faults:
        job = Job(**{**vars(job), "seed": job.seed + 1})
    ring = Ring(torch, job)
    ready = {"size": ring.size, "slots": len(ring.slots), "digest": ring.digest()}
    pipe.send({"kind": "ready", "pid": os.getpid(), **ready})
    batch = _measured(ring)
    _tell(pipe, "beat", (ring.products, 0))  # from here on rates are counted
    stopped = False
    while not stopped:
        until = time.monotonic() + job.pulse
        while True:
            _batch(ring, batch)
            _tell(pipe, "beat", ring.settle(1))
            if not job.pulse or time.monotonic() > until:
                break
        stopped = pipe.poll(job.pulse)  # where there is a pulse, this is its rest
    ring.sweep()
    ring.mark()
    _tell(pipe, "done", ring.settle(0))


def _batch(ring: Ring, batch: int) -> None:
    for _ in range(batch):
        ring.step()
        _strike(ring)
    ring.mark()


def _strike(ring: Ring) -> None:
    """Make the faults that were asked for, each at its step (default: the third product)."""
    for name, where in ring.job.faults.items():
        if ring.products == int(where.get("step", 3)):
            if name == "bitflip":
                ring.flip()
            elif name == "hang":
                time.sleep(1e6)
            elif name == "crash":
                os._exit(9)


def _measured(ring: Ring) -> int:
    """Find how many products fill a batch; the first one is slower and does not count."""
    if ring.job.faults:
        return 1  # so that faults strike at their step, and not later
    ring.step()
    ring.mark()
    ring.settle(0)
    start = time.monotonic()
    ring.step()
    ring.mark()
    ring.settle(0)
    return max(1, min(10_000, round(BATCH / max(1e-6, time.monotonic() - start))))


def _tell(pipe: Connection, kind: str, reached: tuple[int, int] | None) -> None:
    if reached is not None:
        products, errors = reached
        pipe.send({"kind": kind, "at": time.monotonic(), "products": products, "errors": errors})
