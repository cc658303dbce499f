"""Faults that were asked for and not found: such a run shows nothing, and must not pass.

A fault may do nothing in a shape: with one rank no gradients are summed, on a CPU there are no
peers, and a step that never comes strikes nothing. So a fault counts as found by what did not pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contract.catalogue import NEEDS_RANKS, OF_OTHERS, OF_TELEMETRY, OF_WEAR
from contract.codes import CODES
from contract.schema import summary_of
from contract.verdicts import NotPassed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .inject import Fault
    from .ranks import Ranks

OBSERVED = {"wear": OF_WEAR, "telemetry": OF_TELEMETRY, "contention": OF_OTHERS}
"""Tests that find what shows on a real GPU too, and the only faults that they find."""
BY_OTHERS = frozenset({"slow-host", "slow-link"})
"""Faults that show where the results of many pairs of nodes are compared, and in none of them."""
ENDS = ("host", "one", "other")
"""The parameters that name the hosts of such a fault."""

OF_SPEED = frozenset(
    {"below", "below-floor", "contended", "fio-slow", "no-p2p", "no-scaling", "pcie", "slow",
     "slow-call", "slow-gpu", "slow-node", "slow-peer", "slow-storage", "still", "stretch",
     "unbalanced"}
)  # fmt: skip
BY_CODE = {
    "no_reference": frozenset({"unknown-model"}),
    **dict.fromkeys(("below_reference", "jitter", "slow_storage", "transport_unknown"), OF_SPEED),
    **dict.fromkeys(("no_torch", "no_numpy", "not_written", "tool_absent"), frozenset[str]()),
    "one_rank": frozenset[str](),
}
"""Codes that a sound machine has too, and the only faults that they find."""

CODE = "no_effect"


def refuse_vain(payload: str, faults: Sequence[Fault], ranks: Ranks) -> None:
    """Raise NotPassed (ERROR `no_effect`) for a fault that needs more ranks or hosts."""
    for fault in faults:
        lacking = ""
        if ranks.world < 2 and fault.name in NEEDS_RANKS.get(payload, ()):
            lacking = "two ranks or more"
        elif fault.name in BY_OTHERS and not {*ENDS} & {*fault.where}:
            lacking = "the host's name (host=NAME, or one=NAME,other=NAME)"
        elif fault.name in BY_OTHERS and ranks.nodes < 2:
            lacking = "two nodes or more (rv accept sweep --pairs)"
        if lacking:
            reason = f"--inject {fault.name} does nothing here: it needs {lacking}"
            raise NotPassed("ERROR", CODE, reason)


def with_unfound(document: dict[str, Any], faults: Sequence[Fault]) -> dict[str, Any]:
    """Add an ERROR for each fault that no test found to a whole result, and sum it up anew."""
    tests = document["tests"]
    own_faults = [fault.name for fault in faults if fault.name not in BY_OTHERS]
    lost = [name for name in own_faults if not _is_found(name, tests)]
    if not lost:
        return document
    tests = [*tests, *(_test(document, name) for name in lost)]
    own = document["summary"]
    summary = summary_of(tests, strict=own["strict"], skip_exit_code=own["skip_exit_code"])
    return {**document, "tests": tests, "summary": summary}


def _is_found(fault: str, tests: list[dict[str, Any]]) -> bool:
    """Whether a test that can find this fault did not pass."""
    bad = {
        test["name"]
        for test in tests
        if test["status"] not in ("PASS", "SKIP") and fault in BY_CODE.get(test["code"], (fault,))
    }
    observers = {name for name, faults in OBSERVED.items() if fault in faults}
    return bool(bad & observers if observers else bad - set(OBSERVED))


def _test(document: dict[str, Any], fault: str) -> dict[str, Any]:
    code, info = CODES[CODE], document["test_info"]
    return {
        "name": "inject",
        "status": "ERROR",
        "code": CODE,
        "class": code.fault,
        "action": code.action,
        "reason": f"--inject {fault} did nothing that was found: it needs another shape of run",
        "device": None,
        "rank": 0,
        "host": info["node"],
        "timing_ms": 0,
        "timestamp": info["timestamp"],
        "details": {},
        "metrics": [],
    }
