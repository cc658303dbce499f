"""What a run of acceptance found, as a person reads it."""

from rv.accept.results import RunResult, Status, TestResult
from rv.accept.runs import Run, RunRecord
from rv.ui.acceptance import run_text, sweep_text
from rv.ui.tables import Table


def found(payload: str, *tests: TestResult) -> RunResult:
    return RunResult(test_type=payload, status=Status.WARN, hostname="a1", tests=tests)


def wear(device: str, reason: str) -> TestResult:
    return TestResult(
        name="wear", status=Status.WARN, code="link_crc", reason=reason, device=device, host="a1"
    )


def findings(*results: RunResult) -> list[list[str]]:
    """The rows of the table of findings, without what is to be done."""
    record = RunRecord(race_id="c73v5y6k", cluster="lab", payloads=("check",))
    *_, table, _ = run_text(Run(record=record, results=results))
    assert isinstance(table, Table)
    return [list(row[:3]) for row in table.rows]


def test_what_several_payloads_found_alike_is_one_line() -> None:
    """Each sees the same GPU's links; another GPU, and what one payload alone found, stay apart."""
    slow = TestResult(name="train.step", status=Status.FAIL, code="below_floor")
    results = (
        found("check", wear("cuda:0", "114 CRC errors in 14 s"), wear("cuda:1", "9 in 14 s")),
        found("allreduce", wear("cuda:0", "1446 CRC errors in 7 s")),
        found("train", wear("cuda:0", "94 CRC errors in 6 s"), slow),
    )

    assert findings(*results) == [
        ["WARN wear, in 3 payloads", "a1 cuda:0", "link_crc"],
        ["WARN check wear", "a1 cuda:1", "link_crc"],
        ["FAIL train train.step", "a1", "below_floor"],
    ]


def test_two_ranks_of_a_payload_are_one_payload() -> None:
    """Each rank's file may tell of the same GPU."""
    results = [found("check", wear("cuda:0", "1 CRC error in 9 s")) for _ in range(2)]

    assert findings(*results) == [["WARN check wear", "a1 cuda:0", "link_crc"]]


def test_a_node_shows_the_worst_of_several_results_of_a_payload() -> None:
    """One for each rank, say, of which the last passed."""
    ranks = [
        RunResult(test_type="train", status=status, hostname="n1", rank=rank, world_size=3)
        for rank, status in enumerate((Status.PASS, Status.FAIL, Status.PASS))
    ]
    record = RunRecord(race_id="sweep-1", cluster="c", nodes=("n1",))
    table = sweep_text(Run(record=record, results=tuple(ranks)))[0]

    assert isinstance(table, Table)
    assert [row[:3] for row in table.rows] == [("n1", "FAIL", "FAIL")]
