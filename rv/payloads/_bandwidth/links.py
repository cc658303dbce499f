"""Links to the host and between GPUs: how fast they copy, and that what arrives is what was sent.

`time_each(work, rounds=…)` gives the seconds of each round on the device. `together` does the same
on several devices at once; `read_pcie` asks nvidia-smi for the link that a working GPU has.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from contract.nvidia import ask_smi

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Spoil = Callable[[Any], None]
    Timed = Callable[..., list[float]]


ROUNDS = 10
SETTLING = 2.0
"""Seconds at most before a link is measured."""

PERIOD = 1_048_583
"""Bytes until random ones come again: a prime, which no displaced page is a multiple of."""

SLOW = 0.75
"""Of the median rate between peers: what is below is slow."""

CHECKED = 1 << 28
"""Bytes of a copy between peers that are compared."""


class Link(NamedTuple):
    """Rates of one direction of a link, GB/s in each round, and bytes that arrived wrong."""

    name: str
    rates: list[float]
    wrong: int


def host_links(torch: Any, device: str, nbytes: int, time_each: Timed, spoil: Spoil) -> list[Link]:
    """Copy to the device and back, from pinned and from pageable memory, and both ways at once.

    On a CPU there is no pinned memory: what runs there shows that the checks work.
    """
    links = _there_and_back(torch, device, nbytes, time_each, spoil, pinned=False)
    if device != "cpu":
        links += _there_and_back(torch, device, nbytes, time_each, spoil, pinned=True)
        rates = _duplex(torch, device, *(_bytes(torch, nbytes, pinned=True) for _ in "ab"))
        links.append(Link("duplex_pinned", rates, 0))
    return links


def _there_and_back(
    torch: Any, device: str, nbytes: int, time_each: Timed, spoil: Spoil, *, pinned: bool
) -> list[Link]:
    there = torch.zeros(nbytes, dtype=torch.uint8, device=device)
    sent = _bytes(torch, nbytes, pinned=pinned)
    back = torch.zeros(nbytes, dtype=torch.uint8, pin_memory=pinned)
    to = _rates(lambda: there.copy_(sent, non_blocking=True), nbytes, time_each)
    of = _rates(lambda: back.copy_(there, non_blocking=True), nbytes, time_each)
    spoil(back)
    wrong = int((sent != back).sum().item())
    kind = "pinned" if pinned else "pageable"
    return [Link(f"h2d_{kind}", to, wrong), Link(f"d2h_{kind}", of, wrong)]


def _bytes(torch: Any, count: int, *, pinned: bool) -> Any:
    """Return random bytes in host memory, repeated: many take seconds to make."""
    generator = torch.Generator().manual_seed(7)
    some = torch.randint(0, 256, (PERIOD,), dtype=torch.uint8, generator=generator)
    made = torch.empty(count, dtype=torch.uint8, pin_memory=pinned)
    return made.copy_(some.repeat(count // PERIOD + 1)[:count])


def _rates(work: Callable[[], object], nbytes: int, time_each: Timed) -> list[float]:
    _settle(work, time_each)
    return [nbytes / taken / 1e9 for taken in time_each(work, rounds=ROUNDS)]


def _settle(work: Callable[[], object], time_each: Timed) -> None:
    """Copy until it becomes no faster: a link that slept takes its time to come up to speed."""
    deadline, before = time.monotonic() + SETTLING, float("inf")
    while time.monotonic() < deadline:
        taken = statistics.median(time_each(work, rounds=3))
        if taken > 0.97 * before:
            return
        before = taken


def _duplex(torch: Any, device: str, sent: Any, back: Any) -> list[float]:
    """Copy both ways at the same time; GB/s of both together."""
    streams = [torch.cuda.Stream(device) for _ in range(2)]
    inside, outside = (torch.zeros(len(sent), dtype=torch.uint8, device=device) for _ in range(2))

    def both() -> float:
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        with torch.cuda.stream(streams[0]):
            inside.copy_(sent, non_blocking=True)
        with torch.cuda.stream(streams[1]):
            back.copy_(outside, non_blocking=True)
        torch.cuda.synchronize(device)
        return 2 * len(sent) / (time.perf_counter() - start) / 1e9

    both()
    return [both() for _ in range(ROUNDS)]


class Peer(NamedTuple):
    """The link from one device to another: direct or through the host, GB/s, and wrong bytes."""

    source: str
    target: str
    direct: bool
    one_way: float
    both_ways: float
    wrong: int


def peers(torch: Any, devices: list[str], nbytes: int, spoil: Spoil) -> list[Peer]:
    """Copy between every two devices, one way and both ways, and check what arrives."""
    pairs = [(a, b) for place, a in enumerate(devices) for b in devices[place + 1 :]]
    links = []
    for one, other in pairs:
        both = _between(torch, one, other, nbytes, both=True)
        for source, target in ((one, other), (other, one)):
            rate = _between(torch, source, target, nbytes, both=False)
            wrong = _arrived_wrong(torch, source, target, nbytes, spoil)
            links.append(Peer(source, target, _direct(torch, source, target), rate, both, wrong))
    return links


def slow(links: list[Peer]) -> list[Peer]:
    """Return the links that are slower than most."""
    middle = statistics.median(link.one_way for link in links)
    return [link for link in links if link.one_way < SLOW * middle]


def is_broken(links: list[Peer]) -> bool:
    """Return whether no topology explains slow links: one way slow alone, or all links of one GPU.

    Otherwise some pairs may be wired with fewer links, or through other sockets. The two ways
    between a pair stand one after the other, as `peers` gives them.
    """
    few = slow(links)
    for there, back in zip(links[::2], links[1::2], strict=True):
        if min(there.one_way, back.one_way) < SLOW * max(there.one_way, back.one_way):
            return True
    names = {link.source for link in links}
    of = [[link for link in links if name in (link.source, link.target)] for name in names]
    return len(names) > 2 and any(all(link in few for link in own) for own in of)


def _direct(torch: Any, source: str, target: str) -> bool:
    return source != "cpu" and bool(torch.cuda.can_device_access_peer(source, target))


def _between(torch: Any, source: str, target: str, nbytes: int, *, both: bool) -> float:
    ends = [(source, target), (target, source)] if both else [(source, target)]
    buffers = [
        tuple(torch.zeros(nbytes, dtype=torch.uint8, device=end) for end in pair) for pair in ends
    ]
    streams = [_streams(torch, pair) for pair in ends]

    def once() -> float:
        _wait(torch, (source, target))
        start = time.perf_counter()
        for (given, taken), own in zip(buffers, streams, strict=True):
            with contextlib.ExitStack() as stack:
                for stream in own:
                    stack.enter_context(torch.cuda.stream(stream))
                taken.copy_(given, non_blocking=True)
        _wait(torch, (source, target))
        return len(ends) * nbytes / (time.perf_counter() - start) / 1e9

    once()
    return statistics.median(once() for _ in range(ROUNDS))


def _streams(torch: Any, pair: tuple[str, str]) -> list[Any]:
    """Return streams at both ends for one direction: on shared ones, copies wait in turn."""
    return [torch.cuda.Stream(device) for device in pair if device != "cpu"]


def _wait(torch: Any, devices: tuple[str, ...]) -> None:
    for device in devices:
        if device != "cpu":
            torch.cuda.synchronize(device)


def _arrived_wrong(torch: Any, source: str, target: str, nbytes: int, spoil: Spoil) -> int:
    nbytes = min(nbytes, CHECKED)
    sent = _bytes(torch, nbytes, pinned=False)
    given = torch.empty(nbytes, dtype=torch.uint8, device=source)
    given.copy_(sent)
    arrived = torch.zeros(nbytes, dtype=torch.uint8, device=target)
    arrived.copy_(given)
    spoil(arrived)
    return int((arrived.cpu() != sent).sum().item())


PCIE_FIELDS = (
    "pcie.link.gen.current",
    "pcie.link.gen.max",
    "pcie.link.width.current",
    "pcie.link.width.max",
)


class Pcie(NamedTuple):
    """Generation and width, now and at most."""

    gen: int
    gen_max: int
    width: int
    width_max: int


def read_pcie(uuid: str, timeout_s: float = 10.0) -> Pcie | None:
    """Ask nvidia-smi about one GPU; None where it is absent, slow, or does not say (MIG)."""
    name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    query = f"--query-gpu={','.join(PCIE_FIELDS)}"
    rows = ask_smi(query, f"--id={name}", timeout_s=timeout_s)
    try:
        return Pcie(*(int(cell) for cell in rows[0]))
    except (IndexError, ValueError, TypeError):
        return None


def pcie_complaint(link: Pcie) -> str:
    """Return how the link is below its maximum, or ""."""
    complaints = []
    if link.width < link.width_max:
        complaints.append(f"x{link.width} of x{link.width_max} lanes")
    if link.gen < link.gen_max:
        complaints.append(f"generation {link.gen} of {link.gen_max}")
    return ", ".join(complaints)


Result = TypeVar("Result")


def together(devices: Sequence[str], work: Callable[[str], Result]) -> list[Result]:
    """Run `work(device)` on all devices at the same time; return their results, in order.

    Raises what the first that failed raised, when all are done.
    """
    if len(devices) == 1:
        return [work(devices[0])]
    gate = threading.Barrier(len(devices))

    def after_all(device: str) -> Result:
        gate.wait()
        return work(device)

    with ThreadPoolExecutor(len(devices)) as pool:
        return list(pool.map(after_all, devices))
