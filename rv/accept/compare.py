"""Two runs side by side: numbers that moved and verdicts that changed. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from rv.accept.measurements import Measurement
from rv.accept.results import RunResult, Status
from rv.accept.robust import loss


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One number in both runs; `loss` is how much worse the second is, as a fraction."""

    before: Measurement
    after: Measurement
    loss: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """A test whose verdict differs; None where one run does not have it."""

    payload: str
    node: str
    test: str
    device: str
    before: Status | None
    after: Status | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What differs; the worst change first. `only_before` and `only_after` count numbers."""

    changes: tuple[Change, ...]
    turns: tuple[Turn, ...]
    only_before: int
    only_after: int


def compare(
    before: Sequence[Measurement],
    after: Sequence[Measurement],
    results: tuple[Sequence[RunResult], Sequence[RunResult]],
) -> Comparison:
    """Compare what both measured in the same way on the same GPU; `results` are both runs'."""
    first = {_identity(measured): measured for measured in before}
    second = {_identity(measured): measured for measured in after}
    both = [identity for identity in first if identity in second]
    changes = [_change(first[identity], second[identity]) for identity in both]
    return Comparison(
        changes=tuple(sorted(changes, key=lambda change: -change.loss)),
        turns=_turns(*results),
        only_before=len(first) - len(both),
        only_after=len(second) - len(both),
    )


def _identity(measured: Measurement) -> tuple[str, ...]:
    return (*measured.subject, measured.device, *measured.key)


def _change(before: Measurement, after: Measurement) -> Change:
    lost = loss(after.value, before.value, after.direction)
    return Change(before=before, after=after, loss=lost)


def _turns(before: Sequence[RunResult], after: Sequence[RunResult]) -> tuple[Turn, ...]:
    first, second = _verdicts(before), _verdicts(after)
    found = []
    for name in dict.fromkeys([*first, *second]):
        was, now = first.get(name), second.get(name)
        if was is not now:
            payload, node, test, device = name
            found.append(
                Turn(payload=payload, node=node, test=test, device=device, before=was, after=now)
            )
    return tuple(found)


def _verdicts(results: Sequence[RunResult]) -> dict[tuple[str, str, str, str], Status]:
    return {
        (r.test_type, t.host or r.hostname, t.name, t.device): t.status
        for r in results
        for t in r.tests
    }
