"""Copies that are timed: other random bytes in each round, and what arrived is compared.

On a device everything is compared, between the times that are taken. In host memory that would let
the link sleep: there the rounds write windows that overlap, so that each leaves a stripe of its
own, and the last leaves all; what share of the bytes that is stands in the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .patterns import Repeated, count, fill

if TYPE_CHECKING:
    from collections.abc import Callable

    Strike = Callable[[int, Callable[[], object], Any], object]

WORD = 8
PERIOD = 1_048_583
"""Words until random ones come again: a prime, which no displaced page is a multiple of."""
STEP = 512
"""Words by which a round's content is moved on: a page."""
TURNS = 16
"""Rounds until the same content comes again."""
STRIPES = 8
"""A window of host memory begins this part of its length after the one before."""
POISON = -1


class Tape:
    """Random words on a device, more than are copied at a time, and the check of copies of them."""

    def __init__(self, torch: Any, device: str, nbytes: int, *, pinned: bool = False) -> None:
        self.torch, self.words = torch, nbytes // WORD
        generator = torch.Generator().manual_seed(7)
        least, most = -(1 << 63), (1 << 63) - 1
        self._table = torch.randint(least, most, (PERIOD,), generator=generator)
        self._tables: dict[Any, Any] = {}
        size = self.words + TURNS * STEP
        self._content = torch.empty(size, dtype=torch.int64, device=device, pin_memory=pinned)
        fill(self._content, Repeated(self._on(device)))

    def _on(self, device: Any) -> Any:
        if device not in self._tables:
            self._tables[device] = self._table.to(device)
        return self._tables[device]

    def part(self, turn: int) -> Any:
        """Return the words that are copied in a round."""
        start = turn % TURNS * STEP
        return self._content[start : start + self.words]

    def wrong(self, arrived: Any, turn: int) -> Any:
        """Count the wrong words at the beginning of a round's copy; nothing waits for it."""
        table = self._on(arrived.device).roll(-(turn % TURNS) * STEP)
        return count(self.torch, arrived, Repeated(table))


class ToDevice:
    """Copies into the memory of a device: between two of them all is compared and poisoned."""

    share = 1.0

    def __init__(self, tape: Tape, device: str, strike: Strike) -> None:
        self.tape, self.strike, self.turn = tape, strike, 0
        self.target = tape.torch.full((tape.words,), POISON, device=device)
        self._counts: list[Any] = []

    def work(self) -> None:
        """Copy once."""
        part = self.tape.part(self.turn)
        self.strike(self.turn, lambda: self.target.copy_(part, non_blocking=True), self.target)
        self.turn += 1

    def between(self) -> None:
        """Compare what came in the round before, if there was one."""
        if self.turn > len(self._counts):
            self._counts.append(self.tape.wrong(self.target, self.turn - 1))
            self.target.fill_(POISON)

    def begin(self) -> None:
        """Begin with the rounds that count: here those before were compared like them."""

    def wrong(self) -> int:
        """Return the wrong words of all rounds."""
        self.between()
        return int(self.tape.torch.stack(self._counts).sum().item())


class ToHost:
    """Copies into host memory, in windows; compared when all are done."""

    def __init__(self, tape: Tape, rounds: int, strike: Strike, *, pinned: bool) -> None:
        self.tape, self.strike, self.turn, self.rounds = tape, strike, 0, rounds
        self.stripe = tape.words // STRIPES
        size = tape.words + (rounds - 1) * self.stripe
        self.target = tape.torch.empty(size, dtype=tape.torch.int64, pin_memory=pinned)
        self.share = size / (rounds * tape.words)
        self.begin()

    def begin(self) -> None:
        """Begin with the rounds that count; memory that was never touched would slow them down."""
        self.turn = 0
        self.target.fill_(POISON)

    def work(self) -> None:
        """Copy once."""
        start = self.turn % self.rounds * self.stripe
        window, part = self.target[start : start + self.tape.words], self.tape.part(self.turn)
        self.strike(self.turn, lambda: window.copy_(part, non_blocking=True), window)
        self.turn += 1

    def between(self) -> None:
        """Do nothing: a link that waits goes to sleep."""

    def wrong(self) -> int:
        """Return the wrong words in the stripe of each round, and in all of the last."""
        wrong = 0
        for turn in range(self.rounds):
            length = self.stripe if turn < self.rounds - 1 else self.tape.words
            start = turn * self.stripe
            wrong += int(self.tape.wrong(self.target[start : start + length], turn).item())
        return wrong
