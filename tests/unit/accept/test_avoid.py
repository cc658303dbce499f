"""Nodes that failed acceptance are remembered, and the planner leaves them out with the reason."""

import errno
import json
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import pytest

from rv import avoided_nodes, files
from rv.accept.bad_nodes import admin_text, bad_nodes, cleared, still_accused
from rv.accept.results import RunResult, Status
from rv.avoided_nodes import DAY_S, AvoidedNode
from rv.bundle import acceptance_file
from rv.errors import RvError
from rv.models.request import Request
from rv.models.site import Site
from rv.planner import plan
from tests.unit.accept.made_results import gpu, metric, outcome, run_of
from tests.unit.planner.clusters import CATALOGUE, FAMILIES, campus, reasons

NOW = 1_800_000_000.0


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


def failed(code: str = "wrong_result", status: Status = Status.FAIL) -> RunResult:
    test = outcome("cuda:0", metric(1), status=status, code=code, reason="3 wrong elements")
    return run_of([test], [gpu(0)], status=status)


def bad(now: float = NOW, days: int = 7) -> tuple[AvoidedNode, ...]:
    return bad_nodes([failed()], "r1", now, days)


def test_a_node_whose_gpu_is_not_yet_at_its_old_level_is_not_cleared() -> None:
    """A loss of speed needs three runs there, or a repair: until then it is a warning."""
    slow = outcome("cuda:0", metric(1), status=Status.WARN, code="regression", reason="not yet")
    hot = outcome("cuda:0", metric(1), status=Status.WARN, code="jitter", reason="varies")

    assert cleared([run_of([slow], [gpu(0)], status=Status.WARN)]) == frozenset()
    assert cleared([run_of([hot], [gpu(0)], status=Status.WARN)]) == {"n1"}
    faulty = replace(hot, metrics=(metric(1, standing="faulty"),))
    assert cleared([run_of([faulty], [gpu(0)], status=Status.WARN)]) == frozenset()


@pytest.mark.parametrize(
    ("result", "names"),
    [
        (failed(), ["n1"]),
        (failed("peer_outlier"), ["n1"]),
        (failed("storage_mismatch"), []),
        (failed("checkpoint_corrupt"), []),
        (failed("nobody_knows"), []),
        (failed("usage"), []),
        (failed("no_result", Status.ERROR), []),
        (failed("below_reference", Status.WARN), []),
        (failed("gpu_busy"), []),
        (failed("memory_held"), []),
        (failed("contended"), []),
        (failed("slow_fabric"), []),
    ],
)
def test_only_failing_hardware_makes_a_node_bad(result: RunResult, names: list[str]) -> None:
    """What could not be run, or is the software's fault, says nothing about a node."""
    assert [entry.node for entry in bad_nodes([result], "r1", NOW, 7)] == names


def test_the_payloads_own_class_counts() -> None:
    """A code that only the payload knows, with its class."""
    test = replace(failed("odd").tests[0], fault="HARDWARE")

    assert bad_nodes([replace(failed(), tests=(test,))], "r1", NOW, 7)


def test_another_nodes_fault_is_remembered_for_that_node() -> None:
    """Rank 0's node reports, the other one is bad, and the reporter is not cleared by it."""
    test = outcome("", status=Status.FAIL, code="straggler", host="n2")
    test = replace(test, fault="HARDWARE")
    result = run_of([test], [], status=Status.FAIL, hostname="n1")

    assert [entry.node for entry in bad_nodes([result], "r", NOW, 7)] == ["n2"]
    assert cleared([result]) == frozenset()


def test_a_bad_node_is_remembered_for_its_days_and_no_longer() -> None:
    """By this machine's clock."""
    avoided_nodes.update("c", bad(), (), NOW)

    assert [entry.node for entry in avoided_nodes.load("c", NOW + 6.9 * DAY_S)] == ["n1"]
    assert avoided_nodes.load("c", NOW + 7.1 * DAY_S) == ()
    assert avoided_nodes.load("other cluster", NOW) == ()


def test_a_clock_that_is_ahead_avoids_nothing_for_ever() -> None:
    """An entry of the year 2100 is dropped within the most days that there can be."""
    avoided_nodes.update("c", bad(now=NOW + 70 * 365 * DAY_S), (), NOW)

    (entry,) = avoided_nodes.load("c", NOW)

    assert entry.until <= NOW + avoided_nodes.MOST_DAYS * DAY_S
    assert (
        bad_nodes([failed()], "r1", NOW, 10_000)[0].until <= NOW + avoided_nodes.MOST_DAYS * DAY_S
    )


def test_a_node_that_passes_again_is_forgotten() -> None:
    """And the others are kept."""
    entries = bad()
    avoided_nodes.update("c", [*entries, replace(entries[0], node="n2")], (), NOW)
    passed = run_of([outcome("cuda:0", metric(1))], [gpu(0)])

    known = avoided_nodes.load("c", NOW + 1)
    good = [entry for entry in known if entry.node in cleared([passed])]
    avoided_nodes.update("c", [], good, NOW + 1)

    assert [entry.node for entry in avoided_nodes.load("c", NOW + 2)] == ["n2"]


def test_only_the_payload_that_failed_clears_a_node() -> None:
    """Storage that is fast says nothing of a GPU that computes wrong."""
    passed = over(0)
    storage = replace(passed, test_type="storage_net")
    assert still_accused(bad(), [storage]) == {"n1"}
    assert still_accused(bad(), [storage, replace(passed, status=Status.SKIP)]) == {"n1"}
    assert still_accused(bad(), [storage, passed]) == frozenset()


def test_a_payload_that_was_skipped_clears_no_node_whatever_was_warned_of() -> None:
    """The result is a WARN then, of what is around the payload; and its reason says so."""
    wear = outcome("cuda:0", status=Status.WARN, code="rows_remapped", reason="2 rows", name="wear")
    skip = outcome("", status=Status.SKIP, code="tool_absent", reason="no tool", name="matmul")
    warned = replace(failed(), tests=(wear, skip), status=Status.WARN, began=NOW + 1)
    tested = replace(warned, tests=(wear, outcome("cuda:0", metric(1))))

    assert still_accused(bad(), [warned]) == {"n1"}
    assert still_accused(bad(), [tested]) == frozenset()


def over(*indices: int, began: float = NOW + 1, **more: Any) -> RunResult:
    """A result of a newer run over these GPUs of n1."""
    return run_of([outcome("", metric(1))], [gpu(i) for i in indices], began=began, **more)


def test_a_failure_that_names_no_gpu_accuses_all_that_the_run_had() -> None:
    """A pass on any one of them says nothing of the others."""
    test = outcome("", status=Status.FAIL, code="digest_mismatch", reason="differs", host="n1")
    devices = [gpu(0, host="n1"), gpu(1, host="n1"), gpu(2, host="n2")]
    result = run_of([test], devices, status=Status.FAIL)
    (entry,) = accused = bad_nodes([result], "r1", NOW, 7)

    assert entry.uuids == ("GPU-0", "GPU-1")
    assert "which of 2 GPUs it was is not known" in admin_text(accused, "campus")
    assert still_accused(accused, [over(1)]) == {"n1"}
    assert still_accused(accused, [over(2, 3)]) == {"n1"}
    assert still_accused(accused, [over(0), over(1)]) == frozenset()
    named = replace(failed(), tests=(*failed().tests, test), devices=(gpu(0), gpu(1)))
    assert still_accused(bad_nodes([named], "r1", NOW, 7), [over(0)]) == {"n1"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"nodes": 3}',
        '{"nodes": [{"node": "n1"}, {"until": 9e99}, 7]}',
        '{"repaired": 3}',
        '{"repaired": {"n1": "x", "n2": NaN, "n3": 9e999, "n4": []}}',
    ],
)
def test_a_broken_memory_avoids_nothing(text: str) -> None:
    """A launch goes on."""
    path = acceptance_file("avoid", "c", ".json")
    path.parent.mkdir(parents=True)
    path.write_text(text)

    assert avoided_nodes.load("c", NOW) == ()
    assert avoided_nodes.repairs("c", NOW) == {}


@pytest.mark.parametrize("text", ["", "{bad", "[]"])
def test_a_broken_memory_is_told_where_it_is_asked_for_and_never_written_over(text: str) -> None:
    """It may have been cut short by a full disk, and says which nodes are bad."""
    path = acceptance_file("avoid", "c", ".json")
    avoided_nodes.require_readable("c")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(RvError, match=r"cannot be read: no node is avoided.*: it is no "):
        avoided_nodes.require_readable("c")

    avoided_nodes.update("c", bad(), (), NOW)

    avoided_nodes.require_readable("c")
    assert [entry.node for entry in avoided_nodes.load("c", NOW)] == [each.node for each in bad()]
    assert path.with_suffix(".broken").read_text() == text


SOUND = {"node": "n1", "until": NOW + DAY_S}
ODD_ENTRIES = [
    (7, "it is no object"),
    ({"until": NOW + DAY_S}, "node is no text"),
    ({**SOUND, "node": "\x1b[31m"}, "node is empty"),
    ({"node": "n2"}, "until is no time"),
    ({**SOUND, "until": "2026-12-30"}, "until is no time"),
    ({**SOUND, "until": True}, "until is no time"),
    ({**SOUND, "until": float("nan")}, "until is no time"),
    ({**SOUND, "until": 10**400}, "until is no time"),
    ({**SOUND, "since": "yesterday"}, "since is no time"),
    ({**SOUND, "over_at": None}, "over_at is no time"),
    ({**SOUND, "run": 3}, "run is no text"),
    ({**SOUND, "evidence": "membw"}, "evidence is no list"),
    ({**SOUND, "uuids": [1]}, "one of uuids is no text"),
    ({**SOUND, "was_quick": "yes"}, "was_quick is neither true nor false"),
    ({**SOUND, "failed": None}, "failed is no list"),
    ({**SOUND, "failed": [3]}, "one of failed is no object"),
    ({**SOUND, "failed": [{"payload": "p", "test": ""}]}, "uuids of failed is no list"),
]


def write_file(document: Any) -> Path:
    """Put a file of bad nodes where rv keeps it."""
    path = acceptance_file("avoid", "c", ".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def assert_told_and_kept(path: Path, what: str) -> None:
    """Who asks for the file hears what is wrong in it, and the next write loses nothing of it."""
    text = path.read_text()
    with pytest.raises(RvError) as raised:
        avoided_nodes.require_readable("c")
    assert f"{path} cannot be read: " in raised.value.message
    assert raised.value.message.endswith(f": {what}")

    avoided_nodes.update("c", [replace(bad()[0], node="new")], (), NOW)

    avoided_nodes.require_readable("c")
    assert path.with_suffix(".broken").read_text() == text


@pytest.mark.parametrize(("odd", "what"), ODD_ENTRIES)
def test_an_odd_entry_makes_a_file_broken_and_the_sound_ones_count(odd: Any, what: str) -> None:
    """A slip of the hand in one entry: it is not lost, and the others are avoided as before."""
    path = write_file({"nodes": [{**SOUND, "node": "n0"}, odd], "repaired": {"n3": NOW - 5}})
    assert set(avoided_nodes.reasons("c", NOW)) == {"n0"}

    assert_told_and_kept(path, f"nodes[1]: {what}")

    assert set(avoided_nodes.reasons("c", NOW)) == {"n0", "new"}
    assert avoided_nodes.repairs("c", NOW) == {"n3": NOW - 5}


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ({"nodes": {"n1": SOUND}}, "nodes is no list"),
        ({"nodes": None}, "nodes is no list"),
        ({"repaired": {}}, "nodes is no list"),
        ({"nodes": [], "repaired": None}, "repaired is no object"),
    ],
)
def test_a_file_without_its_list_of_nodes_is_broken(document: Any, what: str) -> None:
    """So is one without its object of repairs."""
    assert_told_and_kept(write_file(document), what)


def test_of_many_faults_the_first_are_told() -> None:
    """In one line that can be read."""
    first = "; ".join(f"nodes[{number}]: it is no object" for number in range(3))

    assert_told_and_kept(write_file({"nodes": [1] * 5}), f"{first}; and 2 more")


@pytest.mark.parametrize(
    "odd",
    ["today", None, True, [], float("nan"), float("inf"), pytest.param(10**400, id="huge")],
)
def test_an_odd_time_of_a_repair_makes_a_file_broken(odd: Any) -> None:
    """The other repairs count, and so do the nodes."""
    path = write_file({"nodes": [SOUND], "repaired": {"a1": NOW - 5, "a2": odd}})

    assert set(avoided_nodes.reasons("c", NOW)) == {"n1"}
    assert avoided_nodes.repairs("c", NOW) == {"a1": NOW - 5}
    assert_told_and_kept(path, "repaired: a2 is no time")


def test_a_time_that_is_a_whole_number_counts() -> None:
    """As other programs and hands write it."""
    entry = {"node": "n1", "since": int(NOW) - 9, "until": int(NOW) + 9, "over_at": int(NOW)}
    path = write_file({"nodes": [entry], "repaired": {"n2": int(NOW) - 7}})

    avoided_nodes.require_readable("c")
    assert avoided_nodes.repairs("c", NOW) == {"n2": NOW - 7}
    avoided_nodes.update("c", [replace(bad()[0], node="n2", since=NOW - 8)], (), NOW)
    (kept,) = avoided_nodes.load("c", NOW)
    assert (kept.node, kept.since, kept.until) == ("n1", NOW - 9, NOW + 9)
    assert not path.with_suffix(".broken").exists()


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ({}, set()),
        ({"nodes": []}, set()),
        ({"nodes": [SOUND]}, {"n1"}),
        ({"nodes": [{**SOUND, "since": 1, "run": "r", "evidence": [], "uuids": []}]}, {"n1"}),
        ({"nodes": [{**SOUND, "newer": {"x": 1}}], "repaired": {}, "schema": 2}, {"n1"}),
        (
            {"nodes": [{**SOUND, "failed": [{"payload": "p", "test": "", "uuids": [], "x": 1}]}]},
            {"n1"},
        ),
    ],
)
def test_a_file_without_nodes_or_of_another_rv_can_be_read(document: Any, names: set[str]) -> None:
    """An older one wrote fewer fields, a newer one writes more: none of them is broken."""
    path = write_file(document)

    avoided_nodes.require_readable("c")
    assert set(avoided_nodes.reasons("c", NOW)) == names
    avoided_nodes.update("c", (), (), NOW)
    assert not path.with_suffix(".broken").exists()


def test_a_broken_file_still_counts_where_the_new_one_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a full disk: what is sound in it is avoided all the same."""
    path = write_file({"nodes": [SOUND, 7]})
    write = files.write_atomically

    def on_a_full_disk(to: Path, contents: Any) -> None:
        if to == path:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(to, contents)

    monkeypatch.setattr(files, "write_atomically", on_a_full_disk)
    with pytest.raises(RvError, match="cannot remember bad nodes: No space left"):
        avoided_nodes.forget("c", ["n9"], NOW)

    assert set(avoided_nodes.reasons("c", NOW)) == {"n1"}


def test_what_is_no_file_is_moved_away() -> None:
    """Nobody can read it: it is told, and keeps no failure from being remembered."""
    path = acceptance_file("avoid", "c", ".json")
    path.mkdir(parents=True)
    with pytest.raises(RvError, match=r"cannot be read: .*: Is a directory"):
        avoided_nodes.require_readable("c")

    avoided_nodes.update("c", bad(), (), NOW)

    assert set(avoided_nodes.reasons("c", NOW)) == {"n1"}
    assert path.with_suffix(".broken").is_dir()


def test_the_key_of_a_cluster_is_no_path(data: Path) -> None:
    """Whatever a cluster is called, its file lies in the folder."""
    avoided_nodes.update("../../x/\x1b[31m", bad(), (), NOW)

    assert [path.parent.name for path in data.rglob("*.json")] == ["avoid"]


def _write_many(name: str, count: int) -> None:
    for number in range(count):
        (entry,) = bad()
        avoided_nodes.update("c", [replace(entry, node=f"{name}{number}")], (), NOW)


def test_processes_that_write_at_once_lose_nothing_of_each_other() -> None:
    """Runs that end together, and somebody who says that a node was repaired."""
    avoided_nodes.update("c", bad(), (), NOW)
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(name, 30)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    avoided_nodes.forget("c", ["n1"], NOW)
    for writer in writers:
        writer.join()

    names = {f"{name}{number}" for name in ("a", "b") for number in range(30)}
    assert {entry.node for entry in avoided_nodes.load("c", NOW)} == names
    assert avoided_nodes.repairs("c", NOW) == {"n1": NOW}


def test_what_changed_while_a_run_was_judged_is_not_undone() -> None:
    """A node that failed again stays avoided; what was repaired since is not avoided anew."""
    avoided_nodes.update("c", bad(), (), NOW)
    known = avoided_nodes.load("c", NOW)
    again = replace(bad()[0], since=NOW - 5, run="r2", evidence=("membw x wrong_result: 3",))
    avoided_nodes.update("c", [again], (), NOW)

    avoided_nodes.update("c", (), known, NOW)
    assert [entry.node for entry in avoided_nodes.load("c", NOW)] == ["n1"]
    avoided_nodes.forget("c", ["n1"], NOW)
    avoided_nodes.update("c", bad(), (), NOW + 1)
    assert avoided_nodes.load("c", NOW + 1) == ()


def test_a_file_that_stays_taken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who only reads it, as each launch does, does not wait."""
    avoided_nodes.update("c", bad(), (), NOW)
    monkeypatch.setattr(avoided_nodes, "_LOCK_S", 0.0)
    with filelock.FileLock(acceptance_file("avoid", "c", ".lock")):
        with pytest.raises(RvError, match="another rv has their file open"):
            avoided_nodes.forget("c", ["n1"], NOW)
        assert len(avoided_nodes.load("c", NOW)) == 1


SITE = Site(avoided={"gpu-a40-n1": "failed acceptance (wrong_result)", "elsewhere": "x"})


def test_the_planner_leaves_an_avoided_node_out_with_its_reason() -> None:
    """In the excluded list, and in every job's -x."""
    made = plan(Request(gpus=4, types=("a40",)), campus(), CATALOGUE, FAMILIES, SITE)

    assert reasons(made)["gpu-a40-n1"] == "failed acceptance (wrong_result)"
    assert "elsewhere" not in reasons(made)
    assert made.strategies
    for strategy in made.strategies:
        assert "gpu-a40-n1" not in strategy.node_names
        assert "gpu-a40-n1" in strategy.exclude_nodes


def test_no_avoid_and_a_node_asked_for_override() -> None:
    """The user's word wins."""
    for request in (
        Request(gpus=4, types=("a40",), no_avoid=True),
        Request(gpus=4, types=("a40",), only_nodes=("gpu-a40-n1",)),
    ):
        made = plan(request, campus(), CATALOGUE, FAMILIES, SITE)
        assert any("gpu-a40-n1" in strategy.node_names for strategy in made.strategies)
        assert "gpu-a40-n1" not in reasons(made)


def test_only_nodes_are_the_only_ones() -> None:
    """For a sweep: one node, and no other."""
    request = Request(gpus=8, only_nodes=("gpu-a40-n2",))
    made = plan(request, campus(), CATALOGUE, FAMILIES)

    assert {name for s in made.strategies for name in s.node_names} == {"gpu-a40-n2"}


def test_a_site_where_all_nodes_are_avoided_says_why() -> None:
    """Nothing can serve the request, for a reason."""
    every = {f"gpu-a40-n{i}": "failed acceptance" for i in (1, 2)}
    request = Request(gpus=4, types=("a40",))
    made = plan(request, campus(), CATALOGUE, FAMILIES, Site(avoided=every))

    assert not made.strategies
    assert any("failing acceptance" in reason for reason in reasons(made).values())


def test_the_admins_get_evidence_uuids_and_a_list() -> None:
    """Ready to be sent."""
    text = admin_text(bad(), "campus")

    assert "n1" in text
    assert "wrong_result: 3 wrong elements" in text
    assert "GPU-0" in text
    assert "--exclude=n1" in text
    assert admin_text([], "campus") == "no node is known to be bad"


def test_a_fault_made_on_purpose_is_avoided_and_accuses_nobody() -> None:
    """Every text says so, until a fault is found that nobody made."""
    planted = replace(failed(), argv=("--quick", "--inject", "wrong-product"), quick=True)
    (entry,) = made = bad_nodes([planted], "r1", NOW, 7)
    text = admin_text(made, "campus")

    assert "made on purpose: --inject" in entry.reason
    assert "made on purpose (--inject, run r1): nothing is to be repaired" in text
    assert "bad node(s)" not in text
    assert "--exclude" not in text
    avoided_nodes.update("c", made, (), NOW)
    assert avoided_nodes.load("c", NOW) == made

    avoided_nodes.update("c", bad(), (), NOW)
    avoided_nodes.update("c", [replace(made[0], node="n2")], (), NOW)
    both = {each.node: each for each in avoided_nodes.load("c", NOW)}
    assert "on purpose" not in both["n1"].reason
    text = admin_text([*both.values()], "campus")
    assert "found 1 bad node(s)" in text
    assert "--exclude=n1\nn2 is avoided until" in text
    (mixed,) = bad_nodes([planted, failed()], "r1", NOW, 7)
    assert (mixed.is_injected, "on purpose" in mixed.reason) == (False, False)


def test_the_memory_is_plain_json() -> None:
    """For other programs."""
    avoided_nodes.update("c", bad(), (), NOW)

    document = json.loads(acceptance_file("avoid", "c", ".json").read_text())
    assert document["nodes"][0]["node"] == "n1"


def test_a_pipe_or_a_link_to_nothing_in_the_files_place_is_told_and_not_waited_for() -> None:
    """Every plan reads the file: it would wait for ever for whoever writes into the pipe."""
    path = acceptance_file("avoid", "c", ".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    with pytest.raises(RvError, match="no regular file"):
        avoided_nodes.require_readable("c")

    path.unlink()
    path.symlink_to("/nowhere")
    with pytest.raises(RvError, match="a link to nothing"):
        avoided_nodes.require_readable("c")
