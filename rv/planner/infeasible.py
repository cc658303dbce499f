"""The error for a plan that serves nobody: the reason that counts most, and what else to try."""

from collections.abc import Iterable
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.plan import Exclusion, Plan
from rv.models.request import Request

_REASONS_SHOWN: Final = 3


def why_none(plan: Plan, request: Request) -> RvError:
    """Return the error for a plan without strategies; the hint lists some of the other reasons."""
    exclusions = _most_useful_first(plan.excluded)
    if not exclusions:
        nothing = "nodes" if not request.gpus else "GPUs"
        hint = "--gpu 0 --cpus 8 asks for a job without any" if request.gpus else ""
        return RvError(ErrorKind.INFEASIBLE, f"this cluster has no {nothing} to offer", hint=hint)
    first, *others = exclusions
    shown = [f"--gpu {plan.possible_gpus} would be possible"] if plan.possible_gpus else []
    shown += [_sentence(exclusion) for exclusion in others[: _REASONS_SHOWN - len(shown)]]
    return RvError(
        ErrorKind.LIMIT if first.by_limit else ErrorKind.INFEASIBLE,
        f"nothing here can serve {_asked(request)}: {_sentence(first)}",
        hint="; ".join(shown) or "rv status shows what there is",
    )


def _most_useful_first(excluded: Iterable[Exclusion]) -> list[Exclusion]:
    """Order by use to the reader, one of each reason: limits, which can be asked around, first.

    What is said aside comes last: where avoided nodes are the reason, their pool counts them.
    """
    by_reason: dict[str, Exclusion] = {}
    for exclusion in excluded:
        by_reason.setdefault(exclusion.reason, exclusion)
    return sorted(by_reason.values(), key=_rank)


def _rank(exclusion: Exclusion) -> tuple[bool, bool, bool]:
    return exclusion.is_aside, not exclusion.by_limit, "--mig" in exclusion.reason


def _sentence(exclusion: Exclusion) -> str:
    return f"{exclusion.what}: {exclusion.reason}"


def _asked(request: Request) -> str:
    if not request.gpus:
        return "a job without GPUs"
    if request.mig:
        return "a MIG slice"
    kind = f" {' or '.join(request.types)}" if request.types else ""
    return f"{request.gpus}{kind} {'GPU' if request.gpus == 1 else 'GPUs'}"
