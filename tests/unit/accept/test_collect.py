"""From the files that a job left to one result for everything that was to report."""

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rv import bundle
from rv.accept.collect import collect, result_patterns
from rv.accept.origin import Origin
from rv.accept.payload_command import (
    Profile,
    chosen,
    command,
    find,
    refuse_faults_of_pairs,
    require_faults,
    require_nodes_of_faults,
)
from rv.accept.results import RunResult, Status, TestResult, exit_code, verdict
from rv.accept.runs import Run, RunRecord
from rv.errors import RvError
from rv.payloads._acceptance import node as node_program
from rv.payloads.contract.catalogue import NODE, PAYLOADS, PayloadSpec, Step
from rv.payloads.contract.codes import CODES
from rv.transport.local import LocalTransport
from rv.ui.acceptance import run_text

ORIGIN = Origin(job_id=7, restart=0, nodes=("a1", "a2"), started_at=1_800_000_000.0, ended="over")
AFTER, BEFORE = "2027-01-15T08:00:05Z", "2027-01-15T07:00:00Z"


COMPLETED = replace(ORIGIN, state="COMPLETED")


def result(status: str = "PASS", /, **info: Any) -> bytes:
    slurm = {"job_id": "7", "restart_count": "0"} | info.pop("slurm", {})
    test = {"name": "t", "status": status, "reason": "seen", "code": "c"}
    head = {"test_type": "check", "hostname": "host", "timestamp": AFTER, "slurm": slurm} | info
    summary = {"status": status, "exit_code": 0}
    document = {"schema": "rv.accept/1", "test_info": head, "tests": [test], "summary": summary}
    return json.dumps(document).encode()


def node(index: int, data: bytes | None = None, code: int | None = 0) -> dict[str, bytes]:
    """What one node leaves for `check`."""
    files = {f"check/node{index}.begun": f"a{index + 1}\n".encode()}
    if data is not None:
        files[f"check/node{index}/check_result.json"] = data
    if code is not None:
        files[f"check/node{index}.exit"] = f"{code}\n".encode()
    return files


def told(files: dict[str, bytes], origin: Origin = ORIGIN) -> list[tuple[str, str, str]]:
    return [(r.hostname, str(r.status), r.code) for r in collect(files, ["check"], origin)]


def test_every_node_is_read_and_named() -> None:
    """A node is called what Slurm calls it, whatever its host calls itself."""
    files = node(0, result()) | node(1, result("FAIL"), 1)

    assert told(files) == [("a1", "PASS", "c"), ("a2", "FAIL", "c")]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (1, "no_result"),
        (134, "no_result"),
        (None, "no_result"),
        (124, "timeout"),
        (137, "killed"),
        (75, "preempted"),
        (2, "usage"),
    ],
)
def test_a_node_without_a_result_is_an_error_with_its_reason(code: int, expected: str) -> None:
    """No file is never a pass, and the exit code tells what it can."""
    files = node(0, result()) | node(1, None, code)

    found = collect(files, ["check"], ORIGIN)

    assert [(r.status, r.code) for r in found][1] == (Status.ERROR, expected)
    assert found[1].reason.startswith("no result reported: ")


def test_a_node_that_never_began_is_an_error() -> None:
    """The job ended before its turn, and how it ended is said."""
    assert told(node(0, result()))[1] == ("a2", "ERROR", "not_run")
    assert told({}) == [("a1", "ERROR", "not_run"), ("a2", "ERROR", "not_run")]


def test_a_race_that_never_started_is_said_once() -> None:
    """Every payload lacks a result for the same reason, which more time would not mend."""
    ended = "the race DECLINED: every node failed the node check: a1: GPU 1 is in use"
    names = ("check", "membw")
    record = RunRecord(
        race_id="c73v5y6k", cluster="lab", payloads=names, ended=ended, state="DECLINED"
    )

    run = Run(record=record, results=collect({}, names, record))

    assert {found.code for found in run.results} == {"not_started"}
    assert run_text(run) == [
        f"nothing was tested: {ended}",
        "tell the administrators what the reason says of their node, or free the GPU",
        "acceptance of c73v5y6k: ERROR (2 ERROR)",
    ]
    assert {test.fault_class for found in run.results for test in found.tests} == {"UNKNOWN"}


def test_a_race_that_found_no_node_in_time_is_no_nodes_fault() -> None:
    """More time, or other nodes, would mend it."""
    record = RunRecord(race_id="c73v5y6k", cluster="lab", ended="the race CANCELLED: gave up")
    (missing,) = collect({}, ["check"], record)
    assert missing.tests[0].advice == CODES["not_started"].action


STALE = [
    result(slurm={"job_id": "6"}),
    result(slurm={"restart_count": "1"}),
    result(timestamp=BEFORE),
    result(timestamp=BEFORE, slurm={"job_id": None}),
]


@pytest.mark.parametrize("data", STALE)
def test_a_stale_result_never_counts(data: bytes) -> None:
    """A PASS of another job, of another restart, or from before the start is none."""
    assert told(node(0, data) | node(1, result()))[0] == ("a1", "ERROR", "result_stale")


def test_a_result_cut_short_is_an_error_that_names_it() -> None:
    """Half a file is no verdict."""
    files = node(0, result()[:90]) | node(1, result())

    first = collect(files, ["check"], ORIGIN)[0]

    assert (first.status, first.code) == (Status.ERROR, "result_unreadable")
    assert "check_result.json" in first.reason


def test_a_pass_of_a_program_that_then_crashed_is_an_error() -> None:
    """Said PASS and ended with 139: something is wrong."""
    assert ("a1", "ERROR", "crashed") in told(node(0, result(), 139) | node(1, result()))
    assert ("a1", "ERROR", "crashed") not in told(node(0, result("SKIP"), 77) | node(1, result()))


DIED = {"interrupted": "ERROR", "collective_timeout": "FAIL", "rank_missing": "FAIL"}


def of_ranks(tests: Mapping[str, str], world: int = 4) -> dict[str, bytes]:
    """What rank 0 merged of the ranks on both nodes: tests by code, with their status."""
    document = json.loads(result("FAIL", rank=0, world={"size": world}))
    document["tests"] = [
        {"name": "t", "status": status, "reason": "seen", "code": code}
        for code, status in tests.items()
    ]
    document["ranks"] = [{"rank": rank} for rank in range(world)]
    return {"check/check_result.json": json.dumps(document).encode()}


@pytest.mark.parametrize(
    ("tests", "found"),
    [
        (DIED, [("a2", "ERROR", "killed")]),
        (
            {**DIED, "wrong_result": "FAIL"},
            [("a1", "FAIL", "wrong_result"), ("a2", "ERROR", "killed")],
        ),
    ],
)
def test_a_killed_rank_is_told_and_not_what_it_led_to(
    tests: dict[str, str], found: list[tuple[str, str, str]]
) -> None:
    """The others waited for it; what was seen before is a finding all the same."""
    files = node(0, code=1) | node(1, code=137) | of_ranks(tests)

    assert told(files) == found


@pytest.mark.parametrize(
    ("ended", "files", "found"),
    [
        ("CANCELLED: stopped by you", node(0, result(), None), ["interrupted"]),
        ("CANCELLED: stopped by you", {}, ["interrupted"]),
        ("CANCELLED: stopped by you", node(0, None, None), ["interrupted"]),
        ("CANCELLED: stopped by you", node(0, None, 143), ["interrupted"]),
        ("CANCELLED: stopped by you", node(0, None, 137), ["interrupted"]),
        ("CANCELLED: stopped by you", node(0, result(), 137), ["interrupted"]),
        ("TIMEOUT: Slurm says TIMEOUT", {}, ["timeout"]),
        ("TIMEOUT: Slurm says TIMEOUT", node(0, result(), None), ["timeout"]),
        ("PREEMPTED: Slurm says PREEMPTED", {}, ["preempted"]),
        ("LOST: Slurm says NODE_FAIL", node(0, None, None), ["no_result"]),
        ("COMPLETED", {}, ["results_lost"]),
        ("COMPLETED", node(0, None, None), ["results_lost"]),
        ("COMPLETED", node(0, result(), None), ["crashed"]),
        ("COMPLETED", node(0, result(), 124), ["timeout"]),
        ("COMPLETED", node(0, result(), 137), ["killed"]),
    ],
)
def test_how_the_job_ended_says_why_a_result_is_not_there(
    ended: str, files: dict[str, bytes], found: list[str]
) -> None:
    """One that was cancelled needs no more time, and one that ended left its results somewhere."""
    state = ended.partition(":")[0]
    origin = replace(ORIGIN, nodes=("a1",), state=state, ended=f"the race {ended}")

    assert [code for _, status, code in told(files, origin) if status == "ERROR"] == found


CUT_OFF = [("CANCELLED", "interrupted", 99), ("TIMEOUT", "timeout", 124), ("LOST", "no_result", 99)]


@pytest.mark.parametrize(("state", "code", "exits"), CUT_OFF)
def test_what_the_end_of_the_job_ended_is_no_fault_of_the_hardware(
    state: str, code: str, exits: int
) -> None:
    """Slurm's SIGTERM reaches a payload's workers too: one was found ended, and a node avoided."""
    worker = {"name": "torch", "status": "FAIL", "code": "worker_failed"}
    worker["reason"] = "cpu:0: its burn ended by itself with code -15 after 0 products"
    cut = {"name": "check", "status": "ERROR", "code": "interrupted", "reason": "interrupted"}
    document = json.loads(result("FAIL")) | {"tests": [worker, cut]}
    files = node(0, json.dumps(document).encode(), 1)
    origin = replace(ORIGIN, nodes=("a1",), state=state, ended=f"the race {state}: seen")

    results = collect(files, ["check"], origin)
    assert [(t.status, t.code) for r in results for t in r.tests] == [(Status.ERROR, code)] * 2
    assert all(test.fault_class != "HARDWARE" for test in results[0].tests)
    assert "the race" in results[0].reason
    assert exit_code(results, strict=False, skip=0) == exits


def test_a_worker_that_died_of_itself_is_told_though_the_job_was_cancelled_later() -> None:
    worker = {"name": "torch", "status": "FAIL", "code": "worker_failed"}
    worker["reason"] = "cpu:0: its burn ended by itself with code -11 after 0 products"
    document = json.loads(result("FAIL")) | {"tests": [worker]}
    files = node(0, json.dumps(document).encode(), 1)
    origin = replace(ORIGIN, nodes=("a1",), state="CANCELLED", ended="the race CANCELLED: seen")

    assert told(files, origin) == [("a1", "FAIL", "worker_failed")]


def test_a_worker_that_was_killed_is_no_fault_of_the_hardware() -> None:
    """The kernel kills the largest where memory runs out: the node was avoided for a week."""
    worker = {"name": "torch", "status": "FAIL", "code": "worker_failed"}
    worker["reason"] = "cpu:0: its burn ended by itself with code -9 after 3 products"
    document = json.loads(result("FAIL")) | {"tests": [worker]}
    for state in ("FAILED", "CANCELLED"):
        origin = replace(ORIGIN, nodes=("a1",), state=state)
        (found,) = collect(node(0, json.dumps(document).encode(), 1), ["check"], origin)
        (test,) = found.tests
        assert (found.status, test.code, test.fault_class) == (Status.ERROR, "killed", "CONFIG")
        assert "as the kernel does where memory runs out" in test.reason
        assert "memory" in test.advice


def ranks(*present: int, size: int = 4) -> dict[str, bytes]:
    files = {
        f"check/check_result.ranks/rank-{rank:05}.json": result(rank=rank, world={"size": size})
        for rank in present
    }
    return files | node(0) | node(1)


def test_every_rank_is_placed_on_its_node() -> None:
    """Ranks are numbered node by node."""
    assert [host for host, _, _ in told(ranks(0, 1, 2, 3))] == ["a1", "a1", "a2", "a2"]


def test_a_rank_that_cannot_be_is_placed_all_the_same() -> None:
    """A broken file is no traceback."""
    files = {"check/check_result.ranks/rank-00000.json": result(rank=-5, world={"size": 1})}
    assert next(host for host, _, _ in told(files)) == "a1"


def test_a_missing_rank_is_an_error_on_its_node() -> None:
    """Rank 3 of 4 was on the second node."""
    found = told(ranks(0, 1, 2))

    assert found[-1] == ("a2", "ERROR", "no_result")
    assert len(found) == 4
    crashed = collect({**ranks(0, 1, 2), **node(1, code=1)}, ["check"], COMPLETED)[-1]
    assert (crashed.code, crashed.reason) == ("no_result", "no result reported: exit code 1")


def test_anothers_fault_is_blamed_on_its_node() -> None:
    """Rank 0 reports a straggler on the second node, and a rank that never came."""
    late = {
        "name": "arrival",
        "status": "FAIL",
        "reason": "late: rank 3 on host (2 times)",
        "rank": 0,
    }
    gone = {"name": "ranks", "status": "FAIL", "details": {"missing": [2]}, "rank": 0}
    fine = {"name": "sum", "status": "PASS", "reason": "rank 3 on time", "rank": 0}
    head = json.loads(result(rank=0, world={"size": 4, "nnodes": 2}))["test_info"]
    ranks = [{"rank": rank} for rank in range(4)]
    document = {
        "schema": "rv.accept/1",
        "test_info": head,
        "tests": [late, gone, fine],
        "ranks": ranks,
    }
    files = {"check/check_result.json": json.dumps(document).encode()} | node(0) | node(1)

    (found,) = collect(files, ["check"], ORIGIN)

    assert [test.host for test in found.tests] == ["a2", "a2", "a1"]


def test_older_names_beside_a_current_result_are_aliases() -> None:
    """They say the same again, with less."""
    files = node(0, result()) | node(1, result())
    files["check/node0/gpu_tests_result.json"] = b'{"failures": ["compute"]}'
    files["check/node0/heartbeat.json"] = b'{"beat": 1}'
    files["check/node1/another.json"] = result("FAIL")

    assert [status for _, status, _ in told(files)] == ["PASS", "PASS"]


def test_ranks_that_ended_with_torchruns_one_are_no_crash_when_they_failed() -> None:
    """torchrun makes every code 1; a file that says FAIL explains it, one that says PASS not."""
    failed = {"check/check_result.json": result("FAIL", rank=0)} | node(0, None, 1)
    passed = {"check/check_result.json": result("PASS", rank=0)} | node(0, None, 1)
    one = Origin(job_id=7, restart=0, nodes=("a1",), started_at=1_800_000_000.0)

    assert told(failed, one) == [("a1", "FAIL", "c")]
    assert told(passed, one)[-1] == ("a1", "ERROR", "crashed")


def test_what_is_fetched_is_what_is_read(tmp_path: Path) -> None:
    """Every file that counts, through the transport; of three nodes, and of ranks."""
    written = {
        "check/node0.begun": b"a1", "check/node2.exit": b"0", "check/node2/check_result.json": b"{}",
        "check/check_result.json": b"{}", "check/check_result.ranks/rank-00003.json": b"{}",
    }  # fmt: skip
    for name, data in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)

    fetched = LocalTransport({}).read_tree(str(tmp_path), result_patterns(["membw", "check"], 3))

    assert fetched == written


def outcome(status: Status, code: str = "") -> RunResult:
    test = TestResult(name="t", status=status, code=code)
    return RunResult(test_type="check", status=status, tests=(test,))


P, W, F, S, E = Status.PASS, Status.WARN, Status.FAIL, Status.SKIP, Status.ERROR


@pytest.mark.parametrize(
    ("statuses", "expected", "code"),
    [
        ([P, S], P, 0),
        ([S], S, 0),
        ([P, W], W, 0),
        ([F, E, W], F, 1),
        ([P, E], E, 99),
        ([], E, 99),
    ],
)
def test_the_worst_verdict_wins(statuses: list[Status], expected: Status, code: int) -> None:
    """FAIL over ERROR over WARN; nothing at all is an error."""
    results = [outcome(status) for status in statuses]

    assert verdict(results) is expected
    assert exit_code(results, strict=False, skip=0) == code


def test_exit_codes_of_strict_skip_timeout_and_preemption() -> None:
    """The documented codes."""
    assert exit_code([outcome(W)], strict=True, skip=0) == 1
    assert exit_code([outcome(S)], strict=False, skip=77) == 77
    assert exit_code([outcome(E, "timeout"), outcome(P)], strict=False, skip=0) == 124
    assert exit_code([outcome(E, "preempted")], strict=False, skip=0) == 75
    assert exit_code([outcome(E, "timeout"), outcome(E, "crashed")], strict=False, skip=0) == 99


def test_payloads_are_chosen_by_name_in_the_order_of_a_run() -> None:
    """Unknown ones, and ones that are not carried, are usage errors."""
    names = {payload.name for payload in PAYLOADS}

    assert [p.name for p in chosen(["train.py", "check"], Profile.SMOKE, names)] == [
        "check",
        "train",
    ]
    with pytest.raises(RvError, match="no payload 'chekc'") as caught:
        find("chekc")
    assert "did you mean check?" in caught.value.hint
    with pytest.raises(RvError, match="carries no payload train"):
        chosen(["train"], Profile.SMOKE, {"check"})


def test_every_bundled_payload_is_in_the_catalogue() -> None:
    """What is shipped can be run; run_all runs the others itself."""
    bundled = {name.removesuffix(".py") for name in bundle.payload_names()} - {"run_all"}

    assert bundled <= {payload.name for payload in PAYLOADS}


SCRIPT = """
import json, os, sys
folder = os.environ["RV_OUTPUT_DIR"]
os.makedirs(folder, exist_ok=True)
slurm = {"job_id": "7", "restart_count": "0"}
name = os.path.basename(sys.argv[0])[:-3]
info = {"timestamp": "2027-01-15T08:00:05Z", "slurm": slurm, "argv": sys.argv[1:]}
info |= {"test_type": name, "token": os.environ["RV_RESULT_TOKEN"]}
summary = {"status": "PASS", "exit_code": 0}
test = {"name": "t", "status": "PASS"}
if "hang" in sys.argv[0]:
    import time; time.sleep(600)
if "crash" not in sys.argv[0]:
    document = {"schema": "rv.accept/1", "test_info": info, "tests": [test], "summary": summary}
    with open(f"{folder}/{name}_result.json", "w") as file:
        json.dump(document, file)
sys.exit(9 if "crash" in sys.argv[0] else 0)
"""


def turns(line: str) -> list[str]:
    """The payloads of a command, as the program that runs them takes them."""
    _, _, *words, _, end = shlex.split(line.replace("\\\n", ""))
    assert end == "0"
    return words


def payload(name: str, starts: str = NODE, seconds: int = 60) -> PayloadSpec:
    step = Step(arguments=("--quick", "it's"), timeout_s=seconds)
    return PayloadSpec(name=name, tests="", starts=starts, steps={Profile.SMOKE: step})


def test_the_command_runs_each_payload_and_leaves_what_collect_reads(tmp_path: Path) -> None:
    """Run by bash as a job does: one passes, one crashes, one hangs, and the rest still runs."""
    names = ["good", "crash", "hang", "last"]
    for name in names:
        (tmp_path / f"{name}.py").write_text(SCRIPT)
    for name in ("_acceptance", "_processes", "_harness", "contract"):
        (tmp_path / name).symlink_to(Path(node_program.__file__).parents[1] / name)
    (tmp_path / "torch.py").write_text("raise ImportError\n")
    steps = [payload(name, seconds=1 if name == "hang" else 60) for name in names]
    environment = {
        "PATH": "/usr/bin:/bin",
        "RV_PYTHON": sys.executable,
        "RV_PAYLOADS": str(tmp_path),
        "RV_OUTPUT_DIR": str(tmp_path / "results"),
        "PYTHONPATH": str(tmp_path),
        "SLURMD_NODENAME": "n7",
    }

    line = command(steps, Profile.SMOKE).line
    done = subprocess.run(
        ["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=120
    )

    assert done.returncode == 0, done.stderr
    files = LocalTransport({}).read_tree(str(tmp_path / "results"), result_patterns(names, 1))
    one = Origin(job_id=7, restart=0, nodes=("a1",), started_at=1_800_000_000.0)
    found = {r.test_type: (r.hostname, r.status, r.code) for r in collect(files, names, one)}
    assert found == {
        "good": ("n7", Status.PASS, ""),
        "crash": ("n7", Status.ERROR, "no_result"),
        "hang": ("n7", Status.ERROR, "timeout"),
        "last": ("n7", Status.PASS, ""),
    }
    argv = json.loads(files["good/node0/good_result.json"])["test_info"]["argv"]
    assert argv == ["--quick", "it's", "--timeout", "50", "--no-reference"]


def test_codes_of_the_collector_have_a_meaning() -> None:
    """Whoever sees one is told what to do."""
    used = "no_result result_stale result_foreign result_invalid result_unreadable not_run timeout preempted crashed not_started"
    assert set(used.split()) <= set(CODES)


def test_a_fault_goes_to_the_payloads_that_can_make_it() -> None:
    """And `--verbose` to all; a fault of none of them is refused before anything is submitted."""
    payloads = [find("check"), find("membw")]
    line = command(payloads, Profile.SMOKE, ["bitflip:step=2", "slow"], ["--verbose"]).line
    check, membw = turns(line)
    assert check.endswith("--verbose --inject slow")
    assert membw.endswith("--verbose --inject bitflip:step=2")
    with pytest.raises(RvError, match="check, membw can make no fault 'corrupt-file'") as caught:
        require_faults(["corrupt-file"], payloads)
    assert "bitflip" in caught.value.hint


def test_a_fault_between_nodes_is_asked_for_where_pairs_of_nodes_are_compared() -> None:
    """A run of one pair would end in PASS; so would a sweep that has no node of that name."""
    link = "slow-link:one=a1,other=a9"
    with pytest.raises(RvError, match="no other pair of nodes") as caught:
        refuse_faults_of_pairs(["bitflip", link])
    assert caught.value.hint == f"rv accept sweep --pairs --inject {link}"
    with pytest.raises(RvError, match="a9 is none of the nodes of this sweep") as caught:
        require_nodes_of_faults([link], ["a2", "a1"])
    assert caught.value.hint == "they are a1, a2"
    require_nodes_of_faults([link, "slow:host=zz"], ["a1", "a9"])


def test_dcgms_diagnosis_goes_to_check_alone_with_its_time() -> None:
    """Within check's own limit it would be ended."""
    line = command([find("check"), find("membw")], Profile.SMOKE, dcgm=2).line
    check, membw = turns(line)
    assert "--dcgm 2 --timeout 1010" in check
    assert check.split()[2] == "1020"
    assert "--dcgm" not in membw
