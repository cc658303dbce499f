"""Links to the host and between GPUs: how fast they copy, and that what arrives is what was sent.

`together` does the same on several devices at once; `read_pcie` asks nvidia-smi for the link that a
working GPU has.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from _harness import timing
from contract.nvidia import ask_smi
from contract.rates import mesh_rate

from .copies import Tape, ToDevice, ToHost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from _harness.topology import Topology
    from contract.topology import Connection

    from .copies import Strike

    Strikes = Callable[[str], Strike]


ROUNDS = 10
SETTLING = 2.0
"""Seconds at most before a link is measured."""
STEADY = 0.2
"""A link is awake once it became no faster for so many seconds: asleep it is steady too."""

LONG_COPY = 0.005
"""Seconds of a copy beside which the wait for its end, some 0.2 ms, is little."""

PCIE = 128.0
"""GB/s of one direction of PCIe 6 with 16 lanes, before what its packets take."""

SLOW = 0.75
"""Of the median rate between peers: what is below is slow."""
HALF_OF_LANES = 0.4
"""Of the others' rate: a GPU whose PCIe links are all below has less than half of their lanes, and
half is what some boards wire to a slot."""


class Link(NamedTuple):
    """One direction of a link: GB/s in each round, wrong words, and the share that was compared.

    `is_fed` is whether the device never waited for this process.
    """

    name: str
    rates: list[float]
    wrong: int
    share: float
    is_fed: bool = True


def host_links(torch: Any, device: str, nbytes: int, strike: Strikes) -> list[Link]:
    """Copy to the device and back, from pinned and from pageable memory, and both ways at once.

    On a CPU there is no pinned memory: what runs there shows that the checks work.
    """
    links = _there_and_back(torch, device, nbytes, strike, pinned=False)
    if device != "cpu":
        links += _there_and_back(torch, device, nbytes, strike, pinned=True)
        links.append(_duplex(torch, device, nbytes, strike))
    return links


def _there_and_back(
    torch: Any, device: str, nbytes: int, strike: Strikes, *, pinned: bool
) -> list[Link]:
    kind = "pinned" if pinned else "pageable"
    there = ToDevice(Tape(torch, "cpu", nbytes, pinned=pinned), device, strike("h2d"))
    links = [_timed(torch, device, f"h2d_{kind}", there, nbytes)]
    del there
    back = ToHost(Tape(torch, device, nbytes), ROUNDS, strike("d2h"), pinned=pinned)
    return [*links, _timed(torch, device, f"d2h_{kind}", back, nbytes)]


def _timed(torch: Any, device: str, name: str, copies: ToDevice | ToHost, nbytes: int) -> Link:

    def once() -> float:
        each = timing.time_each(torch, device, copies.work, rounds=3, between=copies.between)
        return nbytes / statistics.median(each) / 1e9

    _settle(once)
    timed = _rounds(torch, device, copies, is_queued=name.endswith("pinned"))
    rates = [nbytes / seconds / 1e9 for seconds in timed.each]
    return Link(name, rates, copies.wrong(), copies.share, timed.is_fed)


def _rounds(torch: Any, device: str, copies: Any, *, is_queued: bool) -> timing.Timed:
    """Time the rounds that count; a copy of pageable memory waits for the host, which makes it."""
    work, between = copies.work, copies.between
    if is_queued:
        return timing.time_fed(
            torch, device, work, rounds=ROUNDS, between=between, begin=copies.begin
        )
    copies.begin()
    return timing.Timed(timing.time_each(torch, device, work, rounds=ROUNDS, between=between))


def _settle(once: Callable[[], float]) -> None:
    """Copy until it becomes no faster: a link that slept takes its time to come up to speed.

    `once` copies and returns GB/s. Two H200 that slept copied at 0.7 of their rate for 0.1 s.
    """
    began = faster = time.monotonic()
    best = 0.0
    while time.monotonic() < min(began + SETTLING, faster + STEADY):
        rate = once()
        if rate > 1.03 * best:
            best, faster = rate, time.monotonic()


def _duplex(torch: Any, device: str, nbytes: int, strike: Strikes) -> Link:
    """Copy both ways at the same time; GB/s of both together."""
    streams = [torch.cuda.Stream(device) for _ in range(2)]
    there = ToDevice(Tape(torch, "cpu", nbytes, pinned=True), device, strike("h2d"))
    back = ToHost(Tape(torch, device, nbytes), ROUNDS, strike("d2h"), pinned=True)
    every: tuple[ToDevice | ToHost, ...] = (there, back)

    def both() -> float:
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        for stream, copies in zip(streams, every, strict=True):
            with torch.cuda.stream(stream):
                copies.work()
        torch.cuda.synchronize(device)
        taken = time.perf_counter() - start
        there.between()
        return 2 * nbytes / taken / 1e9

    _settle(both)
    back.begin()
    rates = [both() for _ in range(ROUNDS)]
    share = (there.share + back.share) / 2
    return Link("duplex_pinned", rates, there.wrong() + back.wrong(), share)


class Peer(NamedTuple):
    """The link from one device to another: direct or through the host, GB/s, and wrong words."""

    source: str
    target: str
    direct: bool
    one_way: float
    both_ways: float
    wrong: int


def peers(
    torch: Any, devices: list[str], nbytes: int, strike: Strike, least: int = 0
) -> list[Peer]:
    """Copy between every two devices, one way and both ways, and check all that arrives.

    Each copy has `nbytes`; where so many take long, `least`, unless that is 0.
    """
    pairs = [(a, b) for place, a in enumerate(devices) for b in devices[place + 1 :]]
    links, most = [], nbytes
    for one, other in pairs:
        nbytes = least if least and _takes_long(torch, (one, other), least) else most
        both, wrong_both = _between(torch, [(one, other), (other, one)], nbytes, strike)
        for source, target in ((one, other), (other, one)):
            rate, wrong = _between(torch, [(source, target)], nbytes, strike)
            direct = _direct(torch, source, target)
            links.append(Peer(source, target, direct, rate, both, wrong + wrong_both))
    return links


class Alike(NamedTuple):
    """Links that are measures for each other; `is_certain` where they should be equally fast.

    All links of a sound GPU may have the part `least` of the others' rate.
    """

    links: list[Peer]
    is_certain: bool
    least: float = SLOW

    @property
    def is_broken(self) -> bool:
        """Whether a slow one is certain to be broken, and not wired so."""
        return self.is_certain and is_broken(self.links, self.least)


def alike(links: list[Peer], models: dict[str, str], found: Topology) -> list[Alike]:
    """Group links by the models at their ends and by what joins these: others are no measure.

    GPUs on NVLink, on PCIe switches or on one NUMA node are equally far apart; those on several are
    not, such as three on a socket and one on the other. Where nothing tells, links that are faster
    than PCIe are NVLink. Where NVLink joins all GPUs of a model's nodes, all pairs are to be alike:
    another connection is a link that is down.
    """
    groups: dict[tuple[frozenset[str], Connection | None], list[Peer]] = {}
    for link in links:
        pair = (link.source, link.target)
        ends = frozenset(models.get(end, "") for end in pair)
        connection = None if _is_mesh(ends) else _worse(found.get(pair), found.get(pair[::-1]))
        groups.setdefault((ends, connection), []).append(link)
    return [
        _of_connection(group, connection)
        if connection
        else Alike(group, _is_mesh(ends) or _middle(group) > PCIE)
        for (ends, connection), group in groups.items()
    ]


def _of_connection(links: list[Peer], connection: Connection) -> Alike:
    return Alike(links, connection.is_alike, SLOW if connection.nvlinks else HALF_OF_LANES)


def _is_mesh(models: frozenset[str]) -> bool:
    return len(models) == 1 and all(mesh_rate(model) is not None for model in models)


def _worse(there: Connection | None, back: Connection | None) -> Connection | None:
    """Return what joins two GPUs, of both ways, which are judged together."""
    known = [connection for connection in (there, back) if connection]
    return min(known, key=lambda connection: connection.nearness, default=None)


def slowness(links: list[Peer]) -> str:
    """Say which links are slower than most, and how fast those are."""
    named = ", ".join(f"{a.source} to {a.target} {a.one_way:.1f}" for a in slow(links))
    return f"{named} GB/s, where the median is {_middle(links):.1f}"


def slow(links: list[Peer]) -> list[Peer]:
    """Return the links that are slower than most."""
    middle = _middle(links)
    return [link for link in links if link.one_way < SLOW * middle]


def _middle(links: list[Peer]) -> float:
    return statistics.median(link.one_way for link in links)


def is_broken(links: list[Peer], least: float = SLOW) -> bool:
    """Return whether, of links that are alike, one way is slow alone, or all links of one GPU.

    Otherwise some pairs may be wired with fewer links. The two ways
    between a pair stand one after the other, as `peers` gives them. For `least` see `Alike`.
    """
    for there, back in zip(links[::2], links[1::2], strict=True):
        if min(there.one_way, back.one_way) < SLOW * max(there.one_way, back.one_way):
            return True
    names = {link.source for link in links}
    return len(names) > 2 and any(_is_alone(name, links, least) for name in names)


def _is_alone(name: str, links: list[Peer], least: float) -> bool:
    """Whether even the fastest link of a GPU has less than `least` of the others' median rate."""
    own = [link for link in links if name in (link.source, link.target)]
    others = [link for link in links if link not in own]
    fastest = max(link.one_way for link in own)
    return bool(others) and fastest < least * _middle(others)


def _direct(torch: Any, source: str, target: str) -> bool:
    return source != "cpu" and bool(torch.cuda.can_device_access_peer(source, target))


def _takes_long(torch: Any, pair: tuple[str, str], nbytes: int) -> bool:
    """Whether a copy takes so long that what it costs to wait for it is nothing."""
    source = torch.zeros(nbytes, dtype=torch.uint8, device=pair[0])
    target = torch.empty_like(source, device=pair[1])
    target.copy_(source)  # the first makes the link ready
    _wait(torch, pair)
    start = time.perf_counter()
    target.copy_(source)
    _wait(torch, pair)
    return time.perf_counter() - start > LONG_COPY


def _between(
    torch: Any, ways: list[tuple[str, str]], nbytes: int, strike: Strike
) -> tuple[float, int]:
    """Copy these ways at the same time; return GB/s of all together, and wrong words."""
    every = [ToDevice(Tape(torch, a, nbytes), b, strike) for a, b in ways]
    streams = [_streams(torch, way) for way in ways]

    def once() -> float:
        _wait(torch, ways[0])
        start = time.perf_counter()
        for copies, own in zip(every, streams, strict=True):
            with contextlib.ExitStack() as stack:
                for stream in own:
                    stack.enter_context(torch.cuda.stream(stream))
                copies.work()
        _wait(torch, ways[0])
        taken = time.perf_counter() - start
        for copies in every:
            copies.between()
        return len(ways) * nbytes / taken / 1e9

    _settle(once)
    rate = statistics.median(once() for _ in range(ROUNDS))
    return rate, sum(copies.wrong() for copies in every)


def _streams(torch: Any, pair: tuple[str, str]) -> list[Any]:
    """Return streams at both ends for one direction: on shared ones, copies wait in turn."""
    return [torch.cuda.Stream(device) for device in pair if device != "cpu"]


def _wait(torch: Any, devices: tuple[str, ...]) -> None:
    for device in devices:
        if device != "cpu":
            torch.cuda.synchronize(device)


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


def best_pcie(uuid: str, looks: int = 3) -> Pcie | None:
    """Return the best link of several looks, or the first at its maximum: one that slept wakes."""
    found: list[Pcie] = []
    for _ in range(looks):
        link = read_pcie(uuid)
        if link is None:
            break
        found.append(link)
        if not pcie_complaint(link):
            break
    return max(found, key=lambda link: link.width * 2**link.gen, default=None)


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
