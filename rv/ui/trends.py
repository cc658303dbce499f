"""Histories, comparisons and baselines as text and JSON."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rv.accept.baselines import Baseline
from rv.accept.measurements import Measurement
from rv.accept.runs import RunRecord
from rv.accept.trends import Comparison, Trend, Turn
from rv.models.plain import plain
from rv.ui.tables import Part, Table

_CAUSES: Final = {
    "gpu": "regression",
    "gpu-rates": "regression of all its rates",
    "software": "since its software changed",
    "fleet": "all of the model",
}


def trends_text(trends: Sequence[Trend], gpu: str = "") -> list[Part]:
    """Show a line for each number of each GPU, flagged where it fell; changes of software below.

    `gpu` is the only one that was asked for.
    """
    if not trends:
        of = f" of a GPU {gpu}" if gpu else ""
        return [f"no history{of}: rv accept run and rv accept sweep write it"]
    head = ("GPU", "NODE", "MEASURED", "RUNS", "MEDIAN", "LATEST", "CHANGE", "FLAG")
    table = Table(head=head, rows=[_trend_row(trend) for trend in trends])
    notes = dict.fromkeys(
        f"{_subject(t.last)}: new software on {_day(c.time)}: {c.before} -> {c.after}"
        for t in trends
        for c in t.changes
    )
    return [table, *(["\n".join(notes)] if notes else [])]


def _trend_row(trend: Trend) -> tuple[str, ...]:
    last, slower = trend.last, trend.regression
    flag = (
        f"{slower.status} {_CAUSES[slower.cause]} {slower.loss:.1%}, z {slower.z:.1f}"
        if slower
        else "-"
    )
    return (
        _subject(last),
        last.node,
        _what(last),
        str(len(trend.values)),
        f"{trend.median:.4g}",
        f"{last.value:.4g} {last.unit}",
        f"{_signed(trend.loss, last.direction):+.1%}",
        flag,
    )


def trends_document(trends: Sequence[Trend]) -> dict[str, Any]:
    """Return histories as JSON."""
    return {
        "history": [
            {
                "gpu": trend.last.gpu_uuid,
                "gpus": trend.last.members.split(),
                "model": trend.last.gpu,
                "node": trend.last.node,
                "payload": trend.last.payload,
                "test": trend.last.test,
                "metric": trend.last.metric,
                "unit": trend.last.unit,
                "values": list(trend.values),
                "median": trend.median,
                "mad": trend.spread,
                "latest": trend.last.value,
                "loss": trend.loss,
                "regression": plain(trend.regression) if trend.regression else None,
                "changes": [plain(change) for change in trend.changes],
            }
            for trend in trends
        ]
    }


def runs_text(records: Sequence[RunRecord]) -> list[Part]:
    """List the runs kept here, the newest first."""
    if not records:
        return ["no runs are kept here"]
    head = ("RUN", "WHEN", "CLUSTER", "PROFILE", "ASKED", "NODES", "PAYLOADS")
    rows = [
        (
            r.race_id,
            _day(r.submitted_at),
            r.label,
            r.profile,
            r.asked or "-",
            ",".join(r.nodes) or "-",
            " ".join(r.payloads),
        )
        for r in records
    ]
    return [Table(head=head, rows=rows)]


def runs_document(records: Sequence[RunRecord]) -> dict[str, Any]:
    """Return the runs kept here as JSON."""
    return {"runs": [plain(record) for record in records]}


def _turned(turn: Turn) -> tuple[str, str]:
    return (turn.before or "-", turn.after or "-")


def comparison_text(comparison: Comparison) -> list[Part]:
    """Show numbers in both runs, the worst change first, and the verdicts that changed."""
    head = ("GPU", "MEASURED", "BEFORE", "AFTER", "CHANGE")
    rows = [
        (
            _subject(c.after),
            _what(c.after),
            f"{c.before.value:.4g}",
            f"{c.after.value:.4g} {c.after.unit}",
            f"{_signed(c.loss, c.after.direction):+.1%}",
        )
        for c in comparison.changes
    ]
    parts: list[Part] = [Table(head=head, rows=rows)] if rows else ["nothing was measured in both"]
    if comparison.turns:
        verdicts = [
            (" ".join((t.payload, t.test, t.gpu or t.device)).strip(), t.node, *_turned(t))
            for t in comparison.turns
        ]
        parts.append(Table(head=("VERDICT", "NODE", "BEFORE", "AFTER"), rows=verdicts))
    if comparison.only_before or comparison.only_after:
        counts = (comparison.only_before, comparison.only_after)
        parts.append("only in the first: {}; only in the second: {}".format(*counts))
    return parts


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON."""
    return {
        "changes": [
            {
                "gpu": c.after.gpu_uuid,
                "gpus": c.after.members.split(),
                "node": c.after.node,
                "payload": c.after.payload,
                "test": c.after.test,
                "metric": c.after.metric,
                "unit": c.after.unit,
                "before": c.before.value,
                "after": c.after.value,
                "loss": c.loss,
            }
            for c in comparison.changes
        ],
        "verdicts": [{**plain(t), "before": t.before, "after": t.after} for t in comparison.turns],
        "only_before": comparison.only_before,
        "only_after": comparison.only_after,
    }


def baselines_text(values: Sequence[Baseline]) -> list[Part]:
    """Show references with where they are from."""
    if not values:
        return ["no references"]
    head = ("GPU", "MEASURED", "GPUS", "VALUE", "KIND", "SOURCE")
    rows = [
        (
            v.gpu,
            f"{v.payload} {v.test} {v.metric} {v.shape}".strip(),
            str(v.world or "any"),
            f"{v.value:.5g} {v.unit}",
            v.kind,
            v.source,
        )
        for v in values
    ]
    return [Table(head=head, rows=rows)]


def baselines_document(values: Sequence[Baseline]) -> dict[str, Any]:
    """Return references as JSON."""
    return {"baselines": [value.model_dump(exclude_defaults=True) for value in values]}


def _subject(measured: Measurement) -> str:
    members = "+".join(uuid[:8] for uuid in measured.members.split())
    where = " ".join(filter(None, (measured.node, measured.device, members)))
    return measured.gpu_uuid or where


def _what(measured: Measurement) -> str:
    world = f"x{measured.world}" if measured.world > 1 else ""
    parts = (measured.payload, measured.test, measured.metric, measured.shape, world)
    return " ".join(filter(None, parts))


def _signed(loss: float, direction: str) -> float:
    """Return a change of a number: positive where it has become larger."""
    return -loss if direction == "higher" else loss


def _day(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, tz=UTC):%Y-%m-%d %H:%M}"
