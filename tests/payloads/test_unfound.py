"""A fault that does nothing in some shape of run is an ERROR that says why, never a PASS."""

from pathlib import Path

import pytest
from _harness.inject import Fault
from _harness.ranks import Ranks
from _harness.unfound import refuse_vain, with_unfound
from contract.schema import summary_of
from contract.verdicts import NotPassed

from rv.payloads.contract import codes
from tests.payloads.starting import Launcher

CHECK = ["--device", "cpu", "--quick", "--size", "64", "--dtypes", "fp32"]
FSDP = ["--device", "cpu", "--quick", "--steps", "10"]


def judged(fault: str, *tests: tuple[str, ...]) -> str:
    """The status of a result with these tests where a fault was asked for.

    A test is its name, its status and, where it matters, its code.
    """
    more = {"class": None, "reason": None, "host": "a1", "action": None}
    every = [
        {"name": name, "status": status, "code": code[0] if code else None, **more}
        for name, status, *code in tests
    ]
    info = {"node": "a1", "timestamp": ""}
    document = {"tests": every, "summary": summary_of(every), "test_info": info}
    return str(with_unfound(document, [Fault(fault)] if fault else [])["summary"]["status"])


@pytest.mark.parametrize(
    ("fault", "tests", "status"),
    [
        ("", [("a", "PASS")], "PASS"),
        ("bitflip", [("a", "PASS")], "ERROR"),
        ("bitflip", [("a", "SKIP")], "ERROR"),
        ("bitflip", [("a", "FAIL")], "FAIL"),
        ("unknown-model", [("speed", "WARN", "no_reference")], "WARN"),
        ("bitflip", [("speed", "WARN", "no_reference")], "ERROR"),  # of any unknown model
        ("bitflip", [("a", "WARN", "below_reference")], "ERROR"),  # of a GPU that is slow anyhow
        ("slow", [("a", "WARN", "below_reference")], "WARN"),
        ("corrupt-file", [("a", "WARN", "slow_storage")], "ERROR"),
        ("bitflip", [("a", "FAIL", "wrong_result")], "FAIL"),
        ("bitflip", [("a", "PASS"), ("wear", "WARN")], "ERROR"),  # of a GPU that is worn anyhow
        ("bitflip", [("a", "PASS"), ("contention", "WARN")], "ERROR"),
        ("power-limit", [("wear", "WARN")], "WARN"),
        ("busy", [("wear", "WARN"), ("contention", "PASS")], "ERROR"),
        ("temperature", [("telemetry", "WARN")], "WARN"),
        ("slow-host", [("a", "PASS")], "PASS"),  # pairs are compared with each other by rv
    ],
)
def test_a_fault_counts_as_found_by_what_can_find_it(
    fault: str, tests: list[tuple[str, ...]], status: str
) -> None:
    assert judged(fault, *tests) == status


@pytest.mark.parametrize(
    ("payload", "fault", "where", "ranks", "lacks"),
    [
        ("moe", "drop-rank", {}, Ranks(), "two ranks or more"),
        ("train", "stale-gradient", {}, Ranks(), ""),  # DDP delivers by a hook, on one rank too
        ("allreduce", "slow-host", {}, Ranks(0, 2), "the host's name"),
        ("allreduce", "slow-link", {"one": "a1"}, Ranks(0, 2, 0, 2), "two nodes or more"),
        ("allreduce", "slow-host", {"host": "a1"}, Ranks(0, 2), ""),
    ],
)
def test_what_can_do_nothing_is_refused(
    payload: str, fault: str, where: dict[str, str], ranks: Ranks, lacks: str
) -> None:
    """Before anything is done: by the ranks and the nodes that there are."""
    faults = [Fault(fault, where)]
    if not lacks:
        refuse_vain(payload, faults, ranks)
        return
    with pytest.raises(NotPassed, match=lacks):
        refuse_vain(payload, faults, ranks)


@pytest.mark.parametrize(
    ("payload", "words", "reason"),
    [
        ("train_fsdp", [*FSDP, "--inject", "stale-gradient"], "it needs two ranks or more"),
        ("train_fsdp", [*FSDP, "--inject", "unsummed:step=3"], "it needs two ranks or more"),
        ("check", [*CHECK, "--inject", "drop-rank"], "it needs two ranks or more"),
        ("train_fsdp", [*FSDP, "--inject", "drop-rank"], "it needs two ranks or more"),
        ("check", [*CHECK, "--inject", "digest"], "another shape of run"),
        ("check", [*CHECK, "--inject", "wrong-product:dtype=bf16"], "another shape of run"),
        ("check", [*CHECK, "--inject", "residual:rank=7"], "another shape of run"),
    ],
)  # fmt: skip
def test_what_does_nothing_is_refused_or_told(
    launch: Launcher, tmp_path: Path, payload: str, words: list[str], reason: str
) -> None:
    """One rank, one device, a type that is not tested, a rank that is not there."""
    done = launch(payload, tmp_path, *words)

    assert done.code == 99, done.out + done.err
    assert reason in done.last
    assert done.last.startswith("[RESULT] ERROR: --inject ")
    assert codes.CODES["no_effect"].fault == "CONFIG"
    assert set(done.coded.values()) >= {"no_effect"}


def test_a_planted_rate_is_judged_where_rv_judges_too(launch: Launcher, tmp_path: Path) -> None:
    """`rv accept` leaves the references to itself, and the fault was lost."""
    done = launch("check", tmp_path, *CHECK, "--inject", "below", "--no-reference")
    assert done.code == 1
    assert ("matmul.fp32", "below_floor") in done.bad
