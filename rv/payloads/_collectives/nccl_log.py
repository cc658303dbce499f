"""Read what NCCL logs with NCCL_DEBUG=INFO: its transports, and the machine's links. Pure.

Formats of NCCL 2.18 to 2.30, from its sources (`transport/p2p.cc`, `shm.cc`, `net.cc`, `nvls.cc`,
`graph/topo.cc`); the prefix of a line (host, process, time) is whatever it is. The log may be of
any length and hold anything: what is not understood is left out, and what is kept is bounded.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_CHARACTERS = 8 << 20
MOST_CHANNELS = 10_000
MOST_SETTINGS = 100
PATH_CHARACTERS = 60

_CHANNEL = re.compile(
    r"Channel \d+(?:/\d+)? : (\d{1,7})\[\w{1,16}\] -> (\d{1,7})\[\w{1,16}\]"
    r"(?: \[(?:send|receive)\])? via ([A-Z0-9]{3}/\S[^\n]*)"
)
_NET = re.compile(r"NET/(.+?)/\d+(?:\(\d+\))?((?:/[A-Za-z]+)*)")
_VERSION = re.compile(r"NCCL version (\d{1,3}\.\d{1,3}\.\d{1,3})")
_NETWORK = re.compile(r"Using network (\S[^\n]{0,40})")
_SETTING = re.compile(r"(NCCL_[A-Z0-9_]{1,40}) set by environment to (\S{1,60}?)\.?(?:\s|$)")
_NVLS = re.compile(r" coll(?:net)? channels, (\d{1,4}) nvls channels")
_GPU = re.compile(
    r"PCI\[(\d{1,6}\.\d)\] - (?:GPU|DEV)/([\w-]{1,40}) \((?:(\d{1,6})\)|[0-9a-f]{7,16}\))"
)
_LINK = re.compile(r"NVL\[(\d{1,6}\.\d)\] - (NVS|GPU|DEV)/([\w-]{1,40})")
_NIC = re.compile(r"- NET/([\w-]{1,40}) \((?:[\w.]{1,32}/){1,4}(\d{1,6}\.\d{1,6})\)")
_GUESSED = "Could not get speed from"
_BEGIN, _END = "=== System : ", "=" * 30


class Channel(NamedTuple):
    """A connection from one rank to another; `via` is P2P/CUMEM, SHM/direct, NET/IB/GDRDMA, …"""

    source: int
    target: int
    via: str


class Links(NamedTuple):
    """The links of a node as NCCL found them, whether it takes them or not.

    Rates are in GB/s of one direction as NCCL counts: `pcie` of each GPU (48 for PCIe 5), `nvlink`
    of the GPU that has least of it, `nics` of the network cards. `is_switched`: all GPUs are on an
    NVSwitch; `is_mesh`: NVLink joins each to each other, so or directly. `pairs` are the ranks that
    it joins directly. `is_guess`: a card did not tell its rate. `cards` are those beside the GPUs
    of the ranks, which they take; 0 where there is no map.
    """

    pcie: tuple[float, ...] = ()
    nvlink: float = 0.0
    nics: tuple[float, ...] = ()
    is_switched: bool = False
    is_mesh: bool = False
    pairs: frozenset[tuple[int, int]] = frozenset()
    is_guess: bool = False
    cards: int = 0

    def joins(self, one: int, other: int) -> bool:
        """Whether NVLink joins two ranks of the node."""
        return self.is_mesh or (min(one, other), max(one, other)) in self.pairs


class NcclLog(NamedTuple):
    """What one rank's log says; "" and empty where it does not. `settings` are NCCL_ variables."""

    version: str
    network: str
    channels: tuple[Channel, ...]
    has_nvls: bool
    links: Links
    settings: dict[str, str]


def parse_nccl_log(text: str) -> NcclLog:
    """Read the log of one process, as far as its first communicator's topology goes."""
    lines = text[:MOST_CHARACTERS].splitlines()
    channels: dict[Channel, None] = {}
    settings: dict[str, str] = {}
    for line in lines:
        if (found := _CHANNEL.search(line)) and len(channels) < MOST_CHANNELS:
            channels[Channel(int(found[1]), int(found[2]), _path(found[3]))] = None
        elif (found := _SETTING.search(line)) and len(settings) < MOST_SETTINGS:
            settings[found[1]] = found[2]
    nvls = _first(_NVLS, lines)
    return NcclLog(
        version=_first(_VERSION, lines),
        network=_first(_NETWORK, lines).strip(),
        channels=tuple(channels),
        has_nvls=bool(nvls.strip("0")),
        links=_links(_topology(lines), is_guess=any(_GUESSED in line for line in lines)),
        settings=settings,
    )


def _first(pattern: re.Pattern[str], lines: list[str]) -> str:
    found = (pattern.search(line) for line in lines)
    return next((match[1] for match in found if match), "")


def _path(words: str) -> str:
    """Return a channel's way without the number of the card, and without what RCCL adds."""
    way = words.partition(" comm ")[0].strip()
    if net := _NET.match(way):
        way = f"NET/{net[1]}{net[2]}"
    return "".join(c if c.isprintable() else "?" for c in way[:PATH_CHARACTERS])


def _topology(lines: list[str]) -> list[str]:
    """Return the lines of the first map of the node."""
    begin = next((at for at, line in enumerate(lines) if _BEGIN in line), len(lines))
    rest = lines[begin + 1 :]
    end = next((at for at, line in enumerate(rest) if _END in line or _BEGIN in line), len(rest))
    return rest[:end]


@dataclass
class _Gpu:
    """A GPU on the map; `rank` is -1 where the map does not tell it (NCCL 2.30)."""

    pcie: float
    rank: int
    nvlink: float = 0.0
    is_switched: bool = False
    far: set[str] = field(default_factory=set)


def _links(lines: list[str], *, is_guess: bool) -> Links:
    gpus = _gpus(lines)
    nics = {nic[1]: float(nic[2]) for line in lines if (nic := _NIC.search(line))}
    every = list(gpus.values())
    is_switched = bool(every) and all(gpu.is_switched for gpu in every)
    return Links(
        pcie=tuple(gpu.pcie for gpu in every),
        nvlink=min((gpu.nvlink for gpu in every), default=0.0),
        nics=tuple(nics.values()),
        is_switched=is_switched,
        is_mesh=is_switched or _is_mesh(gpus),
        pairs=_pairs(gpus),
        is_guess=is_guess,
        cards=_cards_beside(lines) if gpus and nics else 0,
    )


def _cards_beside(lines: list[str]) -> int:
    """Count the network cards beside GPUs: of each branch of the map no more than it has GPUs.

    The cards of a node may be shared by GPUs that the job has not. A branch is what is below a PCIe
    switch of a processor, or at the processor itself; a branch of GPUs alone has those of its
    processor that are beside none.
    """
    gpus, cards = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for branch, line in _branches(lines):
        gpus[branch] += bool(_GPU.search(line))
        cards[branch] += bool(_NIC.search(line))
    beside = sum(min(count, cards[branch]) for branch, count in gpus.items())
    far_gpus, far_cards = Counter[int](), Counter[int]()
    for branch in gpus | cards:
        far_gpus[branch[0]] += 0 if cards[branch] else gpus[branch]
        far_cards[branch[0]] += 0 if gpus[branch] else cards[branch]
    return max(1, beside + sum((far_gpus & far_cards).values()))


def _branches(lines: list[str]) -> Iterator[tuple[tuple[int, int], str]]:
    """Give each line of a map with its processor and its branch, as numbers of lines."""
    top = min((line.index("+") for line in lines if "+" in line), default=0)
    processor = branch = 0
    for number, line in enumerate(lines):
        if "+" not in line:
            processor = branch = number
        elif line.index("+") == top:
            branch = number if " - PCI/" in line else processor
        yield (processor, branch), line


def _gpus(lines: list[str]) -> dict[str, _Gpu]:
    """Return the GPUs by their names on the map; the links of each stand below it."""
    gpus: dict[str, _Gpu] = {}
    last = None
    for line in lines:
        if gpu := _GPU.search(line):
            last = gpus[gpu[2]] = _Gpu(float(gpu[1]), int(gpu[3]) if gpu[3] else -1)
        elif last and (link := _LINK.search(line)):
            last.nvlink += float(link[1])
            last.is_switched |= link[2] == "NVS"
            last.far.add(link[3])
    return gpus


def _is_mesh(gpus: dict[str, _Gpu]) -> bool:
    """Whether each GPU is joined to all others directly; one alone is no mesh."""
    names = set(gpus)
    return len(names) > 1 and all(names - {name} <= gpu.far for name, gpu in gpus.items())


def _pairs(gpus: dict[str, _Gpu]) -> frozenset[tuple[int, int]]:
    far = ((gpu.rank, gpus[to].rank) for gpu in gpus.values() for to in gpu.far if to in gpus)
    return frozenset((min(pair), max(pair)) for pair in far if min(pair) >= 0)
