"""Say in one sentence why a plan has nothing to submit."""

from collections.abc import Iterable
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.plan import Exclusion, Plan
from rv.models.request import Request

_REASONS_SHOWN: Final = 3


def require_feasible(plan: Plan, request: Request) -> None:
    """Raise where the plan has no job to submit.

    `RvError(LIMIT)` where a limit of the site is in the way, `RvError(INFEASIBLE)` where the
    machines are not there. The hint lists some of the other reasons.
    """
    if plan.submissions:
        return
    if plan.strategies:
        reason = plan.job_notes[-1] if plan.job_notes else "no job may be submitted"
        raise RvError(
            ErrorKind.LIMIT,
            f"nothing can be submitted now: {reason}",
            hint="wait until some of your jobs have ended, or stop them",
        )
    require_strategies(plan, request)


def require_strategies(plan: Plan, request: Request) -> None:
    """Raise the same where the plan has no strategy at all, whether or not it may be sent now."""
    if plan.strategies:
        return
    reasons = _best_first(plan.excluded)
    if not reasons:
        nothing = "nodes" if not request.gpus else "GPUs"
        hint = "--gpu 0 --cpus 8 asks for a job without any" if request.gpus else ""
        raise RvError(ErrorKind.INFEASIBLE, f"this cluster has no {nothing} to offer", hint=hint)
    first, *others = reasons
    raise RvError(
        ErrorKind.LIMIT if first.by_limit else ErrorKind.INFEASIBLE,
        f"nothing here can serve {_wish(request)}: {_said(first)}",
        hint="; ".join(map(_said, others[:_REASONS_SHOWN])) or "--dry-run shows what there is",
    )


def _best_first(excluded: Iterable[Exclusion]) -> list[Exclusion]:
    """Order reasons by use to the reader: limits, which can be asked around, come first."""
    seen: dict[str, Exclusion] = {}
    for found in excluded:
        seen.setdefault(found.reason, found)
    return sorted(seen.values(), key=lambda found: (not found.by_limit, "--mig" in found.reason))


def _said(found: Exclusion) -> str:
    return f"{found.what}: {found.reason}"


def _wish(request: Request) -> str:
    if not request.gpus:
        return "a job without GPUs"
    if request.mig:
        return "a MIG slice"
    kind = f" {' or '.join(request.types)}" if request.types else ""
    return f"{request.gpus}{kind} {'GPU' if request.gpus == 1 else 'GPUs'}"
