"""Sweeps and kept runs: which nodes, whose turn, what is on disk, and what is found again."""

import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rv.accept.kept_files import held
from rv.accept.kept_records import records
from rv.accept.payload_command import Profile
from rv.accept.results import Status
from rv.accept.runs import NodeState, Run, RunRecord, Stage, Sweep
from rv.accept.store import (
    find_run,
    is_whole,
    load,
    load_sweep,
    results_of,
    save,
    save_sweep,
)
from rv.accept.sweep import Sweeper, SweepOptions, begin, choose_nodes, is_mig, next_nodes
from rv.bundle import acceptance_dir
from rv.errors import ErrorKind, RvError
from rv.models.request import Request
from rv.models.snapshot import GpuGroup, Node


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def node(name: str, state: str = "IDLE", gpus: int = 4) -> Node:
    groups = (GpuGroup(type="a100", total=gpus, used=0),) if gpus else ()
    fields: dict[str, Any] = {"cpus": 8, "cpus_used": 0, "memory_mib": 1, "memory_used_mib": 0}
    return Node(name=name, states=frozenset({state}), gpus=groups, **fields)


NODES = [node("a1"), node("a2", "MIXED"), node("b1"), node("c1", gpus=0)]
GPU = {"gpu": ["a1", "a2"]}


@pytest.mark.parametrize(
    ("names", "partitions", "states", "expected"),
    [
        ([], {}, [], ["a1", "a2", "b1"]),
        ([], GPU, [], ["a1", "a2"]),
        ([], {}, ["idle"], ["a1", "b1"]),
        ([], GPU, ["idle"], ["a1"]),
        (["b1", "a1", "b1"], {}, [], ["b1", "a1"]),
        (["c1"], {}, [], ["c1"]),
    ],
)
def test_nodes_are_chosen_by_name_partition_and_state(
    names: list[str], partitions: dict[str, list[str]], states: list[str], expected: list[str]
) -> None:
    """Unless told, those with GPUs; each once, in the order named."""
    assert [n.name for n in choose_nodes(NODES, names, partitions, states)] == expected


def test_only_nodes_of_slices_alone_are_mig() -> None:
    """Beside a whole GPU, the whole ones are swept."""
    slices = GpuGroup(type="1g.10gb", total=7, used=0)

    assert is_mig(replace(node("m"), gpus=(slices,)))
    assert not is_mig(replace(node("m"), gpus=(slices, *node("a").gpus)))
    assert not is_mig(node("c1", gpus=0))


def test_unknown_nodes_and_empty_sweeps_are_refused() -> None:
    """Before anything is submitted."""
    with pytest.raises(RvError, match="no node 'zz'"):
        choose_nodes(NODES, ["a1", "zz"], {}, [])
    with pytest.raises(RvError, match="no node is to be swept"):
        choose_nodes(NODES, [], {}, ["DRAIN"])


def swept(*stages: Stage, **more: Any) -> Sweep:
    states = [NodeState(node=f"n{i}", stage=s, race=f"r{i}") for i, s in enumerate(stages)]
    fields: dict[str, Any] = {"sweep_id": "sweep-1", "cluster": "c", "profile": "smoke"}
    return Sweep(
        **{**fields, "payloads": ("check",), "begun_at": 1.0, "nodes": tuple(states), **more}
    )


W, S, O = Stage.WAITING, Stage.SENT, Stage.OVER  # noqa: E741 - over


def test_so_many_jobs_at_once_and_no_more() -> None:
    """As one ends the next goes."""
    assert [n.node for n in next_nodes(swept(S, W, W, O, W), 3)] == ["n1", "n2"]
    assert next_nodes(swept(S, S, W), 2) == ()


def test_a_sweep_is_found_again_as_it_was() -> None:
    """By id, by the beginning of one, as the last; of its own cluster only."""
    first, second = swept(W, S), swept(O, sweep_id="sweep-2")
    save_sweep(first)
    save_sweep(second)

    assert load_sweep("sweep-1", "c") == first
    assert load_sweep("last", "c") in (first, second)
    with pytest.raises(RvError, match="no sweep 'last'"):
        load_sweep("last", "another")


def test_a_sweep_is_run_by_one_process_alone() -> None:
    """Two would write over each other which job each node has."""
    sweep = swept(Stage.OVER, Stage.LEFT_OUT)
    save_sweep(sweep)
    sweeper = object.__new__(Sweeper)  # nothing is left of it to run on any cluster
    folder = acceptance_dir() / "sweeps"

    with (
        held(folder / f"{sweep.sweep_id}.lock", "it"),
        pytest.raises(RvError, match="another rv runs sweep") as refused,
    ):
        sweeper.run(sweep)

    assert "--resume" in refused.value.hint


def test_a_broken_sweep_is_named() -> None:
    """One line."""
    save_sweep(swept(W))
    next(acceptance_dir().rglob("sweep-1.json")).write_text("{")

    with pytest.raises(RvError, match=r"sweep-1\.json cannot be read"):
        load_sweep("sweep-1", "c")


RECORD = RunRecord(race_id="abc12345", cluster="c", payloads=("check",), job_id=7, nodes=("n1",))


def files(status: str = "PASS") -> dict[str, bytes]:
    test = {"name": "t", "status": status}
    info = {"test_type": "check", "timestamp": "2027-01-15T08:00:00Z", "slurm": {"job_id": "7"}}
    summary = {"status": status, "exit_code": 0}
    document = {"schema": "rv.accept/1", "test_info": info, "tests": [test], "summary": summary}
    return {
        "check/node0.begun": b"n1",
        "check/node0/check_result.json": json.dumps(document).encode(),
        "check/node0.exit": b"0",
    }


def test_a_run_is_kept_and_found_by_id_path_and_as_the_last() -> None:
    """As it was fetched."""
    made = save(RECORD, files())

    assert find_run("last") == load("abc12345")
    for word in ("abc12345", "abc", str(acceptance_dir() / "runs" / "abc12345")):
        assert load(word) == made
    assert [record.race_id for record in records()] == ["abc12345"]
    with pytest.raises(RvError, match="is no run here"):
        load("zzz")


def test_a_run_fetched_again_is_what_it_is_now() -> None:
    """A later fetch replaces the files; what the cluster has no more stays."""
    save(RECORD, {})
    save(RECORD, files("FAIL"))

    assert [result.status for result in load("abc").results] == [Status.FAIL]
    save(RECORD, files("PASS"))
    assert [result.status for result in load("abc").results] == [Status.PASS]
    assert [result.status for result in save(RECORD, {}).results] == [Status.PASS]
    assert [result.status for result in load("abc").results] == [Status.PASS]


def test_a_file_that_was_damaged_since_replaces_no_sound_one() -> None:
    """On the cluster's disk; what was kept of it is judged, then and later."""
    save(RECORD, files())
    cut = {name: data[:40] if name.endswith(".json") else data for name, data in files().items()}

    assert [result.status for result in save(RECORD, cut).results] == [Status.PASS]
    assert [result.status for result in load("abc").results] == [Status.PASS]


@pytest.mark.parametrize(
    ("name", "data"), [("check/node0.exit", b""), ("check/node0/check_result.json", b"{}")]
)
def test_a_file_that_was_emptied_since_replaces_no_sound_one(name: str, data: bytes) -> None:
    """A full disk leaves such ones."""
    save(RECORD, files())
    assert [result.status for result in save(RECORD, {**files(), name: data}).results] == [
        Status.PASS
    ]


def test_what_lies_in_the_current_folder_is_not_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person may stand where races have their folders, or beside somebody's results."""
    save(RECORD, files("FAIL"))
    sweep = swept(Stage.OVER)
    sweep = replace(sweep, nodes=(NodeState(node="n1", stage=Stage.OVER, race=RECORD.race_id),))
    save_sweep(sweep)
    for name in (RECORD.race_id, sweep.sweep_id):
        (tmp_path / name).mkdir()
        (tmp_path / name / "check_result.json").write_bytes(
            files()["check/node0/check_result.json"]
        )
    monkeypatch.chdir(tmp_path)

    found = [load(RECORD.race_id), results_of(sweep), find_run(sweep.sweep_id), find_run("last")]
    assert [[result.status for result in run.results] for run in found] == [[Status.FAIL]] * 4


def test_the_beginning_of_several_sweeps_is_refused() -> None:
    """An id is written whole, or so much of it that one alone is meant."""
    for name in ("sweep-1a", "sweep-1b"):
        save_sweep(replace(swept(Stage.OVER), sweep_id=name))
    assert load_sweep("sweep-1b", "c").sweep_id == "sweep-1b"
    for name, problem in (("sweep-1", "fits several sweeps"), ("", "no sweep was named")):
        with pytest.raises(RvError, match=problem):
            load_sweep(name, "c")


def damage(path: Path, written_at: float) -> None:
    """Cut a kept file off, as if it had been written then."""
    path.write_text(path.read_text()[:100])
    os.utime(path, (written_at, written_at))


def test_a_record_that_is_damaged_hides_no_other_run() -> None:
    """By its name it says how to mend it; an older one in its place would be taken for the last."""
    save(RECORD, files())
    save(replace(RECORD, race_id="later000"), files())
    kept = acceptance_dir() / "runs" / "later000" / "run.json"
    damage(kept, RECORD.submitted_at + 60)

    assert find_run("abc12345").record.race_id == "abc12345"
    for name in ("last", "later000"):
        with pytest.raises(RvError, match="cannot be read") as raised:
            find_run(name)
        assert "rv accept run --resume later000 fetches it again" in raised.value.hint
    damage(kept, RECORD.submitted_at - 60)
    assert find_run("last").record.race_id == "abc12345"


def test_a_sweep_that_is_damaged_is_not_passed_over_as_the_last() -> None:
    save(RECORD, files())
    save_sweep(swept())
    damage(acceptance_dir() / "sweeps" / "sweep-1.json", RECORD.submitted_at + 60)

    with pytest.raises(RvError, match=r"sweep-1\.json cannot be read"):
        find_run("last")


def test_two_that_keep_one_run_at_once_harm_nothing() -> None:
    """Two clients may judge it: each has all of it at any moment, and so has who reads it."""
    save(RECORD, files())

    with ThreadPoolExecutor(8) as clients:
        made = list(clients.map(lambda _: save(RECORD, files()), range(200)))

    assert {tuple(result.status for result in run.results) for run in made} == {(Status.PASS,)}
    assert load("abc") == made[0]
    folder = acceptance_dir() / "runs" / "abc12345"
    assert not [path for path in folder.rglob("*") if path.name.startswith(".")]


def test_results_of_another_program_are_a_run_too(tmp_path: Path) -> None:
    """A folder, or one file; and one that has none is an error."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "ddp_tests_result.json").write_text('{"world": 2, "ok": true}')

    assert load(str(folder)).results == load(str(folder / "ddp_tests_result.json")).results
    (folder / "ddp_tests_result.json").write_text("{")
    with pytest.raises(RvError, match="holds no result"):
        load(str(folder))


@pytest.mark.parametrize("summary", [{"status": "PASS"}, {"status": "PASS", "exit_code": 1}])
def test_a_pass_without_its_exit_code_is_none_in_a_folder_either(
    tmp_path: Path, summary: dict[str, object]
) -> None:
    """Nor is what says of itself that it is a result, and was cut short."""
    tests = [{"name": "a", "status": "PASS"}]
    good = {
        "schema": "rv.accept/1",
        "test_info": {"test_type": "train", "hostname": "n1"},
        "tests": tests,
        "summary": {"status": "PASS", "exit_code": 0},
    }
    (tmp_path / "good.json").write_text(json.dumps(good))
    assert [result.status for result in load(str(tmp_path)).results] == [Status.PASS]

    (tmp_path / "bad.json").write_text(json.dumps({**good, "summary": summary}))
    (tmp_path / "cut.json").write_text(json.dumps(good)[:-9])
    (tmp_path / "train_result.json").write_text("")
    (tmp_path / "other.json").write_text("{")

    run = load(str(tmp_path))
    told = [(result.status, result.tests[-1].code) for result in run.results]
    assert told == [
        (Status.ERROR, "result_invalid"),
        (Status.PASS, ""),
        (Status.ERROR, "result_unreadable"),
        (Status.ERROR, "result_unreadable"),
    ]
    assert len(run.faults) == 3


def test_a_sweep_is_one_run_with_a_row_for_each_node() -> None:
    """What reported; what did not, with its reason; and what was lost on this machine."""
    save(RECORD, files())
    nodes = (
        NodeState(node="n1", stage=O, race="abc12345"),
        NodeState(node="n2", stage=Stage.LEFT_OUT, why="it is drained"),
        NodeState(node="n3", stage=O, race="gone0000"),
        NodeState(node="n4", stage=S, race="abc12345"),
    )
    save_sweep(replace(swept(), nodes=nodes))

    run = find_run("sweep-1")

    assert [(r.hostname, r.status) for r in run.results] == [
        ("n1", Status.PASS), ("n2", Status.ERROR), ("n3", Status.ERROR), ("n4", Status.ERROR),
    ]  # fmt: skip
    assert run.results[1].reason == "no result reported: it is drained"
    assert all(r.reason.startswith("no result reported") for r in run.results[1:])
    assert find_run(str(acceptance_dir() / "sweeps" / "sweep-1.json")) == run
    assert find_run("sweep-") == run


def test_the_last_run_is_the_sweep_that_it_was_of() -> None:
    """A run of its own that came later is the last."""
    save(RECORD, files())
    save_sweep(replace(swept(), nodes=(NodeState(node="n1", stage=O, race="abc12345"),)))
    assert find_run("last").record.race_id == "sweep-1"

    save(replace(RECORD, race_id="later000", submitted_at=RECORD.submitted_at + 60), files())
    assert find_run("last").record.race_id == "later000"


def test_the_last_run_is_a_sweep_that_could_send_nothing() -> None:
    """An older run, with its PASS, is not what whoever just ran a sweep asks for."""
    save(RECORD, files())
    nothing = (NodeState(node="n1", stage=Stage.LEFT_OUT, why="the node is down"),)
    save_sweep(replace(swept(), nodes=nothing, begun_at=RECORD.submitted_at + 60))

    found = find_run("last")
    assert found.record.race_id == "sweep-1"
    assert [result.status for result in found.results] == [Status.ERROR]


def test_a_sweep_that_was_begun_before_a_run_and_ended_after_it_is_not_the_last() -> None:
    save(RECORD, files())
    save(replace(RECORD, race_id="ofsweep0", submitted_at=RECORD.submitted_at + 60), files())
    begun = replace(swept(), begun_at=RECORD.submitted_at - 60)
    save_sweep(replace(begun, nodes=(NodeState(node="n1", stage=O, race="ofsweep0"),)))

    assert find_run("last").record.race_id == RECORD.race_id


def test_a_link_to_nothing_among_the_sweeps_is_passed_over() -> None:
    save(RECORD, files())
    (acceptance_dir() / "sweeps").mkdir()
    (acceptance_dir() / "sweeps" / "sweep-dead.json").symlink_to("/nowhere")

    assert find_run("last").record.race_id == RECORD.race_id


@pytest.mark.parametrize("find", [find_run, load])
def test_no_name_is_no_run(find: Callable[[str], Run]) -> None:
    """An empty variable of a script would be the current folder, with everything below it."""
    with pytest.raises(RvError, match="'' is no run") as refused:
        find("")
    assert refused.value.kind is ErrorKind.USAGE


def test_the_ends_of_logs_are_kept_by_node_and_cannot_move_a_cursor() -> None:
    """Also those of a sweep's runs; a later fetch replaces them, where it brings any."""
    logs = {"node0.out": b"[ACCEPT] check\n\x1b[2Jcut \xff\n", "node7.out": b"nobody's"}
    save_sweep(replace(swept(), nodes=(NodeState(node="n1", stage=O, race="abc12345"),)))

    made = save(RECORD, files(), logs)
    assert made.logs == {"n1": "[ACCEPT] check\ncut \ufffd"}
    assert load("abc12345").logs == find_run("sweep-1").logs == made.logs
    save(RECORD, files())
    assert load("abc12345").logs == made.logs
    save(RECORD, files(), {"node0.out": b"later"})
    assert load("abc12345").logs == {"n1": "later"}


def test_a_sweep_of_pairs_whose_nodes_are_none_cannot_be_read() -> None:
    save_sweep(swept(W))
    path = acceptance_dir() / "sweeps" / "sweep-1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"is_of_pairs": True}))

    with pytest.raises(RvError, match="'n0' is no pair"):
        load_sweep("sweep-1", "c")


def test_a_node_that_was_named_and_has_no_partner_is_no_pass() -> None:
    """Who named it would take the silence for one; of all nodes, some may be alone."""
    four, eight = [node("a1"), node("a2")], node("b1", gpus=8)
    snapshot = SimpleNamespace(partitions=[], nodes=[*four, eight])
    answer = SimpleNamespace(stdout="")
    transport = SimpleNamespace(run=lambda *_, **__: answer)
    cluster = SimpleNamespace(key="c", transport=transport)
    options = SweepOptions(
        payloads=(), profile=Profile.SMOKE, base=Request(), environment={}, workdir="/",
        nodes=["a1", "b1", "a2"], by_pairs=True,
    )  # fmt: skip

    sweep = begin(options, cluster, snapshot)  # type: ignore[arg-type]
    assert [(n.node, n.stage) for n in sweep.nodes] == [("a1,a2", W), ("b1", Stage.LEFT_OUT)]
    assert load_sweep(sweep.sweep_id, "c") == sweep
    assert sweep.jobs == 1
    found = {each.hostname: each for each in results_of(sweep).results}
    assert found["b1"].status is Status.ERROR
    assert "no other of these nodes has as many GPUs of the same model" in found["b1"].reason
    every = begin(replace(options, nodes=()), cluster, snapshot)  # type: ignore[arg-type]
    assert [n.node for n in every.nodes] == ["a1,a2"]


def test_nodes_of_a_partition_that_there_is_not_are_no_nodes_that_are_left_out() -> None:
    options = SweepOptions(
        payloads=(),
        profile=Profile.SMOKE,
        base=Request(),
        environment={},
        workdir="",
        partitions=["gpus"],
    )
    snapshot = SimpleNamespace(partitions=[SimpleNamespace(name="gpu", nodes=("a1",))], nodes=NODES)

    with pytest.raises(RvError, match="no partition 'gpus'") as refused:
        begin(options, None, snapshot)  # type: ignore[arg-type]
    assert refused.value.hint == "one of: gpu"


@pytest.mark.parametrize(
    "data", [b"", b"{", b"{}", b'{"a": 1}', b"[1]", b'{"schema": "rv.accept/1"}']
)
def test_a_result_that_was_damaged_on_the_cluster_replaces_no_sound_one(data: bytes) -> None:
    """It is the evidence; one that can be read does, whatever it says."""
    name = "check/node0/check_result.json"
    save(RECORD, files())
    save(RECORD, files() | {name: data})
    is_result = b"schema" in data
    assert (load(RECORD.race_id).results[0].status is Status.PASS) is not is_result
    save(RECORD, files("FAIL"))
    assert load(RECORD.race_id).results[0].status is Status.FAIL


def test_results_that_are_damaged_here_are_not_whole() -> None:
    """A sweep that goes on fetches them again."""
    save(RECORD, files())
    assert is_whole(RECORD.race_id)

    results = acceptance_dir() / "runs" / RECORD.race_id / "results"
    next(results.rglob("check_result.json")).write_text("")
    assert not is_whole(RECORD.race_id)
    shutil.rmtree(results)
    assert not is_whole(RECORD.race_id)
