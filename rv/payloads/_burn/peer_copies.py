"""Copies to another device beside the products: links and memory under load at the same time.

Each copy lands on poison, and is compared there bit by bit with what was made there from the same
numbers. On a GPU it runs on a stream of its own, so that it does not wait for the products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .torch_burn import Job

ON_GPU, ON_CPU = 2**26, 2**14  # elements of 4 bytes: 256 MiB, which is no cache's size
COPIES = 8  # after each batch of products
POISON = -1
MOST_SILENT = 1 / 3  # of the batches of products, in a row, without a copy that arrived
FEW, LONG_S = 4, 10.0  # so many batches prove nothing; so many seconds are too many of any burn


@dataclass
class Pace:
    """Whether copies arrived all the time: how many batches of products saw none, in a row."""

    copies: int = 0
    batches: int = 0
    silent: int = 0
    silent_s: float = 0.0
    most_silent: int = 0
    most_silent_s: float = 0.0
    _at: float | None = None

    def note(self, copies: int, at: float) -> None:
        """Take in how many copies had arrived after a batch, and when by the worker's clock."""
        is_new, before_s = copies > self.copies, at if self._at is None else self._at
        self.silent = 0 if is_new else self.silent + 1
        self.silent_s = 0.0 if is_new else self.silent_s + at - before_s
        self.most_silent = max(self.most_silent, self.silent)
        self.most_silent_s = max(self.most_silent_s, self.silent_s)
        self.copies, self.batches, self._at = copies, self.batches + 1, at

    def pause(self) -> None:
        """Leave out the time until the next batch, in which nothing is burned."""
        self._at = None

    def halt(self) -> str:
        """Say how long no copy arrived, where that is too long; else ""."""
        if self.most_silent_s <= LONG_S and self.most_silent <= max(
            FEW, MOST_SILENT * self.batches
        ):
            return ""
        where = f"{self.most_silent} of {self.batches} batches of products"
        return f"no copy arrived during {where} in a row ({self.most_silent_s:.1f} s)"


class PeerCopies:
    """Copies from one device to its peer, and the count of those that arrived otherwise."""

    def __init__(self, torch: Any, job: Job) -> None:
        self.torch, self.faults, self.made = torch, job.faults, 0
        is_gpu = job.device.startswith("cuda")
        random = torch.Generator().manual_seed(job.seed)
        size = (ON_GPU if is_gpu else ON_CPU,)
        numbers = torch.randint(0, 2**31 - 1, size, dtype=torch.int32, generator=random)
        self.source, self.expected = numbers.to(job.device), numbers.to(job.peer)
        self.landing = torch.empty_like(self.expected)
        self.wrong = torch.zeros(1, dtype=torch.int64, device=job.peer)
        self._peer = job.peer
        self._stream = torch.cuda.Stream(job.device) if is_gpu else None
        self._over: Any = None
        stops = job.faults.get("p2p-stops")
        self._rounds_left = int(stops.get("round", 1)) if stops is not None else -1

    @property
    def arrived(self) -> int:
        """The copies that were made and compared; those that are under way are not."""
        is_under_way = self._over is not None and not self._over.query()
        return self.made - COPIES * is_under_way

    def make(self) -> None:
        """Queue some copies and their comparisons, where those before are over."""
        if not self._rounds_left:
            return
        self._rounds_left -= 1
        if self._stream is None:
            self._copy_some()
        elif self._over is None or self._over.query():
            with self.torch.cuda.stream(self._stream):
                self._copy_some()
            with self.torch.cuda.device(self._peer):
                self._over = self.torch.cuda.Event()
                self._over.record()

    def _copy_some(self) -> None:
        for _ in range(COPIES):
            self._copy()

    def _copy(self) -> None:
        self.made += 1
        self.landing.fill_(POISON)
        if not ("p2p-lost" in self.faults and self.made == COPIES):
            self.landing.copy_(self.source, non_blocking=True)
        if "p2p-bitflip" in self.faults and self.made == COPIES:
            self.landing[3] ^= 1 << 9
        self.wrong += self.torch.count_nonzero(self.landing != self.expected)

    def told(self) -> dict[str, Any]:
        """Wait for what was queued, and return the counts as a message."""
        made_bytes = self.made * self.source.numel() * self.source.element_size()
        return {"kind": "peer", "copies": self.made, "bytes": made_bytes, "wrong": int(self.wrong)}
