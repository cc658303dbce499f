"""Draining a node: its name, the line for scontrol, and the reason from its newest failure."""

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rv import avoided_nodes
from rv.accept import failures
from rv.accept.failures import newest_failure
from rv.accept.kept_records import records
from rv.accept.runs import NodeState, RunRecord, Stage, Sweep
from rv.accept.store import find_run, save, save_sweep
from rv.avoided_nodes import AvoidedNode
from rv.errors import RvError
from rv.workflow.drain import drain_line, node_to_drain
from tests.unit.planner.clusters import campus

NOW = 1_700_000_000.0


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "rv" / "accept"


NODES = campus().nodes


@pytest.mark.parametrize(
    "name", ["ALL", "all", "", "zz", "*", "a[1-2]", "a1,a2", "a1 a2", "a1;id", "-a1", "a1\n"]
)
def test_only_one_node_that_there_is_can_be_meant(name: str) -> None:
    """`scontrol update NodeName=ALL` drains a cluster, also one with a node of that name."""
    named_so = replace(NODES[0], name=name)
    with pytest.raises(RvError, match="there is no node"):
        node_to_drain(name, NODES)
    if name != "zz":
        with pytest.raises(RvError, match="there is no node"):
            node_to_drain(name, [*NODES, named_so])
    assert node_to_drain(NODES[0].name, NODES) is NODES[0]


def test_the_line_is_five_words_whatever_the_reason_holds() -> None:
    line = drain_line("a1", "rv r1: 3 wrong; `id` $(id) \"x\" 'y'\n\x1b[31m" + "z" * 999)
    words = shlex.split(line)
    assert words[:4] == ["scontrol", "update", "NodeName=a1", "State=DRAIN"]
    assert words[4].startswith("Reason=rv r1: 3 wrong; id (id) x y [31mzz")
    assert len(words) == 5
    assert len(words[4]) <= len("Reason=") + 240


def check_file(node: str, *, is_faulty: bool) -> bytes:
    """What `check` writes of a node with one GPU."""
    test: dict[str, Any] = {
        "name": "matmul.bf16",
        "status": "PASS",
        "device": "cuda:0",
        "host": node,
    }
    test["metrics"] = [{"name": "tflops", "value": 700.0, "unit": "TFLOPS", "dir": "higher"}]
    if is_faulty:
        test |= {"status": "FAIL", "code": "wrong_result", "reason": "3 wrong elements"}
    info = {"test_type": "check", "timestamp": "2027-01-15T08:00:00Z", "slurm": {"job_id": "7"}}
    document = {
        "schema": "rv.accept/1",
        "test_info": info | {"hostname": node},
        "devices": [{"index": 0, "name": "H200", "uuid": f"GPU-of-{node}"}],
        "tests": [test],
        "summary": {"status": test["status"], "exit_code": int(is_faulty)},
    }
    return json.dumps(document).encode()


def keep(
    race: str,
    nodes: tuple[str, ...],
    age_s: float,
    data: Path,
    faulty: str = "",
    begun: float = 0.0,
) -> None:
    """Keep a run of check whose nodes passed, but for one; its file is of some seconds ago."""
    record = RunRecord(
        race_id=race, cluster="c", nodes=nodes, payloads=("check",), job_id=7, submitted_at=begun
    )
    files = {}
    for number, node in enumerate(nodes):
        made = check_file(node, is_faulty=node == faulty)
        files[f"check/node{number}/check_result.json"] = made
        files[f"check/node{number}.begun"] = node.encode()
        files[f"check/node{number}.exit"] = b"1" if node == faulty else b"0"
    save(record, files)
    os.utime(data / "runs" / race / "run.json", (NOW - age_s, NOW - age_s))


def test_the_newest_failure_is_named_and_what_speaks_against_it(data: Path) -> None:
    keep("older000", ("n1",), 300, data, faulty="n1")
    keep("newer000", ("n1", "n2"), 200, data, faulty="n1")
    keep("other000", ("n2",), 50, data, faulty="n2")
    failure = newest_failure("n1", "c", NOW)
    assert failure.reason == (
        "rv newer000: check matmul.bf16 wrong_result GPU-of-n1: 3 wrong elements"
    )
    assert failure.notes == ()

    keep("fine0000", ("n1",), 10, data)
    assert newest_failure("n1", "c", NOW).notes == ("n1 passed since, in run fine0000",)


def test_the_newest_run_is_the_one_that_was_begun_last(data: Path) -> None:
    """Not that whose files were written last: an old one may be judged again."""
    keep("oldest00", ("n1",), 10, data, faulty="n1", begun=NOW - 900)
    keep("newer000", ("n1",), 300, data, faulty="n1", begun=NOW - 400)
    keep("sound000", ("n1",), 200, data, begun=NOW - 300)

    failure = newest_failure("n1", "c", NOW)
    assert failure.run == "newer000"
    assert failure.notes == ("n1 passed since, in run sound000",)
    assert [record.race_id for record in records()] == ["sound000", "newer000", "oldest00"]
    assert find_run("last").record.race_id == "sound000"


def test_another_payloads_pass_says_nothing_of_a_failure(data: Path) -> None:
    """It was not asked again."""
    keep("faulty00", ("n1",), 300, data, faulty="n1")
    record = RunRecord(
        race_id="fine0000", cluster="c", nodes=("n1",), payloads=("membw",), job_id=7
    )
    made = check_file("n1", is_faulty=False).replace(b'"check"', b'"membw"')
    files = {"membw/node0/membw_result.json": made, "membw/node0.begun": b"n1"}
    save(record, {**files, "membw/node0.exit": b"0"})

    assert newest_failure("n1", "c", NOW).notes == ()


def test_a_run_without_the_test_that_failed_is_no_pass_since(data: Path) -> None:
    """`check --dcgm 3` failed, and a plain `check` passed."""
    keep("faulty00", ("n1",), 300, data, faulty="n1")
    kept = next((data / "runs" / "faulty00").rglob("check_result.json"))
    kept.write_bytes(kept.read_bytes().replace(b"matmul.bf16", b"dcgm"))
    keep("fine0000", ("n1",), 10, data)

    failure = newest_failure("n1", "c", NOW)
    assert failure.reason.startswith("rv faulty00: check dcgm wrong_result")
    assert failure.notes == ()


def test_a_sweeps_run_is_judged_with_the_whole_sweep(data: Path) -> None:
    keep("swept000", ("n1",), 10, data, faulty="n1")
    nodes = (NodeState(node="n1", stage=Stage.OVER, race="swept000"),)
    save_sweep(
        Sweep(sweep_id="sweep-1", cluster="c", profile="", payloads=(), begun_at=1, nodes=nodes)
    )
    assert newest_failure("n1", "c", NOW).run == "sweep-1"


def test_an_avoided_node_has_its_reason_and_a_sound_one_none() -> None:
    bad = AvoidedNode(node="n1", since=NOW, until=NOW + 9, run="r1", evidence=("check x: 3 wrong",))
    avoided_nodes.update("c", (bad,), (), NOW)
    assert newest_failure("n1", "c", NOW).reason == "rv r1: check x: 3 wrong"
    with pytest.raises(RvError, match="nothing that is kept here failed on n2"):
        newest_failure("n2", "c", NOW)
    with pytest.raises(RvError, match="failed on n1"):
        newest_failure("n1", "another", NOW)


def test_a_run_that_broke_off_is_no_pass_and_each_sweep_is_judged_once(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs of nodes are many races of one sweep."""
    keep("faulty00", ("n1",), 300, data, faulty="n1")
    states = []
    for number in range(5):
        race = f"pair000{number}"
        record = RunRecord(race_id=race, cluster="c", nodes=("n1",), payloads=("check",))
        save(record, {})
        os.utime(data / "runs" / race / "run.json", (NOW, NOW))
        states.append(NodeState(node=f"n{number}", stage=Stage.OVER, race=race))
    save_sweep(
        Sweep(sweep_id="sweep-1", cluster="c", profile="", payloads=(), begun_at=1,
              nodes=tuple(states))
    )  # fmt: skip
    seen: list[str] = []
    real = failures.judged
    monkeypatch.setattr(
        failures, "judged", lambda run: (seen.append(run.record.race_id), real(run))[1]
    )

    assert newest_failure("n1", "c", NOW).notes == ()
    assert seen == ["sweep-1", "faulty00"]
