"""Several clients at the same time, and answers that come too late."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from contract.stats import percentile
from contract.verdicts import NotPassed

from . import protocol

if TYPE_CHECKING:
    from .client import Client

CLIENTS, ROUNDS = 4, 8
SHAPE = (256, 257)
EXACT = ("neg", "abs", "relu")
"""Operations whose result is the same to the last bit on every device."""

SMALL = 1 << 20
"""Bytes of a request that is answered soon."""
LATE_MS, LATE = 500.0, 0.2
"""A small request that took so long was answered late; of a share that is no accident."""
SHARE_OF = 10
"""The fewest requests that a share is told of."""


def at_once(torch: Any, client: Client) -> dict[str, Any]:
    """Ask from several clients at once, each with tensors of its own: nobody gets another's."""
    gate = threading.Barrier(CLIENTS, timeout=client.timeout_s)

    def asks(number: int) -> None:
        own = client.another()
        generator = torch.Generator().manual_seed(number)
        try:
            for turn in range(ROUNDS):
                tensor, name = torch.randn(SHAPE, generator=generator), EXACT[turn % len(EXACT)]
                gate.wait()
                result, *_ = own.execute(torch, [name], tensor)
                if not torch.equal(result, protocol.apply(torch, [name], tensor)):
                    reason = f"one of {CLIENTS} clients at once got an answer that is not its own"
                    raise NotPassed("FAIL", "wrong_answer", reason)
        except BaseException:
            gate.abort()  # the others wait for this one no longer
            raise
        finally:
            client.times += own.times
            own.close()

    with ThreadPoolExecutor(CLIENTS) as pool:
        futures = [pool.submit(asks, number) for number in range(CLIENTS)]
    errors = [error for future in futures if (error := future.exception())]
    for error in sorted(errors, key=lambda e: isinstance(e, threading.BrokenBarrierError)):
        raise error
    return {"clients": CLIENTS, "requests": CLIENTS * ROUNDS}


def in_time(client: Client) -> dict[str, Any]:
    """Look at all small requests until now: where many took long, the server answers late."""
    small = [ms for nbytes, ms in client.times if nbytes <= SMALL]
    late = [ms for ms in small if ms >= LATE_MS]
    details = {"requests": len(small), "late": len(late), "p95_ms": percentile(small, 95)}
    if len(late) >= LATE * max(len(small), SHARE_OF):
        reason = f"{len(late)} of {len(small)} small requests took over {LATE_MS:.0f} ms"
        raise NotPassed("FAIL", "late_answer", reason, details=details)
    return details
