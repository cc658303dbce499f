"""Sums in half precision, as training exchanges gradients: libraries have kernels for each type.

Few whole numbers are exact in bfloat16: with more than some fifty ranks its pattern is so short
that an output left from three iterations before is right.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .fabric_checks import add
from .measure import measure
from .operations import DTYPES, OPERATIONS, most_ranks
from .sweep import as_details, size_word

if TYPE_CHECKING:
    from _harness.main import Session

    from .measure import Field, Row

TEST = "allreduce.half_precision"
NAMES = ("fp16", "bf16")
SUMS = ("all_reduce", "reduce_scatter")
NBYTES = {"cuda": (8 << 10, 1 << 20, 64 << 20), "cpu": (1 << 10, 16 << 10)}
"""On GPUs about where NCCL takes each of its protocols: LL, LL128 and Simple."""
SECONDS = 0.05  # of each size


def check(session: Session, field: Field) -> None:
    """Compare every element of such sums, and report; every rank must call."""
    names = [name for name in NAMES if can_sum(field, name)]
    rows = [(name, row) for name in names for row in _rows(field, name)]
    session.say("DDP", f"half precision: {len(rows)} sums in {' and '.join(names) or 'no type'}")
    add(session, TEST, _verdict(rows), details={"rows": [_details(*row) for row in rows]})


def can_sum(field: Field, name: str) -> bool:
    """Whether there are not too many ranks for exact sums, and the library has the type.

    An older gloo lacks them, and says so on each rank before anything is sent.
    """
    if field.world > most_ranks(name):
        return False
    if field.device != "cpu":
        return True
    dtype = getattr(field.torch, DTYPES[name].torch_name)
    try:
        field.dist.all_reduce(field.torch.zeros(1, dtype=dtype), group=field.group)
    except RuntimeError:
        return False
    return True


def _rows(field: Field, name: str) -> list[Row]:
    typed = replace(field, dtype=name)
    sizes = [nbytes // typed.item_bytes for nbytes in NBYTES[field.device.partition(":")[0]]]
    return [
        measure(typed, OPERATIONS[operation], total, budget_s=SECONDS)
        for operation in SUMS
        for total in sizes
    ]


def _verdict(rows: list[tuple[str, Row]]) -> dict[str, str]:
    if not rows:
        return {"status": "SKIP", "code": "unsupported", "reason": "no sums in half precision here"}
    wrong = next(((name, row) for name, row in rows if row.wrong), None)
    if wrong is None:
        return {"status": "PASS"}
    name, row = wrong
    what = f"{row.operation} of {size_word(row.nbytes)} in {name}: {row.wrong} wrong elements"
    reason = f"{what}, first at {row.where}"
    return {"status": "FAIL", "code": "wrong_collective", "reason": reason}


def _details(name: str, row: Row) -> dict[str, Any]:
    return {"dtype": name, "operation": row.operation, **as_details(row)}
