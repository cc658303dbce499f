"""Ask several clusters at the same time, and choose the one where a request starts first."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final, TypeVar

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.performance import Source
from rv.models.plan import Strategy
from rv.models.request import Objective
from rv.planner.finish import order_by
from rv.workflow.launch import Launch

Answer = TypeVar("Answer")

_HINT: Final = "rv doctor --cluster {} checks each link"


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """What one cluster has for a request: a launch that is prepared, or why there is none."""

    name: str
    launch: Launch | None = None
    error: RvError | None = None

    @property
    def best(self) -> Strategy | None:
        """The strategy that would start first; one whose start is unknown comes last.

        Where finishes or costs are ranked it is the plan's first.
        """
        return min(self.launch.plan.strategies, key=self.key, default=None) if self.launch else None

    def key(self, strategy: Strategy) -> tuple[object, ...]:
        """Return by what its strategies compare with each other's and with those of others."""
        objective = self.launch.plan.objective if self.launch else Objective.START
        return (*order_by(objective)(strategy), _start_s(strategy))


def ask_each(
    names: Sequence[str], ask: Callable[[str], Answer], limit_s: float
) -> dict[str, Answer | RvError]:
    """Ask every cluster at once, and wait at most `limit_s` seconds for all of them together.

    One that failed, or did not answer in time, has its error as its answer.
    """
    answers: dict[str, Answer | RvError] = {}

    def run(name: str) -> None:
        try:
            answers[name] = ask(name)
        except RvError as error:
            answers[name] = error
        except Exception as error:  # noqa: BLE001 - the other clusters' answers still count
            answers[name] = RvError(ErrorKind.INTERNAL, f"{type(error).__name__}: {error}")

    # Daemons: a cluster that is silent for ever keeps nobody waiting.
    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    end_s = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, end_s - time.monotonic()))
    return {name: answers.get(name) or _late(name, limit_s) for name in names}


def offers(answers: Mapping[str, Launch | RvError]) -> list[Offer]:
    """Return what each cluster has, in the order in which they were asked."""
    return [
        Offer(name=name, error=answer)
        if isinstance(answer, RvError)
        else Offer(name=name, launch=answer)
        for name, answer in answers.items()
    ]


def first_to_start(made: Sequence[Offer]) -> Offer:
    """Return the offer that starts first, or is done first, or cheapest, where that is ranked.

    Of equals that for which nobody else waits, then the cheaper, where costs can be compared.

    Raises `RvError` where there is none: of the kind that all of them are, else UNREACHABLE.
    """
    able = [offer for offer in made if offer.launch and offer.best]
    if not able:
        raise _none(made)
    units = {offer.launch.plan.cost_unit for offer in able if offer.launch}

    def rank(offer: Offer) -> tuple[object, ...]:
        best = offer.best
        if best is None:
            return inf, True, inf
        cost = best.cost if len(units) == 1 and best.cost is not None else inf
        return (*offer.key(best), best.estimate.source is not Source.IDLE, cost)

    return min(able, key=rank)


def _start_s(strategy: Strategy) -> float:
    start = strategy.estimate.start_in
    return inf if start is None else start.total_seconds()


def _late(name: str, limit_s: float) -> RvError:
    return RvError(
        ErrorKind.UNREACHABLE, f"no answer within {limit_s:.0f} s", hint=_HINT.format(name)
    )


def _none(made: Sequence[Offer]) -> RvError:
    errors = [(offer.name, offer.error) for offer in made if offer.error]
    kinds = {error.kind for _, error in errors}
    kind = kinds.pop() if len(kinds) == 1 else ErrorKind.UNREACHABLE
    said = "; ".join(f"{name}: {error.message}" for name, error in errors)
    hint = next((error.hint for _, error in errors if error.hint), "") if len(errors) == 1 else ""
    return RvError(
        kind,
        f"none of {len(made)} clusters can serve it: {said}",
        hint=hint or "rv status --cluster all shows what each has",
    )
