"""Histories: kept once, exported whole, and a drop told from noise."""

import csv
import io
import json
import random
import sqlite3
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from rv.accept.baselines import Baselines, golden, load
from rv.accept.charts import LEAST_RUNS
from rv.accept.export import HEADER, as_csv, as_jsonl, as_junit
from rv.accept.history import History
from rv.accept.measurements import Measurement, Point, measurements
from rv.accept.regressions import Regression, Series, together
from rv.accept.results import RunResult, Status
from rv.accept.run import earlier, measured_of
from rv.accept.runs import Run, RunRecord
from rv.accept.trends import change_points, compare, trends
from rv.errors import RvError
from rv.ui.tables import Table
from rv.ui.trends import trends_document, trends_text
from tests.unit.accept.made_results import gpu, metric, of_rates, outcome, run_of


def measured(
    value: float, run: str = "r1", time: float = 0.0, gpu_uuid: str = "GPU-0"
) -> Measurement:
    (one,) = measurements(of_rates(value), run, "c", 0.0)
    return replace(one, gpu_uuid=gpu_uuid, time=time)


def points(*values: float, software: str = "a") -> list[Point]:
    return [Point(time=t, value=v, fingerprint=software) for t, v in enumerate(values)]


def regression(past: list[Point], direction: str) -> Regression | None:
    """Judge one series alone."""
    (found,) = together([Series(points=past, direction=direction)])
    return found


STEADY = (700.0, 702.0, 698.0, 701.0, 699.0, 700.0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((*STEADY, 700), None),
        ((*STEADY, 667), None),
        ((*STEADY, 650), Status.WARN),
        ((*STEADY, 590), Status.FAIL),
        ((*STEADY, 900), None),
        ((*STEADY[:3], 500), None),
        ((*STEADY[:4], 500), Status.FAIL),
        ((*STEADY[:5], 590), Status.FAIL),
    ],
)
def test_the_last_value_is_held_against_those_before(
    values: tuple[float, ...], expected: Status | None
) -> None:
    """Above 5 % WARN, above 15 % FAIL, with four before it; a rise is none."""
    found = regression(points(*values), "higher")

    assert (found.status if found else None) is expected


def test_for_a_latency_up_is_worse() -> None:
    """Direction counts."""
    assert regression(points(*(9.0,) * 6, 12.0), "lower") is not None
    assert regression(points(*(9.0,) * 6, 6.0), "lower") is None


def test_a_lasting_drop_is_found_in_noise_that_hides_a_single_one() -> None:
    """Among thirty: each value is within the noise; three of them are not."""
    source = random.Random(3)
    every = [[700 * (1 + source.gauss(0, 0.02)) for _ in range(23)] for _ in range(30)]
    every[7][20:] = [value * 0.95 for value in (696.0, 704.0, 698.0)]

    def flagged(runs: int) -> list[int]:
        found = together([Series(points=points(*values[:runs])) for values in every])
        return [place for place, each in enumerate(found) if each]

    assert (flagged(21), flagged(23)) == ([], [7])


def test_other_software_is_a_change_point_and_a_loss_with_it_a_warning() -> None:
    """Nothing says whether the GPU or the software is why; a like speed is in line."""
    both = [*points(*STEADY), *[replace(p, time=9, fingerprint="b") for p in points(500)]]
    slower = regression(both, "higher")

    assert slower is not None
    assert (slower.status, slower.cause) == (Status.WARN, "software")
    assert regression([*both[:-1], replace(both[-1], value=698)], "higher") is None
    (change,) = change_points(both)
    assert (change.before, change.after, change.time) == ("a", "b", 9)


def test_a_drop_of_one_gpu_is_flagged_and_named_and_noise_is_not() -> None:
    """Eight GPUs, 2 % of noise, and one that loses 7 %: the worst trend is its, and the only one."""
    source = random.Random(11)
    kept = []
    for number in range(25):
        for index in range(8):
            drop = 0.93 if index == 5 and number >= 20 else 1.0
            value = 700 * drop * (1 + source.gauss(0, 0.02))
            kept.append(measured(value, f"r{number}", float(number), f"GPU-{index}"))

    found = trends(kept)

    assert [t.last.gpu_uuid for t in found if t.regression] == ["GPU-5"]
    assert found[0].last.gpu_uuid == "GPU-5"


def test_a_run_is_kept_once(tmp_path: Path) -> None:
    """However often it is added."""
    history = History(tmp_path / "h.sqlite")

    assert history.add([measured(700), measured(701, "r2", 1.0)]) == 2
    assert history.add([measured(700)]) == 0
    assert [m.value for m in history.all()] == [700, 701]
    assert history.all()[0] == measured(700)


def test_a_gpu_is_found_by_the_beginning_of_its_uuid_and_by_no_pattern(tmp_path: Path) -> None:
    """`*` is a character."""
    history = History(tmp_path / "h.sqlite")
    history.add([measured(1, gpu_uuid="GPU-a1"), measured(2, gpu_uuid="GPU-b2")])

    assert [m.value for m in history.all(gpu="GPU-a")] == [1]
    assert history.all(gpu="GPU-*") == ()
    assert history.all(gpu="' OR 1=1 --") == ()


def test_only_the_same_kind_of_number_of_the_same_gpu_is_its_past(tmp_path: Path) -> None:
    """Another shape, GPU, or the run itself is not."""
    history = History(tmp_path / "h.sqlite")
    now = measured(700, "now", 9.0)
    same = measured(1, "r1", 1.0)
    history.add([now, same, replace(same, shape="9x9x9"), replace(same, gpu_uuid="GPU-7")])

    assert [point.value for point in earlier(history, "now")(now)] == [1]


def _write(path: Path, start: int) -> None:
    history = History(path)
    for number in range(start, start + 20):
        history.add([measured(number, f"r{number}", float(number))])


def test_many_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    """Each waits for the others."""
    path = tmp_path / "h.sqlite"
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda start: _write(path, start), (0, 100, 200)))

    assert len(History(path).all()) == 60


@pytest.mark.parametrize("contents", [b"no database", b"SQLite format 3\0" + b"x" * 200])
def test_a_broken_history_is_one_line_with_a_hint(tmp_path: Path, contents: bytes) -> None:
    """Named, and how to go on."""
    (tmp_path / "h.sqlite").write_bytes(contents)

    with pytest.raises(RvError, match=r"h\.sqlite cannot be used") as caught:
        History(tmp_path / "h.sqlite").all()
    assert "move it away" in caught.value.hint


def test_a_history_of_a_newer_rv_is_left_alone(tmp_path: Path) -> None:
    """It is not written to."""
    with sqlite3.connect(tmp_path / "h.sqlite") as database:
        database.execute("PRAGMA user_version=99")
    database.close()

    with pytest.raises(RvError, match="newer rv"):
        History(tmp_path / "h.sqlite").add([measured(1)])


def test_json_lines_have_every_field() -> None:
    """One object a line."""
    lines = as_jsonl([measured(1), measured(2)]).splitlines()

    assert [json.loads(line)["value"] for line in lines] == [1, 2]
    assert set(json.loads(lines[0])) == {field.name for field in fields(Measurement)}


def whole(*results: RunResult) -> Run:
    return Run(record=RunRecord(race_id="r1", cluster="c"), results=results)


NASTY = "<&\"'\ud800>"


def test_junit_is_xml_that_counts_right_whatever_the_text() -> None:
    """Failures, errors and skips are their own elements."""
    tests = [
        outcome("cuda:0", metric(1)),
        outcome("cuda:1", status=Status.FAIL, code="wrong_result", reason=NASTY[:4]),
        outcome("cuda:2", status=Status.ERROR, code="no_torch"),
        outcome("cuda:3", status=Status.SKIP, reason="none"),
        outcome("cuda:4", status=Status.WARN, code="jitter", reason="varies"),
    ]
    root = ElementTree.fromstring(as_junit(whole(run_of(tests, []))).partition("\n")[2])

    (suite,) = root
    assert {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5", "failures": "1", "errors": "1", "skipped": "1",
    }  # fmt: skip
    assert [len(case) for case in suite] == [0, 1, 1, 1, 1]
    assert suite[1][0].get("message") == f"wrong_result: {NASTY[:4]}"


def test_csv_has_a_row_a_number() -> None:
    """Cells are parted by |, and a test without numbers has its row too."""
    tests = [outcome("cuda:0", metric(1), metric(2, name="ratio")), outcome("", reason="a|b")]
    rows = list(csv.reader(io.StringIO(as_csv(whole(run_of(tests, [gpu(0)])))), delimiter="|"))

    assert tuple(rows[0]) == HEADER
    assert [(row[8], row[9]) for row in rows[1:]] == [("tflops", "1"), ("ratio", "2"), ("", "")]
    assert {len(row) for row in rows} == {len(HEADER)}


@pytest.mark.parametrize("first", ["=", "+", "@", "-"])
def test_no_cell_of_csv_is_a_formula(first: str) -> None:
    """A spreadsheet would run what a cluster wrote; numbers stay numbers."""
    text = f"{first}HYPERLINK(1)"
    tests = [outcome("cuda:0", metric(-1.5), name=text, code=text, reason=text)]
    run = whole(run_of(tests, [gpu(0)], hostname=text, test_type=text))
    rows = list(csv.reader(io.StringIO(as_csv(run), newline=""), delimiter="|"))

    assert {row[9] for row in rows[1:]} == {"-1.5"}
    cells = [cell for row in rows[1:] for cell in row if cell != "-1.5"]
    assert sum("HYPERLINK" in cell for cell in cells) >= 3
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "@", "-")]


def test_two_runs_are_compared_number_by_number() -> None:
    """The worst change first; verdicts that changed; what only one has is counted."""
    before, after = of_rates(700, 710, 720), of_rates(700, 640, 720)
    worse = replace(after.tests[1], status=Status.FAIL)
    after = replace(after, tests=(after.tests[0], worse))

    def every(result: RunResult) -> list[Measurement]:
        return list(measurements(result, "r", "c", 0.0))

    found = compare(every(before), every(after), ([before], [after]))

    assert [c.after.gpu_uuid for c in found.changes] == ["GPU-1", "GPU-0"]
    assert found.changes[0].loss == pytest.approx(70 / 710)
    assert [(t.device, t.before, t.after) for t in found.turns] == [
        ("cuda:1", Status.PASS, Status.FAIL), ("cuda:2", Status.PASS, None),
    ]  # fmt: skip
    assert (found.only_before, found.only_after) == (1, 0)


def test_golden_values_come_from_three_clean_nodes(tmp_path: Path) -> None:
    """The median of the nodes' medians, which then is a layer of its own; two nodes are too few."""
    builtin = load(tmp_path, [], tmp_path / "none")

    def on(node: str, value: float) -> Measurement:
        return replace(measured(value, node), node=node)

    faulty = replace(on("n1", 300), standing="faulty")
    nodes = [faulty, on("n1", 700), on("n1", 704), on("n2", 690), on("n3", 710), on("bad", 100)]
    text, count = golden(nodes, builtin, {"bad"}, 0.0)
    (tmp_path / "golden.yaml").write_text(text)
    layered = load(tmp_path, [tmp_path / "golden.yaml"], tmp_path / "none")

    reference = layered.find(on("n9", 1), None)
    assert reference is not None
    assert (count, reference.value, reference.kind) == (1, 702, "golden")
    assert reference.source.startswith("median of 3 nodes")
    assert golden(nodes, builtin, {"bad", "n1"}, 0.0)[1] == 0


@pytest.mark.parametrize("more", [{"nodes": 2}, {"gpu": "NVIDIA H200 MIG 1g.18gb"}])
def test_slices_and_runs_over_nodes_make_no_golden_values(more: dict[str, Any]) -> None:
    """A slice is no whole GPU, and between nodes a network is measured."""
    nodes = [replace(measured(700), node=f"n{number}", **more) for number in range(3)]
    assert golden(nodes, Baselines(values=(), models={}), set(), 0.0)[1] == 0


@pytest.mark.parametrize(
    ("more", "values"),
    [
        ({"unit": "MB/s"}, (900.0, 500.0)),
        ({"unit": "us", "direction": "lower", "gpu_uuid": "", "world": 2}, (20.0, 26.0)),
        ({"gpu_uuid": "", "world": 4, "nodes": 2}, (300.0, 200.0)),
    ],
    ids=["storage", "latency", "between nodes"],
)
def test_a_history_flags_nothing_that_a_run_is_not_judged_by(
    more: dict[str, Any], values: tuple[float, float]
) -> None:
    """How it changed is shown all the same."""
    usual, last = values
    kept = [replace(measured(usual, f"r{n}", time=n), **more) for n in range(8)]
    (trend,) = trends([*kept, replace(measured(last, "r9", time=9), **more)])

    assert trend.regression is None
    assert trend.loss > 0.2


def test_no_history_is_said_of_the_gpu_that_was_asked_for() -> None:
    """Without its name a mistyped one would say that nothing at all is kept."""
    assert trends_text([], "GPU-9") == [
        "no history of a GPU GPU-9: rv accept run and rv accept sweep write it"
    ]
    assert trends_text([]) == ["no history: rv accept run and rv accept sweep write it"]


def test_two_pairs_of_gpus_of_a_node_are_told_apart() -> None:
    """By the beginnings of their UUIDs; the answer as JSON has them whole."""
    members = ("0000aaaa-1 1111bbbb-2", "0000aaaa-1 2222cccc-3")
    one = replace(measured(48), gpu_uuid="", device="", world=2)
    found = trends([replace(one, members=each) for each in members])
    table = trends_text(found)[0]

    assert isinstance(table, Table)
    assert {row[0] for row in table.rows} == {"n1 0000aaaa+1111bbbb", "n1 0000aaaa+2222cccc"}
    assert [each["gpus"] for each in trends_document(found)["history"]] == [
        each.split() for each in members
    ]


def test_two_runs_differ_where_one_of_several_tests_of_a_name_failed() -> None:
    """The last one of them passed."""
    first = of_rates(700, 700)
    tests = tuple(replace(test, device="") for test in first.tests)
    second = replace(first, tests=(replace(tests[0], status=Status.FAIL), tests[1]))

    (turn,) = compare([], [], ([replace(first, tests=tests)], [second])).turns
    assert (turn.before, turn.after) == (Status.PASS, Status.FAIL)


def test_gpus_that_are_linked_otherwise_on_other_nodes_make_no_golden_value() -> None:
    """Two that a bridge joins say nothing of two that none does; a switch joins all."""
    more: dict[str, Any] = {"gpu_uuid": "", "members": "a b", "world": 2}
    nodes = [replace(measured(48), node=f"n{number}", **more) for number in range(3)]
    builtin = load(Path("/nonexistent"), [], Path("/nonexistent"))
    assert golden([replace(m, gpu="NVIDIA A40") for m in nodes], builtin, set(), 0.0)[1] == 0
    assert golden(nodes, builtin, set(), 0.0)[1] == 1


def test_what_was_measured_beside_a_fault_on_order_is_no_history() -> None:
    """`--inject slow` halves the numbers."""
    record = RunRecord(race_id="r1", cluster="c")
    run = Run(record=record, results=(of_rates(700), of_rates(350, argv=("--inject", "slow"))))
    assert [m.value for m in measured_of(run)] == [700]


def test_quick_numbers_make_no_golden_values() -> None:
    """They are measured otherwise."""
    nodes = [replace(measured(1, f"n{i}"), node=f"n{i}", quick=True) for i in range(LEAST_RUNS)]

    assert golden(nodes, Baselines(values=(), models={}), set(), 0.0)[1] == 0
