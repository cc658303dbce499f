"""A cluster's GPUs, who waits for them and what the user may have: text, lines and JSON. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from rv.models.plan import ModelView, PoolView, by_model
from rv.models.quantities import short_duration
from rv.ui.fitting import NOTHING, Column, fitted
from rv.ui.tables import Part, Table, cropped

_FREE, _BUSY, _LOST = "█░·"
_BARS: Final = ((120, 24), (80, 12), (64, 8))
"""The cells of a bar, by the least columns of the terminal."""

_LEGEND: Final = f"{_FREE} free  {_BUSY} busy  {_LOST} out of service"


def overview_text(pools: Sequence[PoolView], width: int) -> list[Part]:
    """Lay out what a cluster has within `width` columns of a terminal; 0 is none.

    On a terminal each model has a bar, and a line of its own where it is in several partitions.
    """
    if not pools:
        return ["no GPUs"]
    if not width:
        return [fitted([*_names(pools), *_counts(pools), *_details(pools)], 0)]
    return [_with_bars([row for model in by_model(pools) for row in _rows(model)], width)]


_Row = tuple[str, ModelView | PoolView]
"""A name, "" where the row above has it, and what stands beside it."""


def _with_bars(rows: Sequence[_Row], width: int) -> Table:
    bar = next((cells for columns, cells in _BARS if width >= columns), 0)
    columns = [
        Column(title="GPU", cells=[name for name, _ in rows], least=6),
        Column(
            title="PARTITION",
            cells=[_partition(row) for _, row in rows],
            rank=2,
            least=9,
            wanted=20,
        ),
        Column(title="FREE", cells=[_bar(row, bar) for _, row in rows]),
        *_details([row for _, row in rows]),
    ]
    table = replace(fitted(columns, width), title=_LEGEND)
    if "LIMITS" in table.head:
        return table
    return replace(table, below=[cropped(_closed(row), width - 2) for _, row in rows])


def _closed(row: ModelView | PoolView) -> str:
    return row.closed if isinstance(row, PoolView) else ""


def overview_headline(pools: Sequence[PoolView], notice: str) -> str:
    """Say how many GPUs are free in all."""
    models = by_model(pools)
    free, total = sum(model.free for model in models), sum(model.total for model in models)
    return f"{free} of {total} GPUs free · {notice}"


def overview_lines(pools: Iterable[PoolView]) -> Mapping[str, str]:
    """Say of each pool what is news when it changes, by its name."""
    return {f"{pool.gpu}/{pool.partition}": _line(pool) for pool in pools}


def _line(pool: PoolView) -> str:
    waiting = f"{_queue(pool)} waiting" if pool.queued else "nobody waits"
    lost = f"{pool.lost} out of service" if pool.lost else ""
    parts = [f"{pool.free} of {pool.total} free", waiting, lost, pool.closed]
    return f"{pool.gpu} in {pool.partition}: {', '.join(filter(None, parts))}"


def _rows(model: ModelView) -> list[_Row]:
    """One row below the model's name, and another for each partition where there are several."""
    if len(model.pools) == 1:
        return [(model.gpu, model.pools[0])]
    return [(model.gpu, model), *(("", pool) for pool in model.pools)]


def _partition(row: ModelView | PoolView) -> str:
    return row.partition if isinstance(row, PoolView) else f"{len(row.pools)} partitions"


def _bar(row: ModelView | PoolView, cells: int) -> str:
    """Draw what is free, busy and out of service: what there is has a cell, if one is left."""
    count = f"{row.free} of {row.total}"
    if not cells or not row.total:
        return count
    free = _share(row.free, row.total, cells)
    lost = min(_share(row.lost, row.total, cells), cells - free)
    return f"{_FREE * free}{_BUSY * (cells - free - lost)}{_LOST * lost} {count}"


def _share(part: int, total: int, cells: int) -> int:
    """So many cells of all; some where there is some, and not all where there is not all."""
    if part in (0, total):
        return cells * (part > 0)
    return min(max(round(cells * part / total), 1), cells - 1)


def _names(pools: Sequence[PoolView]) -> list[Column]:
    return [
        Column(title="GPU", cells=[pool.gpu for pool in pools]),
        Column(title="PARTITION", cells=[pool.partition for pool in pools]),
    ]


def _counts(pools: Sequence[PoolView]) -> list[Column]:
    return [
        Column(title="FREE", cells=[str(pool.free) for pool in pools]),
        Column(title="TOTAL", cells=[str(pool.total) for pool in pools]),
    ]


def _details(rows: Sequence[ModelView | PoolView]) -> list[Column]:
    """What is known of a model in one partition, and not of all of them together."""

    def cells(say: Callable[[PoolView], str]) -> list[str]:
        return [say(row) if isinstance(row, PoolView) else NOTHING for row in rows]

    short = cells(lambda pool: str(pool.queued))
    return [
        Column(title="WAITING", cells=cells(_queue), short=short, rank=1),
        Column(title="MAY HAVE", cells=cells(_allowed), rank=3),
        Column(title="ON A NODE", cells=cells(lambda pool: str(pool.largest)), rank=5),
        Column(title="MAX TIME", cells=cells(_max_time), rank=6),
        Column(title="LIMITS", cells=cells(_limits), rank=7, least=10, wanted=24),
    ]


def _queue(pool: PoolView) -> str:
    if not pool.queued:
        return "0"
    jobs = f"{pool.queued} job{'' if pool.queued == 1 else 's'}"
    return f"{jobs}, {pool.queued_gpus} GPU{'' if pool.queued_gpus == 1 else 's'}"


def _allowed(pool: PoolView) -> str:
    """What the limits leave the user in all, and a job at most."""
    if pool.closed or pool.still_allowed == 0:
        return "none"
    left = "" if pool.still_allowed is None else str(pool.still_allowed)
    a_job = "" if pool.most_a_job is None else f"{pool.most_a_job} a job"
    return ", ".join(filter(None, (left, a_job))) or "any"


def _max_time(pool: PoolView) -> str:
    return NOTHING if pool.max_time is None else short_duration(pool.max_time)


def _limits(pool: PoolView) -> str:
    notes = [pool.closed] if pool.closed else list(pool.limits)
    if pool.lost:
        notes.append(f"{pool.lost} out of service")
    return ", ".join(notes) or NOTHING


def overview_document(pools: Sequence[PoolView]) -> dict[str, Any]:
    """Describe what GPUs a cluster has."""
    return {
        "gpus": [
            {
                "gpu": pool.gpu,
                "partition": pool.partition,
                "free": pool.free,
                "total": pool.total,
                "largest_on_one_node": pool.largest,
                "out_of_service": pool.lost,
                "waiting_jobs": pool.waiting,
                "queued_jobs": pool.queued,
                "queued_gpus": pool.queued_gpus,
                "max_time_s": None if pool.max_time is None else pool.max_time.total_seconds(),
                "limits": list(pool.limits),
                "still_allowed": pool.still_allowed,
                "most_a_job": pool.most_a_job,
                "closed": pool.closed or None,
            }
            for pool in pools
        ],
        "models": [
            {
                "gpu": model.gpu,
                "free": model.free,
                "total": model.total,
                "out_of_service": model.lost,
                "partitions": [pool.partition for pool in model.pools],
            }
            for model in by_model(pools)
        ],
    }
