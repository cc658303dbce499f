"""Products that are timed: each into a slot of its own, poisoned before and compared after.

The slots form a ring. When all are written their bits are compared with a product that is proven by
itself, and they are poisoned again, on the device and between the times that are taken: a product
that was wrong, not made, or not to its end is seen although it was counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from contract.verdicts import NotPassed

if TYPE_CHECKING:
    from .dtypes import Factors

SLOTS, ON_CPU = 32, 10
SHARE = 4
"""The slots take at most a quarter of the free memory."""


class Products:
    """The products of one pair of factors; calling it makes the next one."""

    def __init__(self, given: Factors, device: str) -> None:
        torch = given.torch
        self.given, self.torch, self.device = given, torch, device
        self.reference = replace(given, strike=None).product()
        self.slots = [given.poisoned() for _ in range(self._count())]
        self.made = self.compared = 0
        self._unseen = 0  # products since the last comparison
        self._bits = self.reference.view(torch.int64)
        self._mask = torch.empty_like(self._bits, dtype=torch.bool)
        self._found: list[tuple[int, Any]] = []

    def _count(self) -> int:
        if self.device == "cpu":
            return ON_CPU
        free = self.torch.cuda.mem_get_info(self.device)[0]
        nbytes = self.reference.numel() * self.reference.element_size()
        return int(max(1, min(SLOTS, free // SHARE // nbytes)))

    def __call__(self) -> None:
        """Make one product, in the oldest slot."""
        self.given.product(self.slots[self.made % len(self.slots)])
        self.made += 1
        self._unseen += 1

    def watched(self) -> None:
        """Make one product, and compare when no slot is left: where time is not taken."""
        self.between()
        self()

    def between(self) -> None:
        """Compare when no slot is left, so that none is written again before it was seen."""
        if self._unseen >= len(self.slots):
            self.compare()

    def compare(self) -> None:
        """Compare and poison the slots; the device does it, and nothing waits for it."""
        for number in range(max(self.made - len(self.slots), self.made - self._unseen), self.made):
            slot = self.slots[number % len(self.slots)]
            self.torch.ne(slot.view(self.torch.int64), self._bits, out=self._mask)
            self._found.append((number, self.torch.count_nonzero(self._mask)))
            slot.fill_(float("nan"))
            self.compared += 1
        self._unseen = 0

    def require_right(self) -> dict[str, int]:
        """Return how many products were made and compared; raise if one of those was wrong."""
        self.compare()
        counts = self.torch.stack([count for _, count in self._found]).tolist()
        wrong = [(at, count) for (at, _), count in zip(self._found, counts, strict=True) if count]
        details = {"made": self.made, "compared": self.compared, "wrong": len(wrong)}
        if wrong:
            at, words = wrong[0]
            shape = "x".join(map(str, self.given.shape))
            reason = (
                f"{self.device} {self.given.kind.name} {shape}: {len(wrong)} of {self.compared}"
                f" products are wrong while they are timed, first number {at} in {words} words"
            )
            raise NotPassed("FAIL", "wrong_result", reason, details=details)
        return details
