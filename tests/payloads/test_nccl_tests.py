"""nccl_tests.py: what all_reduce_perf says in each of its forms, and what is made of it."""

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nccl_tests
import pytest
from _nccl_tests.output import Row, Table, parse_report, parse_table
from contract.verdicts import NotPassed

from tests.payloads.burning import by_name, codes, run, without_torch

DATA = Path(__file__).parents[1] / "data" / "nccl_tests"
REPORT, TABLE, OLDER = ((DATA / n).read_text() for n in ("report.json", "table.txt", "table_2.10.txt"))  # fmt: skip


@pytest.mark.parametrize(
    "table",
    [
        parse_report(REPORT),
        parse_table(TABLE),
        parse_table(OLDER),
        parse_table("".join(f"[1,0]<stdout>:{line}" for line in TABLE.splitlines(keepends=True))),
    ],
    ids=["json", "table", "older-table", "behind-mpirun"],
)
def test_each_form_says_the_same(table: Any) -> None:
    last = table.rows[-1]

    assert (len(table.rows), last.nbytes, table.ranks, table.wrong) == (4, 1 << 30, 8, 0)
    assert last.busbw == pytest.approx(470.9, abs=0.1)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (REPORT.replace('"nwrong": 0.0', '"nwrong": 2.0', 1), 2),
        (REPORT.replace('"nwrong": 0.0', '"nwrong": null'), None),
        (REPORT.replace('"count": 0', '"count": 5'), 5),
        (TABLE.replace("      0\n", "      7\n", 1), 7),
        (TABLE.replace("values : 0 OK", "values : 9 FAILED"), 9),
        (TABLE.replace("      0\n", "    N/A\n").replace("      0  ", "    N/A  "), None),
        (OLDER.replace("values : 0 OK", "values : 3 FAILED"), 3),
    ],
)
def test_wrong_elements_are_counted_and_none_checked_is_no_zero(
    text: str, wrong: int | None
) -> None:
    assert nccl_tests.parsed(text).wrong == wrong


@pytest.mark.parametrize("text", ["", "{", "{}", TABLE[: TABLE.index("# Out of")], REPORT[:900]])
def test_what_is_cut_short_is_no_result(text: str) -> None:
    with pytest.raises(ValueError):
        nccl_tests.parsed(text)


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [("", "PASS", None), ("wrong", "FAIL", "wrong_collective"),
     ("unchecked", "WARN", "not_run"), ("below-floor", "FAIL", "slow_fabric")],
)  # fmt: skip
def test_a_report_is_judged(fault: str, status: str, code: str | None, tmp_path: Path) -> None:
    words = ("--read", DATA / "report.json", *(("--inject", fault) if fault else ()))
    ended, text, result = run("nccl_tests", tmp_path, *words, **without_torch(tmp_path))

    test = by_name(result, "nccl_tests.all_reduce.8")
    assert (ended, test["status"], test["code"]) == (int(status == "FAIL"), status, code), text
    assert [metric["name"] for metric in test["metrics"]] == ["busbw_256M", "busbw_1024M"]
    assert {metric["dir"] for metric in test["metrics"]} == {""}  # no rates of this machine's
    assert "secret" not in (tmp_path / "result.json").read_text()  # of -J's environment


def test_without_it_or_without_gpus_there_is_nothing_to_run(tmp_path: Path) -> None:
    code, text, result = run("nccl_tests", tmp_path, **without_torch(tmp_path))

    assert (code, codes(result, "SKIP")) == (77, {"tool_absent"}), text


STAND_IN = """#!/bin/bash
for word; do [ "$word" = -J ] && asked=1; done
{new} || {{ [ -n "$asked" ] && echo "invalid option 'J'" && exit 0; }}
for word; do [ "$before" = -J ] && cp {data}/report.json "$word"; before=$word; done
cat {data}/table.txt
"""


@pytest.mark.parametrize("new", ["true", "false"], ids=["takes-J", "older"])
def test_an_older_one_that_knows_no_json_is_asked_for_its_table(new: str, tmp_path: Path) -> None:
    """A program that answers as theirs does: theirs needs CUDA to be built."""
    program = tmp_path / "all_reduce_perf"
    program.write_text(STAND_IN.format(new=new, data=DATA))
    program.chmod(0o700)
    session: Any = SimpleNamespace(options=argparse.Namespace(quick=True), left=lambda: 30.0)

    assert nccl_tests.measure(session, str(program), 8).ranks == 8
    with pytest.raises(NotPassed) as fewer:
        nccl_tests.measure(session, str(program), 4)
    assert fewer.value.code == "rank_missing"


def test_of_one_rank_no_bandwidth_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bus bandwidth is 0 by its formula: one sound H100 is no slow fabric."""
    rows = tuple(Row(1 << exponent, 1400.0, 0.0, 0.0, 0) for exponent in (20, 28, 30))
    told: list[dict[str, Any]] = []
    session: Any = SimpleNamespace(
        options=argparse.Namespace(read=""),
        faults=SimpleNamespace(get=lambda _: None),
        say=lambda *_: None,
        report=SimpleNamespace(
            devices=[{"name": "NVIDIA H100 80GB HBM3"}],
            add=lambda name, **more: told.append({"name": name, **more}),
        ),
    )
    for wrong in (0, 3, None):
        nccl_tests.judge(session, Table(rows, wrong))

    assert [each["name"] for each in told] == ["nccl_tests.all_reduce.1"] * 3
    assert [each["status"] for each in told] == ["PASS", "FAIL", "WARN"]
    assert [each["metrics"] for each in told] == [[], [], []]


def test_too_little_is_told_and_nothing_is_no_result() -> None:
    """Of sizes below 256 MiB no speed of the links is known; a rate of 0 was not measured."""
    session: Any = SimpleNamespace(faults=SimpleNamespace(get=lambda *_: None))
    table = parse_table(TABLE)
    small = table._replace(rows=tuple(r._replace(nbytes=r.nbytes >> 13) for r in table.rows))
    assert nccl_tests._verdict(session, small)["code"] == "not_run"

    with pytest.raises(ValueError, match="no bandwidth"):
        parse_table(TABLE.replace("269.11", "0.00").replace("470.94", "0.00"))
