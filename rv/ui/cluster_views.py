"""What several clusters have, a line each: for `--cluster all`."""

from collections.abc import Iterable, Sequence
from typing import Any

from rv.errors import RvError
from rv.models.plan import PoolView, Strategy
from rv.ui.plan_views import start_text
from rv.ui.status_views import overview_document, overview_text
from rv.ui.tables import Part, Table


def offers_table(rows: Iterable[tuple[str, Strategy | None, str, RvError | None]]) -> Table:
    """Lay out clusters by name, with the strategy that starts first and its unit, or why not."""
    return Table(head=("CLUSTER", "START", "COST", "WITH"), rows=[_offer_row(*row) for row in rows])


def _offer_row(
    name: str, best: Strategy | None, unit: str, error: RvError | None
) -> tuple[str, str, str, str]:
    if best is None:
        return name, "-", "-", error.message if error else "nothing can serve it"
    cost = "-" if best.cost is None else f"{best.cost:.1f} {unit}".rstrip()
    layout = f"{best.nodes}x{best.gpus_per_node} {best.gpu} in {best.partition}"
    return name, start_text(best), cost, layout


def offer_document(
    name: str, best: Strategy | None, unit: str, error: RvError | None
) -> dict[str, Any]:
    """Describe what one cluster has."""
    start = best.estimate.start_in if best else None
    return {
        "cluster": name,
        "strategy": best.id if best else None,
        "start_in_s": start.total_seconds() if start is not None else None,
        "cost": best.cost if best else None,
        "cost_unit": unit or None,
        "error": _error(error) if error else None,
    }


def status_parts(name: str, answer: Sequence[PoolView] | RvError, width: int) -> list[Part]:
    """Lay out the GPUs of one cluster below its name, within `width` columns; 0 is no terminal."""
    if isinstance(answer, RvError):
        return [f"{name}: {answer.message}"]
    return [f"{name}:", *overview_text(answer, width)]


def status_document(name: str, answer: Sequence[PoolView] | RvError) -> dict[str, Any]:
    """Describe the GPUs of one cluster, or why they are not known."""
    if isinstance(answer, RvError):
        return {"cluster": name, "gpus": None, "error": _error(answer)}
    return {"cluster": name, **overview_document(answer), "error": None}


def _error(error: RvError) -> dict[str, str]:
    return {"kind": error.kind, "message": error.message, "hint": error.hint}
