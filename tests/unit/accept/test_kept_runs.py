"""Which of the runs and sweeps that are kept here is meant: by name, and as the last."""

import errno
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rv.accept import kept_records
from rv.accept.kept_records import damaged, note_begun, records, sweeps_by_race
from rv.accept.results import Status
from rv.accept.runs import NodeState, RunRecord, Stage, Sweep
from rv.accept.store import (
    find_run,
    load,
    load_sweep,
    results_of,
    save,
    save_sweep,
)
from rv.bundle import acceptance_dir
from rv.errors import RvError

NOW = 1_700_000_000.0


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def keep(race: str, begun: float, written: float) -> None:
    """Keep a run of n1 that was submitted then, and whose file is of another time."""
    test = {"name": "t", "status": "PASS"}
    info = {"test_type": "check", "timestamp": "2027-01-15T08:00:00Z", "slurm": {"job_id": "7"}}
    document = {
        "schema": "rv.accept/1", "test_info": info, "tests": [test],
        "summary": {"status": "PASS", "exit_code": 0},
    }  # fmt: skip
    files = {
        "check/node0.begun": b"n1",
        "check/node0/check_result.json": json.dumps(document).encode(),
        "check/node0.exit": b"0",
    }
    record = RunRecord(
        race_id=race, cluster="c", payloads=("check",), job_id=7, nodes=("n1",), submitted_at=begun
    )
    save(record, files)
    os.utime(acceptance_dir() / "runs" / race / "run.json", (written, written))


def keep_sweep(name: str, begun: float, written: float, race: str = "") -> Sweep:
    nodes = (NodeState(node="n1", stage=Stage.OVER, race=race),)
    sweep = Sweep(
        sweep_id=name,
        cluster="c",
        profile="smoke",
        payloads=("check",),
        begun_at=begun,
        nodes=nodes,
    )
    save_sweep(sweep)
    os.utime(acceptance_dir() / "sweeps" / f"{name}.json", (written, written))
    return sweep


def test_a_run_is_opened_by_its_name_whatever_else_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep of a thousand nodes looks through the kept runs for none of them."""
    keep("abc", NOW, NOW)
    keep("abcdefgh", NOW + 1, NOW + 1)
    with pytest.raises(RvError, match="fits several runs"):
        load("ab")
    sweep = keep_sweep("sweep-1", NOW, NOW, race="abcdefgh")

    monkeypatch.setattr(kept_records, "_listed", lambda _: pytest.fail("all kept runs were listed"))
    assert load("abc").record.race_id == "abc"
    assert [result.status for result in results_of(sweep).results] == [Status.PASS]


def test_the_last_run_is_the_one_begun_last_and_then_the_one_written_last() -> None:
    """An old one may be fetched and judged again."""
    keep("newer000", NOW, NOW + 5)
    keep("older000", NOW - 900, NOW + 99)
    assert find_run("last").record.race_id == "newer000"

    keep("tied0000", NOW, NOW + 6)
    assert [record.race_id for record in records()] == ["tied0000", "newer000", "older000"]


def test_the_last_run_is_the_whole_sweep_that_it_was_of() -> None:
    """Also where another sweep was resumed, and so written, later."""
    keep("older000", NOW - 900, NOW)
    keep("newer000", NOW, NOW)
    keep_sweep("sweep-1", NOW - 1000, NOW + 99, race="older000")
    keep_sweep("sweep-2", NOW - 100, NOW, race="newer000")

    assert find_run("last").record.race_id == "sweep-2"
    assert load_sweep("last", "c").sweep_id == "sweep-2"
    assert {race: sweep.sweep_id for race, sweep in sweeps_by_race().items()} == {
        "older000": "sweep-1",
        "newer000": "sweep-2",
    }


def test_a_sweep_is_that_of_its_whole_name_before_others_that_begin_so() -> None:
    """A file that is broken hides no other."""
    keep_sweep("sweep-1", NOW, NOW)
    keep_sweep("sweep-12", NOW + 60, NOW + 60)
    broken = acceptance_dir() / "sweeps" / "sweep-13.json"
    broken.write_text("{")

    assert load_sweep("sweep-1", "c").sweep_id == "sweep-1"
    with pytest.raises(RvError, match=r"sweep-13\.json cannot be read"):
        load_sweep("last", "c")  # it may be the last
    os.utime(broken, (NOW, NOW))
    assert load_sweep("last", "c").sweep_id == "sweep-12"
    assert find_run("sweep-1").record.race_id == "sweep-1"
    (acceptance_dir() / "sweeps" / "sweep-1.json").write_text("{")
    for name in ("sweep-1", "sweep-13"):
        with pytest.raises(RvError, match=rf"{name}\.json cannot be read"):
            load_sweep(name, "c")


def test_a_run_that_is_begun_and_has_no_verdict_is_the_last() -> None:
    """An older one's PASS would be taken for its; so it would where half of it was kept."""
    keep("older000", NOW, NOW)
    note_begun("newer000")
    for _ in range(2):
        for name in ("last", "newer000", "newer"):
            with pytest.raises(RvError, match="was begun here, and has no verdict yet") as raised:
                find_run(name)
            assert raised.value.hint.startswith("rv accept run --resume newer000 judges it; ")
        (acceptance_dir() / "runs" / "newer000" / "results").mkdir(exist_ok=True)
    assert [record.race_id for record in records()] == ["older000"]

    keep("newer000", NOW + 1, NOW + 1)
    assert find_run("last").record.race_id == "newer000"


def test_none_is_the_last_where_a_clock_was_wrong() -> None:
    """One of tomorrow would be the last until then, whatever fails today."""
    keep("today000", NOW, NOW)
    keep("tomorrow", time.time() + 86400, NOW)
    keep_sweep("sweep-1", time.time() + 86400, NOW)
    for find in (find_run, lambda name: load_sweep(name, "c")):
        with pytest.raises(RvError, match="was begun in the future, by this machine's clock"):
            find("last")
    assert find_run("today000").record.race_id == "today000"


def test_a_sweep_takes_no_run_of_another_node() -> None:
    """Its file may be damaged, or of another time: what another node reported says nothing."""
    keep("abcdefgh", NOW, NOW)
    sweep = keep_sweep("sweep-1", NOW, NOW, race="abcdefgh")
    (result,) = results_of(replace(sweep, nodes=(replace(sweep.nodes[0], node="n2"),))).results
    assert (result.hostname, result.status) == ("n2", Status.ERROR)
    assert result.reason == "no result reported: run abcdefgh was on n1"


@pytest.mark.parametrize("text", ['{"race_id": 3}', "", '{"fetched_at": 1' + "0" * 400 + "}"])
def test_each_record_that_is_damaged_is_told(text: str) -> None:
    """A list without it would look whole."""
    keep("abcdefgh", NOW, NOW)
    keep_sweep("sweep-1", NOW, NOW)
    assert damaged() == []
    for name in ("runs/abcdefgh/run.json", "sweeps/sweep-1.json"):
        (acceptance_dir() / name).write_text(text)
    assert len(damaged()) == 2
    for problem, name in zip(damaged(), ("abcdefgh/run.json", "sweep-1.json"), strict=True):
        assert f"{name} cannot be read: " in problem


def test_a_folder_that_nobody_may_read_is_no_fault_of_rvs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Root may read all, so that the refusal is made here."""
    keep("abcdefgh", NOW, NOW)

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    monkeypatch.setattr("rv.accept.kept_records.read_regular", lambda path, _: refuse(path))
    with pytest.raises(RvError, match=r"abcdefgh/run.json cannot be read: Permission denied"):
        find_run("abcdefgh")
    monkeypatch.setattr(Path, "iterdir", refuse)
    for find in (lambda: find_run("last"), records, damaged):
        with pytest.raises(RvError, match="cannot be read: Permission denied"):
            find()
