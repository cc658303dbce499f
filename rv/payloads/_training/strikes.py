"""Injected faults of the sum over ranks, planted where DDP and FSDP call for it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from contract.catalogue import OF_SUMS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _harness.main import Session
    from _harness.ranks import Group


class Strike:
    """The fault of the sums in one step; `step` is set by the training."""

    def __init__(self, session: Session, group: Group) -> None:
        self.session, self.dist, self.step = session, group.dist, 0
        self.world, self.rank = group.ranks.world, group.ranks.rank
        self.is_planned = any(session.faults.get(name) for name in OF_SUMS)
        self._kept: dict[int, Any] = {}
        self._calls = 0

    def plant_in_ddp(self, model: Any) -> None:
        """Reduce the buckets of a DDP model in this class's way, if there is a fault."""
        if self.is_planned:
            model.register_comm_hook(None, lambda _, bucket: self._reduced(bucket))

    def _reduced(self, bucket: Any) -> Any:
        buffer = bucket.buffer()
        if self.session.faults.get("unsummed", step=self.step):
            work = self.dist.broadcast(buffer, src=0, async_op=True)
        else:
            buffer.div_(self.world)
            work = self.dist.all_reduce(buffer, async_op=True)
        return work.get_future().then(lambda _: self._delivered(bucket.index(), buffer))

    def _delivered(self, key: int, buffer: Any) -> Any:
        """Keep what was reduced; deliver what the step before gave where that is the fault."""
        before, self._kept[key] = self._kept.get(key, buffer).clone(), buffer.clone()
        if self.session.faults.get("stale-gradient", step=self.step):
            buffer.copy_(before)
        if self.session.faults.get("wrong-elements", step=self.step):
            flat = buffer.view(-1)
            flat[flat.abs().topk(min(4, flat.numel())).indices] *= -1
        return buffer

    @contextlib.contextmanager
    def planted_in_fsdp(self) -> Iterator[None]:
        """Reduce and scatter in this class's way for the block, if there is a fault."""
        if not self.is_planned:
            yield
            return
        names = ("reduce_scatter_single", "reduce_scatter_tensor")
        real = {name: getattr(self.dist, name) for name in names if hasattr(self.dist, name)}
        self._calls = 0
        for name, function in real.items():
            setattr(self.dist, name, self._scattering(function))
        try:
            yield
        finally:
            for name, function in real.items():
                setattr(self.dist, name, function)

    def _scattering(self, real: Any) -> Any:
        def scatter(output: Any, input: Any, *more: Any, **named: Any) -> Any:  # noqa: A002 - torch's name
            work = real(output, input, *more, **named)
            self._calls += 1
            if self.session.faults.get("unsummed", step=self.step):
                output.copy_(input.chunk(self.world)[self.rank])
            self._delivered(self._calls, output)
            return work

        return scatter
