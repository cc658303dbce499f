"""Result files damaged in many ways: none is a PASS, and the reason names the damage."""

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from rv.accept.bad_nodes import bad_nodes
from rv.accept.collect import collect
from rv.accept.origin import Origin
from rv.accept.result_files import parse
from rv.accept.results import RunResult, Status
from rv.payloads.contract.catalogue import PAYLOADS

NODES, GPUS = ("a1", "a2"), 2
PLANNED = {payload.name: payload.results.split() for payload in PAYLOADS}
AT = "2027-01-15T08:00:05Z"
ORIGIN = Origin(
    job_id=7,
    nodes=NODES,
    started_at=1_800_000_000.0,
    ended="over",
    gpus=len(NODES) * GPUS,
    planned=tuple(f"{p} {name}" for p in ("check", "allreduce") for name in PLANNED[p]),
)

Document = dict[str, Any]
Files = dict[str, Any]


def a_test(name: str, rank: int, device: str, host: str) -> Document:
    rates = {"n": 30, "median": 700.0, "p05": 690.0, "p95": 710.0, "min": 680.0, "max": 720.0}
    what, unit = ("busbw_1GiB", "GB/s") if "allreduce" in name else ("tflops", "TFLOPS")
    rate = {"name": what, "value": 700.0, "unit": unit, "dir": "higher", **rates}
    about = {"rank": rank, "device": device, "host": host, "timing_ms": 5.0}
    details = {"size": 8192, "nested": {"errors": [0.0, 1e-9]}}
    return {"name": name, "status": "PASS", **about, "details": details, "metrics": [rate]}


def document(payload: str, node: str, tests: list[Document], world: int) -> Document:
    """A result as a payload writes it."""
    info = {
        "test_type": payload, "hostname": node, "node": node, "timestamp": AT, "rank": 0,
        "method_version": 2, "token": f"{payload}-{node}", "argv": ["--timeout", "50"],
        "world": {"size": world, "nnodes": 2 if world > 1 else 1, "backend": "nccl"},
        "slurm": {"job_id": "7", "restart_count": None},
    }  # fmt: skip
    summary = {"status": "PASS", "exit_code": 0, "passed": len(tests), "warned": 0, "failed": 0}
    return {
        "schema": "rv.accept/1",
        "test_info": info,
        "env": {"torch": "2.13.0", "vars": {"RV_GPUS": "2"}},
        "tests": tests,
        "summary": {**summary, "skipped": 0, "errors": 0},
    }


def checked(node: str) -> Document:
    """What `check` writes on a node of two GPUs."""
    names, devices = PLANNED["check"], range(GPUS)
    tests = [a_test(name, 0, f"cuda:{index}", node) for name in names for index in devices]
    gpus = [{"index": i, "name": "NVIDIA H200", "uuid": f"GPU-{node}-{i}"} for i in devices]
    ranks = [{"rank": 0, "host": node, "token": f"check-{node}"}]
    return {**document("check", node, tests, 1), "devices": gpus, "ranks": ranks}


def reduced() -> Document:
    """What `allreduce` writes for four ranks on two nodes."""
    names, hosts = PLANNED["allreduce"], [NODES[rank // GPUS] for rank in range(4)]
    tests = [
        a_test(name + (".rank" if rank else ""), rank, "cuda:0", host)
        for rank, host in enumerate(hosts)
        for name in names
    ]
    ranks = [
        {"rank": rank, "host": host, "token": f"allreduce-{host}"}
        for rank, host in enumerate(hosts)
    ]
    gpus = [
        {"index": index, "name": "NVIDIA H200", "uuid": f"GPU-{host}-{index}", "host": host}
        for host in NODES
        for index in range(GPUS)
    ]
    return {**document("allreduce", "a1", tests, 4), "devices": gpus, "ranks": ranks}


CHECK, OTHER = "check/node0/check_result.json", "check/node1/check_result.json"
REDUCE = "allreduce/allreduce_result.json"


def whole_run() -> Files:
    """Everything that a job of two payloads on two nodes leaves."""
    files: Files = {CHECK: checked("a1"), OTHER: checked("a2"), REDUCE: reduced()}
    for payload in ("check", "allreduce"):
        for index, node in enumerate(NODES):
            files[f"{payload}/node{index}.begun"] = f"{node}\n{payload}-{node}\n"
            files[f"{payload}/node{index}.exit"] = "0\n"
    return files


def collected(files: Files) -> tuple[RunResult, ...]:
    data = {
        name: (each if isinstance(each, str) else json.dumps(each)).encode()
        for name, each in files.items()
        if each is not None
    }
    return collect(data, ["check", "allreduce"], ORIGIN)


def place(file: str, path: str, value: Any) -> Callable[[Files], None]:
    """Put a value at a place of a file's document, or delete what is there."""

    def damage(files: Files) -> None:
        at: Any = files[file]
        *parts, last = [int(part) if part.isdigit() else part for part in path.split("/")]
        for part in parts:
            at = at[part]
        if value is DELETED:
            del at[last]
        else:
            at[last] = value

    return damage


def drop(
    file: str, keep: Callable[[Document], bool], part: str = "tests"
) -> Callable[[Files], None]:
    """Drop entries of a document, and let its summary agree."""

    def damage(files: Files) -> None:
        at = files[file]
        at[part] = [each for each in at[part] if keep(each)]
        at["summary"]["passed"] = len(at["tests"])

    return damage


def twice(file: str, number: int) -> Callable[[Files], None]:
    """List a test twice, and let the summary agree."""

    def damage(files: Files) -> None:
        at = files[file]
        at["tests"].append(copy.deepcopy(at["tests"][number]))
        at["summary"]["passed"] += 1

    return damage


def swap(one: str, other: str) -> Callable[[Files], None]:
    def damage(files: Files) -> None:
        files[one], files[other] = files[other], files[one]

    return damage


def several(*damages: Callable[[Files], None]) -> Callable[[Files], None]:
    def damage(files: Files) -> None:
        for each in damages:
            each(files)

    return damage


def ranks_apart(*, twice: bool) -> Callable[[Files], None]:
    """Rank 0 merged nothing: each rank's own file, one of which is another's or says so."""

    def damage(files: Files) -> None:
        merged = files.pop(REDUCE)
        for rank in range(4):
            own = copy.deepcopy(merged)
            own["tests"] = [test for test in merged["tests"] if test["rank"] == rank]
            own["summary"]["passed"] = len(own["tests"])
            own["test_info"] |= {"rank": rank, "token": merged["ranks"][rank]["token"]}
            del own["ranks"]
            files[f"allreduce/allreduce_result.ranks/rank-{rank:05}.json"] = own
        if twice:
            last = files["allreduce/allreduce_result.ranks/rank-00002.json"]
            files["allreduce/allreduce_result.ranks/rank-00003.json"] = last

    return damage


def beside(what: str) -> Callable[[Files], None]:
    """The ranks' own files, of which one fails or is none, beside what rank 0 merged before."""

    def damage(files: Files) -> None:
        merged = copy.deepcopy(files[REDUCE])
        ranks_apart(twice=False)(files)
        files[REDUCE] = merged
        name = "allreduce/allreduce_result.ranks/rank-00001.json"
        if what == "garbage":
            files[name] = what
        else:
            files[name]["tests"][0] |= {"status": what, "reason": "wrong"}

    return damage


def said_twice(file: str) -> Callable[[Files], None]:
    """A failed test behind whose verdict another stands: JSON's readers take the last of two."""

    def damage(files: Files) -> None:
        text = json.dumps(files[file])
        files[file] = text.replace('"status": "PASS"', '"status": "FAIL", "status": "PASS"', 1)

    return damage


def skipped(file: str, code: str) -> Callable[[Files], None]:
    """A payload that says that it had nothing to test, though it had GPUs."""

    def damage(files: Files) -> None:
        at = files[file]
        at["devices"] = []
        at["tests"] = [{"name": "device", "status": "SKIP", "code": code, "rank": 0}]
        at["summary"] |= {"passed": 0, "skipped": 1, "status": "SKIP", "exit_code": 77}

    return damage


DELETED = object()
NAN, INF = float("nan"), float("inf")
FIRST_METRIC = "tests/0/metrics/0"

DAMAGES: dict[str, tuple[Callable[[Files], None], str]] = {
    # whose it is
    "no job": (place(CHECK, "test_info/slurm/job_id", None), "names no job"),
    "no slurm": (place(CHECK, "test_info/slurm", DELETED), "names no job"),
    "empty job": (place(CHECK, "test_info/slurm/job_id", ""), "names no job"),
    "another job": (place(CHECK, "test_info/slurm/job_id", "8"), "of job 8, not 7"),
    "another restart": (place(CHECK, "test_info/slurm/restart_count", "1"), "of restart 1"),
    "no time": (place(CHECK, "test_info/timestamp", DELETED), "has no time"),
    "time is no time": (place(CHECK, "test_info/timestamp", "soon"), "has no time"),
    "no head": (place(CHECK, "test_info", {}), "names no job"),
    "another node's": (swap(CHECK, OTHER), "token differs"),
    "a copy of another node's": (
        lambda files: files.update({OTHER: copy.deepcopy(files[CHECK])}),
        "token differs",
    ),
    "an earlier run's": (place(CHECK, "test_info/token", "check-before"), "token differs"),
    "no token": (place(CHECK, "test_info/token", DELETED), "token differs"),
    "another payload's": (place(CHECK, "test_info/test_type", "membw"), "of membw, not check"),
    "another payload's file": (swap(CHECK, REDUCE), "of allreduce, not check"),
    "no payload": (place(CHECK, "test_info/test_type", DELETED), "of unknown, not check"),
    "a rank of another launch": (place(REDUCE, "ranks/3/token", "other"), "token differs"),
    "never begun": (lambda files: files.pop("check/node0.begun"), "not begun"),
    # less than planned
    "a test less": (
        drop(CHECK, lambda test: test["name"] != "matmul.bf16"),
        "no test matmul.bf16",
    ),
    "a test less, summary whole": (place(CHECK, "tests/0", DELETED), "counts 24 passed"),
    "a test less on one GPU": (
        drop(CHECK, lambda test: (test["name"], test["device"]) != ("matmul.fp8", "cuda:1")),
        "no test matmul.fp8 of cuda:1",
    ),
    "one test alone": (
        drop(CHECK, lambda test: test["name"] == "matmul.fp64"),
        "no test matmul.fp32",
    ),
    "a GPU less": (
        several(
            drop(CHECK, lambda gpu: gpu["index"] == 0, "devices"),
            drop(CHECK, lambda test: test["device"] == "cuda:0"),
        ),
        "1 GPUs, 2 were planned",
    ),
    "no GPU": (place(CHECK, "devices", []), "0 GPUs, 2 were planned"),
    "no GPU of ranks": (place(REDUCE, "devices", []), "0 GPUs, 4 were planned"),
    "a GPU that two ranks share": (place(REDUCE, "devices/3", DELETED), "3 GPUs, 4 were planned"),
    "a GPU that two ranks with their own files share": (
        several(place(REDUCE, "devices/3", DELETED), ranks_apart(twice=False)),
        "its ranks have 3 GPUs, 4 were planned",
    ),
    "ranks on CPUs with their own files": (
        several(place(REDUCE, "devices", []), ranks_apart(twice=False)),
        "0 GPUs, 1 were planned",
    ),
    "skipped, for want of a GPU": (skipped(CHECK, "no_gpu"), "0 GPUs, 2 were planned"),
    "ranks skipped, for want of a GPU": (
        skipped(REDUCE, "no_gpu"),
        "it found no GPU, 4 were planned",
    ),
    "skipped without its GPUs": (skipped(CHECK, "not_asked"), "0 GPUs, 2 were planned"),
    "a rank less": (
        several(
            drop(REDUCE, lambda rank: rank["rank"] != 3, "ranks"),
            drop(REDUCE, lambda test: test["rank"] != 3),
        ),
        "3 ranks",
    ),
    "a rank less, of a smaller world": (
        several(
            drop(REDUCE, lambda rank: rank["rank"] != 3, "ranks"),
            drop(REDUCE, lambda test: test["rank"] != 3),
            place(REDUCE, "test_info/world/size", 3),
        ),
        "3 ranks, 4 were planned",
    ),
    "no list of ranks": (place(REDUCE, "ranks", DELETED), "lists no ranks"),
    "a rank twice": (place(REDUCE, "ranks/3/rank", 2), "4 ranks of a world of 4"),
    "a rank without tests": (
        drop(REDUCE, lambda test: test["rank"] != 2),
        "no test allreduce.all_reduce of rank 2",
    ),
    "a rank's file twice": (ranks_apart(twice=True), "is of rank 2"),
    "a rank's file that is none, beside the merged": (
        beside("garbage"),
        "rank-00001.json says ERROR: allreduce/allreduce_result.ranks/rank-00001.json: truncated",
    ),
    "a rank that failed, and nobody heard": (beside("FAIL"), "rank-00001.json says FAIL: wrong"),
    "a world of a thousand million": (
        place(REDUCE, "test_info/world/size", 10**9),
        "token differs",
    ),
    # GPUs twice
    "one UUID twice": (place(CHECK, "devices/1/uuid", "GPU-a1-0"), "2 GPUs have the UUID"),
    "one UUID on two nodes": (place(OTHER, "devices/0/uuid", "GPU-a1-0"), "on a1 and on a2"),
    "one UUID in other letters": (
        place(CHECK, "devices/1/uuid", "GPU-A1-0"),
        "have the UUID",
    ),
    "one UUID with spaces": (place(CHECK, "devices/1/uuid", " GPU-a1-0 "), "have the UUID"),
    "one UUID with its kind in other letters": (
        place(CHECK, "devices/1/uuid", "gpu-a1-0"),
        "have the UUID",
    ),
    "one UUID without its kind": (place(CHECK, "devices/1/uuid", "a1-0"), "have the UUID"),
    "one UUID in other letters on two nodes": (
        place(OTHER, "devices/0/uuid", "GPU-A1-0"),
        "on a1 and on a2",
    ),
    "one index twice": (place(CHECK, "devices/1/index", 0), "have the index 0"),
    "one UUID on two hosts": (place(REDUCE, "devices/3/uuid", "GPU-a1-0"), "have the UUID"),
    # of another job, or damaged so that nobody can tell
    "an empty note of its beginning": (
        lambda files: files.update({"check/node0.begun": ""}),
        "has no token that its node noted",
    ),
    "a note without the token": (
        lambda files: files.update({"check/node0.begun": "a1\n"}),
        "has no token that its node noted",
    ),
    "a rank's node without its note": (
        lambda files: files.update({"allreduce/node1.begun": ""}),
        "has no token that its node noted",
    ),
    "another schema": (place(CHECK, "schema", "x"), "older format than its job writes"),
    "no schema": (place(CHECK, "schema", DELETED), "older format than its job writes"),
    # no end
    "no exit file": (lambda files: files.pop("check/node0.exit"), "wrote no exit code"),
    "empty exit file": (lambda files: files.update({"check/node0.exit": ""}), "no exit code"),
    "exit file with a word": (
        lambda files: files.update({"check/node0.exit": "ok"}),
        "no exit code",
    ),
    "no exit code inside": (place(CHECK, "summary/exit_code", DELETED), "has no exit code"),
    "another exit code inside": (place(CHECK, "summary/exit_code", 1), "is 1 beside a PASS"),
    "no summary": (place(CHECK, "summary", DELETED), "has no exit code"),
    "a rank's node without an end": (
        lambda files: files.pop("allreduce/node1.exit"),
        "wrote no exit code",
    ),
    "killed after it": (
        lambda files: files.update({"check/node0.exit": "137"}),
        "killed (SIGKILL)",
    ),
    "exit 77 after a PASS": (
        lambda files: files.update({"check/node0.exit": "77"}),
        "exit code 77",
    ),
    # figures that are none
    "NaN": (place(CHECK, f"{FIRST_METRIC}/value", NAN), "metrics[0].value is nan"),
    "Inf": (place(CHECK, f"{FIRST_METRIC}/value", INF), "metrics[0].value is inf"),
    "-Inf in the spread": (place(CHECK, f"{FIRST_METRIC}/p05", -INF), "p05 is -inf"),
    "NaN as text": (place(CHECK, f"{FIRST_METRIC}/value", "NaN"), "value is NaN"),
    "infinity as text": (place(CHECK, "tests/0/details/size", "-Infinity"), "size is -Infinity"),
    "nested NaN": (place(CHECK, "tests/0/details/nested/errors/1", NAN), "errors[1] is nan"),
    "nested NaN as text": (place(CHECK, "tests/0/details/nested/errors/1", "nan"), "is nan"),
    "NaN in a time": (place(CHECK, "tests/0/timing_ms", NAN), "timing_ms is nan"),
    "NaN of a device": (place(CHECK, "devices/0/power_limit_w", NAN), "power_limit_w is nan"),
    "NaN beside the tests": (place(CHECK, "telemetry", {"c": [NAN]}), "telemetry.c[0] is nan"),
    "too many digits": (place(CHECK, f"{FIRST_METRIC}/value", 10**400), "value is 1000"),
    "no value": (place(CHECK, f"{FIRST_METRIC}/value", None), "tflops has no value"),
    "a text as value": (place(CHECK, f"{FIRST_METRIC}/value", "700"), "tflops has no value"),
    "true as value": (place(CHECK, f"{FIRST_METRIC}/value", True), "tflops has no value"),
    "a rate below nothing": (place(CHECK, f"{FIRST_METRIC}/value", -700.0), "is -700 TFLOPS"),
    "a rate of nothing": (place(CHECK, f"{FIRST_METRIC}/value", 0), "is 0 TFLOPS"),
    "less is better": (place(CHECK, f"{FIRST_METRIC}/dir", "lower"), "fewer TFLOPS are better"),
    "nothing is better": (place(CHECK, f"{FIRST_METRIC}/dir", ""), "is not to be judged"),
    "above its samples": (place(CHECK, f"{FIRST_METRIC}/value", 7000.0), "of its own samples"),
    "percentiles crossed": (place(CHECK, f"{FIRST_METRIC}/p05", 711.0), "above p95"),
    "no figures": (place(CHECK, "tests/0/metrics", []), "matmul.fp64 has no tflops"),
    "no figures of ranks": (
        place(REDUCE, "tests/0/metrics", DELETED),
        "allreduce.all_reduce has no busbw_*",
    ),
    "figures of another thing": (
        place(CHECK, f"{FIRST_METRIC}/name", "clock"),
        "matmul.fp64 has no tflops",
    ),
    "another unit": (place(CHECK, f"{FIRST_METRIC}/unit", "TOPS"), "is in TOPS, not TFLOPS"),
    "no unit": (place(CHECK, f"{FIRST_METRIC}/unit", DELETED), "is in no unit, not TFLOPS"),
    "a test twice": (twice(CHECK, 0), "the test matmul.fp64 2 times"),
    "another method": (place(CHECK, "test_info/method_version", 9), "measured by method 9"),
    # verdicts that do not agree
    "a failed test under a PASS": (
        place(CHECK, "tests/0/status", "FAIL"),
        "",
    ),
    "a summary that failed": (place(CHECK, "summary/status", "FAIL"), "says FAIL, its tests PASS"),
    "an unknown verdict": (place(CHECK, "tests/0/status", "FINE"), "no verdict"),
    "no tests": (drop(CHECK, lambda _: False), "has no tests"),
    "two verdicts of one test": (said_twice(CHECK), "duplicate key status"),
}


def reasons(results: tuple[RunResult, ...]) -> str:
    return "\n".join(test.reason for each in results for test in each.tests)


def test_whole_results_pass() -> None:
    """So do ranks' own files where rank 0 merged nothing, and a clock that is minutes off.

    And the file of a rank that the job had at its first start, when it was larger.
    """
    files, apart, left = whole_run(), whole_run(), whole_run()
    ranks_apart(twice=False)(apart)
    failed = copy.deepcopy(files[REDUCE])
    failed["test_info"] |= {"rank": 7, "slurm": {"job_id": "6", "restart_count": None}}
    failed["tests"][0]["status"] = "FAIL"
    left["allreduce/allreduce_result.ranks/rank-00007.json"] = failed
    early = whole_run()
    for name in (CHECK, OTHER, REDUCE):
        place(name, "test_info/timestamp", "2027-01-15T07:20:00Z")(early)

    for each in (files, apart, left, early):
        assert {r.status for r in collected(each)} == {Status.PASS}, reasons(collected(each))


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_result_is_no_pass(name: str) -> None:
    """The reason says what is wrong with it."""
    damage, said = DAMAGES[name]
    files = whole_run()
    damage(files)

    results = collected(files)

    bad = [each for each in results if each.status in (Status.FAIL, Status.ERROR)]
    assert bad, [(each.test_type, each.status) for each in results]
    assert re.search(re.escape(said), reasons(results)), reasons(results)


@pytest.mark.parametrize(
    ("lacking", "expected"),
    [
        (("matmul.fp64", "matmul.fp64.residual"), Status.PASS),
        (("matmul.fp64", "matmul.fp32.residual"), Status.ERROR),
    ],
)
def test_a_skipped_test_stands_for_those_below_its_name(
    lacking: tuple[str, str], expected: Status
) -> None:
    """A GPU that is too small for a product has no residual of it either."""
    files, one = whole_run(), checked("a1")
    skipped = {"status": "SKIP", "code": "unsupported", "reason": "too small", "metrics": []}
    one["tests"] = [test for test in one["tests"] if test["name"] not in lacking]
    passed = len(one["tests"])
    one["tests"] += [{**a_test(lacking[0], 0, f"cuda:{i}", "a1"), **skipped} for i in range(GPUS)]
    one["summary"] |= {"passed": passed, "skipped": GPUS}
    files[CHECK] = one

    assert collected(files)[0].status is expected, reasons(collected(files))


def test_a_payload_that_was_skipped_is_no_damage_and_no_pass() -> None:
    """Beside the device, which is sound, `moe` has its name alone where transformers is absent."""
    origin = Origin(job_id=7, nodes=("a1",), started_at=1_800_000_000.0, gpus=1,
                    planned=tuple(f"moe {name}" for name in PLANNED["moe"]))  # fmt: skip
    absent = {"status": "SKIP", "code": "tool_absent", "reason": "no transformers", "metrics": []}
    skipped = {**a_test("moe", 0, "", "a1"), **absent}
    warned = {"status": "WARN", "code": "ecc_corrected", "reason": "corrected", "metrics": []}
    found = []
    for other in ({}, warned, {"status": "PASS", "metrics": []}):
        tests = [skipped, *([{**a_test("wear", 0, "cuda:0", "a1"), **other}] if other else [])]
        one = document("moe", "a1", tests, 1)
        one["ranks"] = [{"rank": 0, "host": "a1", "token": "moe-a1"}]
        one["devices"] = [{"index": 0, "name": "NVIDIA H200", "uuid": "GPU-a1-0"}]
        counts = {"passed": 0, "skipped": 1, "warned": 0, "exit_code": 0}
        counts |= {"passed": 1} if other.get("status") == "PASS" else {}
        counts |= {"warned": 1} if other.get("status") == "WARN" else {}
        one["summary"] |= {**counts, "status": other.get("status", "SKIP")}
        files = {"moe/moe_result.json": one, "moe/node0.begun": "a1\nmoe-a1\n",
                 "moe/node0.exit": "0\n"}  # fmt: skip
        data = {k: (v if isinstance(v, str) else json.dumps(v)).encode() for k, v in files.items()}
        found.append(collect(data, ["moe"], origin)[0].status)

    assert found == [Status.SKIP, Status.WARN, Status.ERROR]


def test_a_figure_that_is_none_is_what_a_failed_test_found() -> None:
    """A loss of NaN stays a FAIL."""
    one = checked("a1")
    one["tests"][0] |= {"status": "FAIL", "code": "nan_loss", "details": {"loss": NAN}}
    one["tests"][0]["metrics"][0]["value"] = NAN
    one["summary"] |= {"passed": len(one["tests"]) - 1, "failed": 1, "status": "FAIL"}

    result = parse(json.dumps(one))

    assert (result.status, result.code) == (Status.FAIL, "nan_loss")
    assert not [test for test in result.tests if test.code == "result_invalid"]


def test_words_that_name_no_figure_are_none() -> None:
    """An argument, a variable and a device may be called so."""
    one = checked("a1")
    one["test_info"]["argv"], one["env"]["vars"]["INF"] = ["--inject", "nan"], "inf"
    one["devices"][0]["name"] = "NaN"

    assert parse(json.dumps(one)).status is Status.PASS


def test_results_of_an_older_rv_are_still_read() -> None:
    """Their nodes noted no token, and their records no plan."""
    files = whole_run()
    for name in list(files):
        if name.endswith(".begun"):
            files[name] = files[name].split("\n")[0]
    for name in (CHECK, OTHER, REDUCE):
        del files[name]["test_info"]["token"]
        for rank in files[name]["ranks"]:
            del rank["token"]
    data = {
        n: (each if isinstance(each, str) else json.dumps(each)).encode()
        for n, each in files.items()
    }
    older = Origin(job_id=7, nodes=NODES, started_at=1_800_000_000.0)

    assert {r.status for r in collect(data, ["check", "allreduce"], older)} == {Status.PASS}


def without_rank_1() -> Files:
    """Two nodes of four ranks, of which rank 1 reported nothing; rank 6 saw an ECC error."""
    files = whole_run()
    hosts = [NODES[rank // 4] for rank in range(8)]
    listed = [r for r in range(8) if r != 1]
    gpus = [
        {"index": rank % 4, "name": "NVIDIA H200", "uuid": f"GPU-{rank}", "host": hosts[rank]}
        for rank in range(8)
    ]
    tests = [a_test("allreduce.all_reduce", r, f"cuda:{r % 4}", hosts[r]) for r in listed]
    tests[5] |= {"name": "health", "status": "FAIL", "code": "ecc_uncorrectable", "metrics": []}
    gone = {"name": "ranks", "status": "FAIL", "code": "rank_missing", "rank": 1, "host": "a1"}
    files[REDUCE] |= {
        "devices": gpus,
        "tests": [*tests, gone],
        "ranks": [{"rank": r, "host": hosts[r], "token": f"allreduce-{hosts[r]}"} for r in listed],
        "summary": {"status": "FAIL", "exit_code": 1, "passed": 6, "failed": 2},
    }
    files[REDUCE]["test_info"]["world"]["size"] = 8
    return files


def test_what_others_found_counts_where_a_rank_is_missing() -> None:
    """Those behind it are still on their own nodes, and so are their GPUs."""
    of_ranks = collected(without_rank_1())[-1]
    failed = {test.code: test.host for test in of_ranks.tests if test.status is Status.FAIL}

    assert failed == {"ecc_uncorrectable": "a2", "rank_missing": "a1"}
    assert [d.host for d in of_ranks.devices] == ["a1"] * 4 + ["a2"] * 4
    (bad,) = bad_nodes([of_ranks], "run", 2e9, 7)
    assert (bad.node, bad.uuids) == ("a2", ("GPU-6",))


def test_a_result_of_one_node_that_lists_other_ranks_is_no_traceback() -> None:
    """Only ranks of its own node are its."""
    files = whole_run()
    files[CHECK]["ranks"] *= 2

    assert {each.status for each in collected(files) if each.hostname == "a1"} >= {Status.ERROR}
