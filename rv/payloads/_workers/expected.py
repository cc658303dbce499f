"""How many operations a second a GPU does, by its model: the first document's table as a gate.

It says 50 to 200, by the model. An operation is a product of square matrices in single precision,
so that what `torch.mm` reaches on the model says how many there are. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from contract.rates import model_of
from contract.references import REFERENCES

from .workers import side

WARN, FAIL = 0.6, 0.4
"""Of what single products reach: workers that took turns got 0.83 on four H200 before they compared
their products, which takes 12 % of their time."""
LEAST = 50.0
"""What the document expects of any GPU with workers of 256 MiB: of a model that nobody knows."""
MIB = 256


class Gates(NamedTuple):
    """Operations a second of one GPU below which it warns, and fails; 0 for none."""

    warn: float
    fail: float


def gates(product: str, memory_mib: int) -> Gates:
    """Return the gates of a GPU by its product's name, for workers of so much memory.

    Smaller matrices are multiplied more often, but not in proportion: those of 256 MiB are a bound.
    """
    known = REFERENCES["matmul.fp32"]["values"].get(model_of(product))
    if known is None:
        return Gates(LEAST if memory_mib <= MIB else 0.0, 0.0)
    rate = known["value"] * 1e12 / (2 * side(max(memory_mib, MIB)) ** 3)
    return Gates(WARN * rate, FAIL * rate)
