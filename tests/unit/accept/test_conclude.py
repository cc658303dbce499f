"""Runs of one node, one after the other: what each says of those before it, and what no longer."""

import json
import sqlite3
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from rv import avoided_nodes
from rv.accept import run as run_module
from rv.accept import sweep as sweeps
from rv.accept.history import history
from rv.accept.kept_records import records
from rv.accept.measurements import FAULTY, RETIRED, SOUND
from rv.accept.report.write import report_on
from rv.accept.results import Status, exit_code
from rv.accept.run import Conclusion, compare_runs, conclude
from rv.accept.runs import NodeState, Run, RunRecord, Stage, Sweep
from rv.accept.store import results_of, save
from rv.avoided_nodes import AvoidedNode
from rv.bundle import acceptance_dir, acceptance_file
from rv.cli import accept, bad_nodes
from rv.errors import RvError

NOW = 1_800_000_000.0
HOUR_S = 3600.0


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def ran(
    race: str,
    began: float,
    *,
    gpus: Collection[int] = (0, 1),
    wrong: Collection[int] = (),
    payload: str = "check",
    rate: float = 700.0,
    stamp: float = 0.0,
    started: float = 0.0,
    submitted: float = 0.0,
    quick: bool = False,
) -> Run:
    """Keep a run of one payload on n1; `wrong` are the GPUs that computed wrongly.

    It began half a minute after it was submitted, unless told, and was over a minute later. The
    node's clock said `stamp` and `started`.
    """
    when = datetime.fromtimestamp(stamp or began, tz=UTC)
    bad = {"status": "FAIL", "code": "wrong_result", "reason": "3 wrong elements"}
    number = {"name": "tflops", "value": rate, "unit": "TFLOPS", "dir": "higher"}
    tests = [
        {"name": "matmul.bf16", "status": "PASS", "device": f"cuda:{i}", "metrics": [number]}
        | (bad if i in wrong else {})
        for i in gpus
    ]
    info = {"test_type": payload, "timestamp": f"{when:%Y-%m-%dT%H:%M:%SZ}", "quick": quick}
    document = {
        "schema": "rv.accept/1",
        "test_info": info | {"hostname": "n1", "token": race, "slurm": {"job_id": "7"}},
        "devices": [{"index": i, "name": "Other GPU", "uuid": f"GPU-{i}"} for i in gpus],
        "tests": tests,
        "summary": {"status": "FAIL" if wrong else "PASS", "exit_code": int(bool(wrong))},
    }
    record = RunRecord(
        race_id=race, cluster="c", payloads=(payload,), job_id=7, nodes=("n1",),
        submitted_at=submitted or began - 30, started_at=started or began, fetched_at=began + 60,
    )  # fmt: skip
    files = {
        f"{payload}/node0/{payload}_result.json": json.dumps(document).encode(),
        f"{payload}/node0.begun": f"n1\n{race}".encode(),
        f"{payload}/node0.exit": b"%d" % bool(wrong),
    }
    return save(record, files)


def concluded(race: str, began: float, **more: object) -> Conclusion:
    return conclude(ran(race, began, **more), began + 60)  # type: ignore[arg-type]


def of_sweep(race: str) -> Run:
    """The sweep that the run was of, as its results are put together after it was resumed."""
    node = NodeState(node="n1", stage=Stage.OVER, race=race)
    return results_of(
        Sweep(sweep_id="sweep-1", cluster="c", profile="smoke", payloads=("check",),
              begun_at=NOW - 99 * HOUR_S, nodes=(node,))
    )  # fmt: skip


def avoided(now_s: float = NOW + HOUR_S) -> list[AvoidedNode]:
    return list(avoided_nodes.load("c", now_s))


def test_a_pass_on_another_gpu_of_the_node_clears_nothing() -> None:
    """It takes all GPUs that were bad, in the payload that found them so."""
    concluded("r1", NOW, wrong=[1])

    concluded("r2", NOW + 200, gpus=[0])
    assert [entry.uuids for entry in avoided()] == [("GPU-1",)]
    concluded("r3", NOW + 300, gpus=[0, 1], payload="membw")
    assert [entry.uuids for entry in avoided()] == [("GPU-1",)]
    concluded("r4", NOW + 400)
    assert avoided() == []


def test_a_quick_pass_clears_no_failure_of_a_longer_run() -> None:
    """What comes now and then is missed in seconds; what a quick run found, one can look at."""
    concluded("r1", NOW, wrong=[1])
    concluded("r2", NOW + 200, quick=True)
    assert [entry.node for entry in avoided()] == ["n1"]
    concluded("r3", NOW + 300, wrong=[1], quick=True)
    concluded("r4", NOW + 400, quick=True)
    assert [entry.node for entry in avoided()] == ["n1"]
    concluded("r5", NOW + 500)
    assert avoided() == []

    concluded("r6", NOW + 600, wrong=[1], quick=True)
    assert [entry.node for entry in avoided()] == ["n1"]
    concluded("r7", NOW + 700, quick=True)
    assert avoided() == []


def test_a_later_failure_keeps_the_earlier_one() -> None:
    """One payload's pass says nothing of what the other found; nor do fewer days."""
    concluded("r1", NOW, wrong=[1])
    conclude(ran("r2", NOW + 200, gpus=[0], wrong=[0], payload="membw"), NOW + 260, avoid_days=0)
    concluded("r3", NOW + 300, payload="membw")

    (entry,) = avoided()
    assert {said.partition(" ")[0] for said in entry.evidence} == {"check", "membw"}
    assert set(entry.uuids) == {"GPU-0", "GPU-1"}
    concluded("r4", NOW + 400)
    assert len(avoided()) == 1
    both = replace(ran("r5", NOW + 500), results=())
    results = (*ran("r5", NOW + 500).results, *ran("r6", NOW + 500, payload="membw").results)
    conclude(replace(both, results=results), NOW + 560)
    assert avoided() == []


def test_evidence_is_cut_and_no_payload_forgotten() -> None:
    """Whoever accuses a node has to clear it."""
    said = (*(f"check test{i} wrong_result: x" for i in range(30)), "membw copy wrong_result: x")
    entry = AvoidedNode(node="n1", since=NOW, until=NOW + 9 * HOUR_S, run="r", evidence=said)
    avoided_nodes.update("c", [entry], (), NOW)

    (kept,) = avoided()
    assert len(kept.evidence) == 20
    assert (kept.evidence[0], kept.evidence[-1]) == (said[0], said[-1])


def test_the_pass_of_an_older_job_clears_no_newer_failure() -> None:
    """A sweep that is resumed has results of days ago."""
    ran("old", NOW - 24 * HOUR_S)
    concluded("r1", NOW, wrong=[1])

    conclude(of_sweep("old"), NOW + 300)

    assert [entry.node for entry in avoided()] == ["n1"]
    concluded("r2", NOW + 400)
    assert avoided() == []


@pytest.mark.parametrize("how", ["repaired", "forget"])
def test_the_failure_of_a_job_before_the_repair_is_the_past(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept and counts for nothing; one after the repair counts."""
    here = SimpleNamespace(cluster=SimpleNamespace(key="c", label="c"), now_s=NOW)
    monkeypatch.setattr(accept.caller, "current_caller", lambda _: here)
    ran("old", NOW - 24 * HOUR_S, wrong=[1])
    if how == "repaired":
        bad_nodes.repaired("n1")
    else:
        bad_nodes.avoid(forget="n1")

    assert conclude(of_sweep("old"), NOW + 300).avoided == ()
    assert avoided() == []
    assert {each.standing for each in history().all(gpu="GPU-1")} == {RETIRED}
    assert {each.standing for each in history().all(gpu="GPU-0")} == {SOUND}
    concluded("r1", NOW + 400, wrong=[1])
    assert [entry.node for entry in avoided()] == ["n1"]


def test_a_repair_is_not_forgotten_by_what_is_written_after_it() -> None:
    """Nor is one of a clock that was ahead believed for ever."""
    avoided_nodes.forget("c", ["n1"], NOW)
    avoided_nodes.forget("c", ["n2"], NOW + 9000 * HOUR_S)
    concluded("r1", NOW + 100, wrong=[1])

    assert avoided_nodes.repairs("c", NOW + 200) == {"n1": NOW, "n2": NOW + 160}
    avoided_nodes.update("c", (), avoided(NOW + 300), NOW + 300)
    assert avoided_nodes.repairs("c", NOW + 300)["n1"] == NOW


@pytest.mark.parametrize(
    ("stamp", "started"),
    [(-48, 0), (-48, -48), (48, 0), (48, 48)],
    ids=["stamp behind", "all behind", "stamp ahead", "all ahead"],
)
def test_a_nodes_wrong_clock_does_not_hide_its_history(stamp: float, started: float) -> None:
    """Each slow run is held against the sound ones before it, and stands where it belongs."""
    for n in range(6):
        concluded(f"r{n}", NOW + 2 * n * HOUR_S, gpus=[0])
    at = NOW + 12 * HOUR_S
    off, began = at + stamp * HOUR_S, at + started * HOUR_S
    slow = conclude(ran("r6", at, gpus=[0], rate=560.0, stamp=off, started=began), at + 60)
    again = concluded("r7", at + 2 * HOUR_S, gpus=[0], rate=560.0)

    assert [each.code for each in (*slow.run.results, *again.run.results)] == ["regression"] * 2
    kept = history().all(gpu="GPU-0")
    assert [each.run for each in kept] == [f"r{n}" for n in range(8)]
    assert [each.standing for each in kept] == [SOUND] * 6 + [FAULTY] * 2


def test_a_clock_that_is_behind_drops_no_failure() -> None:
    """A was submitted first and began last; its node says that it began before B, which passed."""
    passed = ran("B", NOW + 65, submitted=NOW + 60, started=NOW - 235)
    failed = ran("A", NOW + 270, wrong=[1], submitted=NOW, started=NOW - 30)

    conclude(passed, NOW + 130)
    conclude(failed, NOW + 340)
    assert [entry.node for entry in avoided()] == ["n1"]
    conclude(passed, NOW + 350)
    assert [entry.node for entry in avoided()] == ["n1"]
    concluded("C", NOW + 400)
    assert avoided() == []


def test_an_old_failure_that_is_judged_again_avoids_no_node_that_has_passed_since() -> None:
    """Its results were fetched anew; when they were first is known."""
    concluded("r1", NOW, wrong=[1])
    concluded("r2", NOW + 200)
    assert avoided() == []

    again = ran("r1", NOW, wrong=[1])
    later = save(replace(again.record, fetched_at=NOW + 900), {})
    assert later.record.times.over_at == NOW + 60
    assert conclude(later, NOW + 900).avoided == ()
    assert avoided() == []


@pytest.mark.parametrize(
    ("passed_at", "failed_at"), [(NOW, NOW - 24 * HOUR_S), (NOW + 24 * HOUR_S, NOW)]
)
def test_a_pass_of_the_future_answers_no_failure(passed_at: float, failed_at: float) -> None:
    """This machine's clock was ahead when the node passed, or is behind when it fails."""
    concluded("r1", passed_at)
    assert [entry.node for entry in concluded("r2", failed_at, wrong=[1]).avoided] == ["n1"]


def test_a_pass_answers_an_old_failure_also_where_the_history_cannot_be_read() -> None:
    """Kept runs say it."""
    concluded("r1", NOW, wrong=[1])
    concluded("r2", NOW + 200)
    make_unreadable()
    assert conclude(ran("r1", NOW, wrong=[1]), NOW + 900).avoided == ()
    assert avoided() == []


@pytest.mark.parametrize(
    "odd", ["value = 'abc'", "time = 'yesterday'", "value = 9e999", "value = 1e308"]
)
def test_a_damaged_row_of_the_history_costs_no_verdict(odd: str) -> None:
    """SQLite takes a text for a number too: the history is then as one that cannot be read."""
    for number in range(6):
        concluded(f"r{number}", NOW + 200 * number)
    with closing(sqlite3.connect(acceptance_dir() / "history.sqlite")) as database:
        database.execute(f"UPDATE measurements SET {odd} WHERE rowid = 3")
        database.commit()

    told = concluded("bad", NOW + 2000, wrong=[1])
    assert exit_code(told.run.results, strict=False, skip=0) == 1
    assert [entry.node for entry in avoided()] == ["n1"]
    assert "its row 3 is damaged" in told.notes[0]


def test_a_job_that_was_requeued_has_failed_anew() -> None:
    concluded("r1", NOW, wrong=[1])
    concluded("r2", NOW + 200)

    once = ran("r1", NOW, wrong=[1]).record
    restarted = save(replace(once, restart=1, fetched_at=NOW + 900), {})
    assert restarted.record.times.over_at == NOW + 900


def make_unreadable() -> None:
    path = acceptance_dir() / "history.sqlite"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"no database " * 99)


def make_full() -> None:
    """It can be read, and takes nothing more."""
    history().add(())
    full = "BEFORE INSERT ON measurements BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    with closing(sqlite3.connect(acceptance_dir() / "history.sqlite")) as database:
        database.execute(f"CREATE TRIGGER full {full}")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (make_unreadable, "judged without the history, and not added to it: "),
        (make_full, "not added to the history: "),
    ],
)
def test_without_the_history_a_run_is_judged_all_the_same(
    broken: Callable[[], None], said: str
) -> None:
    """Its nodes are avoided, and none is good again: one that is slower shows nowhere else."""
    broken()
    told = concluded("r1", NOW, wrong=[1])

    assert exit_code(told.run.results, strict=False, skip=0) == 1
    assert [entry.node for entry in avoided()] == ["n1"]
    assert told.notes[0].startswith(said)
    assert "rv accept run --resume r1, once that is mended" in told.notes[0]
    assert told.notes[1].startswith("n1 failed acceptance")
    assert exit_code(concluded("r2", NOW + 200).run.results, strict=False, skip=0) == 0
    assert [entry.node for entry in avoided()] == ["n1"]
    (acceptance_dir() / "history.sqlite").unlink()
    concluded("r3", NOW + 400)
    assert avoided() == []


def test_who_avoids_nothing_is_told_of_nothing_that_is_avoided() -> None:
    """`--avoid-days 0`."""
    told = conclude(ran("r1", NOW, wrong=[1]), NOW + 60, avoid_days=0)
    assert (told.avoided, told.notes, avoided()) == ((), (), [])


def test_the_kept_runs_are_read_once_for_all_nodes_that_are_bad(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be thousands of them."""
    run = ran("r1", NOW, wrong=[1])
    bad = [replace(each, hostname=f"n{n}") for each in run.results for n in range(5)]
    tests = [tuple(replace(test, host="") for test in each.tests) for each in bad]
    bad = [replace(each, tests=own) for each, own in zip(bad, tests, strict=True)]
    read: list[int] = []
    monkeypatch.setattr(run_module, "records", lambda: (read.append(1), records())[1])

    assert len(conclude(replace(run, results=tuple(bad)), NOW + 60).avoided) == 5
    assert len(read) == 1


def test_runs_are_compared_by_their_verdicts_as_judged() -> None:
    """A payload passed that was slower than before."""
    for number in range(6):
        concluded(f"run{number}", NOW + 200 * number)
    concluded("run6", NOW + 1200, rate=400.0)

    turns = compare_runs("run5", "run6").turns
    assert [(each.before, each.after) for each in turns] == [(Status.PASS, Status.FAIL)] * 2


def test_a_sweep_whose_payloads_were_all_skipped_ends_with_the_code_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a run does."""
    skipped = ran("r1", NOW)
    tests = tuple(replace(test, status=Status.SKIP) for test in skipped.results[0].tests)
    results = (replace(skipped.results[0], tests=tests, status=Status.SKIP),)
    ended = Conclusion(run=replace(skipped, results=results), avoided=(), notes=())
    cluster = SimpleNamespace(key="c", label="c", take_snapshot=lambda: None)
    here = SimpleNamespace(cluster=cluster, workdir="/", environ={})
    begun = Sweep(sweep_id="sweep-1", cluster="c", profile="smoke", payloads=(), begun_at=NOW)
    monkeypatch.setattr(accept.caller, "current_caller", lambda _: here)
    monkeypatch.setattr(accept, "build_request", lambda *_: None)
    monkeypatch.setattr(accept, "with_environment", lambda *_: None)
    monkeypatch.setattr(accept, "job_environment", lambda *_: {})
    monkeypatch.setattr(sweeps, "begin", lambda *_: begun)
    monkeypatch.setattr(sweeps.Sweeper, "conclude", lambda *_: ended)

    for asked, code in (([], 0), (["--skip-exit-code", "77"], 77)):
        done = CliRunner().invoke(accept.app, ["sweep", "check", *asked])
        assert done.exit_code == code, done.output


@pytest.mark.parametrize(
    "option", ["--gpu=4", "--mig", "--fanout=each", "--checkpoint", "--retry=2"]
)
def test_a_sweep_has_no_option_that_it_would_ignore(option: str) -> None:
    """Each node has one job, of all its GPUs: who asks for four would believe to get them."""
    done = CliRunner().invoke(accept.app, ["sweep", option])
    assert done.exit_code == 2
    assert f"No such option: {option.partition('=')[0]}" in done.output


@pytest.mark.parametrize("command", ["run", "sweep"])
@pytest.mark.parametrize("code", ["1", "5", "-1", "x", "077", ""])
def test_no_other_code_can_be_asked_for(command: str, code: str) -> None:
    """With 1 a run in which nothing was tested would look like one that failed."""
    done = CliRunner().invoke(accept.app, [command, f"--skip-exit-code={code}", "check"])
    assert done.exit_code == 2
    assert f"{code!r} is neither 0 nor 77" in done.output


def test_a_file_of_bad_nodes_that_cannot_be_written_hides_no_verdict() -> None:
    """As on a full disk, or where the folder is another user's."""
    acceptance_dir().mkdir(parents=True)
    (acceptance_dir() / "avoid").write_text("no folder")

    told = concluded("r1", NOW, wrong=[1])

    assert exit_code(told.run.results, strict=False, skip=0) == 1
    assert told.notes[-1].startswith("cannot remember bad nodes: ")
    assert "nothing is remembered of n1: rv accept run --resume r1, once that is" in told.notes[-1]


def test_references_that_break_while_the_job_runs_are_told_with_how_to_judge_it_later(
    tmp_path: Path,
) -> None:
    """The results are kept: nobody has to measure again."""
    folder = tmp_path / "rv"
    folder.mkdir(exist_ok=True)
    (folder / "baselines.yaml").write_text("references: [")

    with pytest.raises(RvError, match=r"baselines\.yaml") as refused:
        conclude(ran("race0001", NOW), NOW)
    assert "rv accept run --resume race0001, once that is mended" in refused.value.hint


def test_a_damaged_file_of_avoided_nodes_is_told_where_it_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its nodes are tried again from then on, and nobody else would say why."""
    path = acceptance_file("avoid", "c", ".json")
    path.parent.mkdir(parents=True)
    path.write_text("{")
    here = SimpleNamespace(cluster=SimpleNamespace(key="c", label="c"), now_s=NOW)
    monkeypatch.setattr("rv.cli.bad_nodes.caller.current_caller", lambda _: here)
    done = CliRunner().invoke(accept.app, ["repaired", "n1"])
    assert "cannot be read: no node is avoided" in str(done.exception)

    told = concluded("r1", NOW, wrong=[1])
    assert f"{path} cannot be read" in told.notes[0]
    assert told.notes[0].endswith("it is kept as .broken, and replaced")
    shown = CliRunner().invoke(accept.app, ["avoid"]).stderr
    assert f"{path.with_suffix('.broken')} could not be read when it was replaced" in shown
    assert concluded("r2", NOW + 200, wrong=[1]).notes[0].startswith("n1 ")


def test_runs_of_two_clusters_are_no_runs_of_one() -> None:
    """A sound node of one would be shown with the failure of its namesake in the other."""
    ran("r1", NOW)
    ran("r2", NOW + 60, wrong=[1])
    path = acceptance_dir() / "runs" / "r2" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"cluster": "d"}))

    for call in (
        lambda: compare_runs("r1", "r2"),
        lambda: report_on(["r1", "r2"], acceptance_dir(), "", datetime.now(UTC)),
    ):
        with pytest.raises(RvError, match="of several clusters: r1 of c, r2 of d"):
            call()
