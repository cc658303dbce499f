"""Begin together with the other ranks, and tell each other what was reached; alone, neither."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _harness.main import Session
    from _harness.ranks import Group


@dataclass(frozen=True)
class Meeting:
    """All ranks of a launch; `group` is None for one alone."""

    group: Group | None
    hosts: tuple[str, ...] = ("",)

    def begin(self) -> None:
        """Wait until all ranks are here."""
        if self.group:
            self.group.dist.barrier()

    def gather(self, rate: float) -> list[float]:
        """Return the rates of all ranks; each has to ask, whatever became of its own test."""
        if not self.group:
            return [rate]
        torch, dist = self.group.torch, self.group.dist
        own = torch.tensor([rate], dtype=torch.float64)
        every = [torch.empty_like(own) for _ in self.hosts]
        dist.all_gather(every, own)
        return [float(one.item()) for one in every]


@contextlib.contextmanager
def meeting(session: Session) -> Iterator[Meeting]:
    """Join the other ranks for the block, where there are any."""
    if session.ranks.alone:
        yield Meeting(None)
        return
    with session.group("cpu", "gloo") as group:
        yield Meeting(group, group.hosts)
