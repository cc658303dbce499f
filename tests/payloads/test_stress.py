"""stress.py: continuous, right bit by bit, and never passing what hung, died or was not seen."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _harness.ranks import Ranks
from _harness.report import Report

from rv.payloads._burn import build, gpu_burn, plan, soak, verdicts
from rv.payloads._burn.peer_copies import Pace
from rv.payloads._processes import processes, programs
from rv.payloads.contract import codes as table
from tests.payloads.burning import by_name, codes, run, start

FOUR = (
    "12.5%  proc'd: 100 (52000 Gflop/s) - 101 (52100 Gflop/s) - 99 (51900 Gflop/s) "
    "- 100 (52000 Gflop/s)   errors: 0 - 0 - 0 - 0   temps: 60 C - 61 C - 59 C - --   power: 640 W - -- - 655 W - -- \r"
)
LATER = FOUR.replace("12.5%", "100.0%").replace("proc'd: 10", "proc'd: 90").replace("- 10", "- 90")
LATER = LATER.replace("- 99 (", "- 899 (").replace("59 C", "64 C")
TABLE = "\nTested 4 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK\n\tGPU 2: OK\n\tGPU 3: OK\n"
GOOD = FOUR + "\n\tSummary at:   Fri Nov 20 10:00:00 UTC 2026\n\n" + LATER + "\ndone\n" + TABLE


def judged(text: str, expected: int = 4) -> list[tuple[str, str]]:
    judged = gpu_burn.judge(gpu_burn.parse(text), expected)
    return [(status, code) for status, code, _ in judged]


PASS = ("PASS", "")
FAILED = ("FAIL", "engine_failed")


def test_gpu_burns_rates_are_held_against_each_other() -> None:
    """As those of the torch engine: one of four that is a tenth slower is named."""
    text = GOOD.replace("899 (51900", "899 (46000")
    labels = [f"cuda:{index}" for index in range(4)]
    report = Report("stress", Ranks())
    rates = gpu_burn.rates(gpu_burn.parse(text), labels, dict.fromkeys(labels, "NVIDIA H200"))

    verdicts.add_peers(report, rates)

    assert [round(rate.tflops, 1) for rate in rates] == [52.0, 52.1, 46.0, 52.0]
    (found,) = report.tests
    assert (found["status"], found["code"], found["device"]) == ("FAIL", "peer_outlier", "cuda:2")
    verdicts.add_peers(report, [rates[0], rates[1]])
    assert report.tests[-1]["status"] == "PASS"


def test_gpu_burns_text_is_read_whole() -> None:
    burn = gpu_burn.parse(GOOD)

    assert judged(GOOD) == [PASS] * 4
    assert [gpu.products for gpu in burn.gpus] == [900, 901, 899, 900]
    assert [gpu.hottest for gpu in burn.gpus] == [60, 61, 64, None]
    assert burn.gpus[0].rates == [52000, 52000]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (GOOD.replace("GPU 2: OK", "GPU 2: FAULTY"), [PASS, PASS, ("FAIL", "wrong_result"), PASS]),
        (
            GOOD.replace(
                "errors: 0 - 0 - 0 - 0", "errors: 0 - 7  (WARNING!)- 0 - 3  (WARNING!)", 1
            ),
            [PASS, ("FAIL", "wrong_result"), PASS, ("FAIL", "wrong_result")],
        ),
        (GOOD.replace("899 (51900", "99 (0"), [PASS, PASS, FAILED, PASS]),
        (
            GOOD.replace("899 (51900 Gflop/s)", "-1 (0 Gflop/s)").replace(
                "0 - 0 - 0 - 0   temps: 60 C - 61 C - 64",
                "0 - 0 - -1  (DIED!)- 0   temps: 60 C - 61 C - 64",
            ),
            [PASS, PASS, FAILED, PASS],
        ),
        (GOOD.replace("99 (", "0 (").replace("8" + "0 (", "0 ("), [PASS, PASS, FAILED, PASS]),
        (FOUR, [FAILED] * 4),
        ("", [("ERROR", "engine_failed")] * 4),
        (
            'Couldn\'t init a GPU test: Error in "cuInit"\n' + TABLE,
            [("ERROR", "engine_failed")] * 4,
        ),
        ("No CUDA devices\n", [("ERROR", "engine_failed")] * 4),
    ],
    ids=["faulty", "warned", "hung", "died", "nothing", "killed", "silent", "no-init", "no-device"],
)
def test_a_burn_that_failed_in_any_way_never_passes(
    text: str, wanted: list[tuple[str, str]]
) -> None:
    assert judged(text) == wanted


def test_a_gpu_that_gpu_burn_did_not_see_fails() -> None:
    assert judged(GOOD, expected=5) == [PASS] * 4 + [FAILED]


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def nvcc(folder: Path, release: str) -> Path:
    return program(
        folder / "nvcc", f"#!/bin/sh\necho 'Cuda compilation tools, release {release}'\n"
    )


def test_nvcc_on_the_path_comes_first(tmp_path: Path) -> None:
    nvcc(tmp_path / "usr/local/cuda/bin", "12.9, V1")
    mine = nvcc(tmp_path / "mine", "12.4, V1")

    found = build.find_toolkit({"PATH": str(mine.parent)}, None, tmp_path)

    assert (found.nvcc, found.version) == (mine, (12, 4))


def test_the_newest_nvcc_that_the_driver_runs_is_taken(tmp_path: Path) -> None:
    for release in ("9.2", "11.8", "12.1", "13.0"):
        nvcc(tmp_path / f"usr/local/cuda-{release}/bin", f"{release}, V1")

    found = build.find_toolkit({"PATH": ""}, (12, 4), tmp_path)

    assert found.version == (12, 1)


def test_a_named_toolkit_comes_before_the_common_places(tmp_path: Path) -> None:
    nvcc(tmp_path / "usr/local/cuda/bin", "12.9, V1")
    nvcc(tmp_path / "home/bin", "12.2, V1")

    found = build.find_toolkit({"CUDA_HOME": str(tmp_path / "home")}, None, tmp_path)

    assert found.version == (12, 2)


def test_a_missing_toolkit_is_told_with_the_places_looked_into(tmp_path: Path) -> None:
    program, notes = build.find_gpu_burn({"PATH": "", "HOME": str(tmp_path)}, "9.0", tmp_path)

    assert program is None
    assert "/usr/local/cuda/bin" in notes[0]
    assert "/opt/cuda/bin" in notes[0]


MAKEFILE = "gpu_burn: compare.cu\n\t$(CUDAPATH)/bin/nvcc --version > $@\n\techo $(COMPUTE) >> $@\n\tchmod +x $@\n"


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, str]:
    """Sources of a gpu-burn, a toolkit, and an environment that names both."""
    nvcc(tmp_path / "cuda/bin", "12.4, V1")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/compare.cu").write_text("// a kernel\n")
    (tmp_path / "src/Makefile").write_text(MAKEFILE)
    (tmp_path / "tmp").mkdir()
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path / "nowhere"),
        "CUDA_HOME": str(tmp_path / "cuda"),
        "GPU_BURN_SOURCE": str(tmp_path / "src"),
        "TMPDIR": str(tmp_path / "tmp"),
    }


def test_gpu_burn_is_compiled_once_for_a_capability(
    sources: dict[str, str], tmp_path: Path
) -> None:
    first, notes = build.find_gpu_burn(sources, "9.0", tmp_path)
    second, _ = build.find_gpu_burn(sources, "9.0", tmp_path)
    other, _ = build.find_gpu_burn(sources, "8.0", tmp_path)

    assert first is not None
    assert "9.0" in first.read_text()
    assert "Successfully compiled gpu-burn" in notes
    assert second == first
    assert other not in (None, first)
    assert not (tmp_path / "src/gpu_burn").exists()  # the user's own folder is left alone


def test_the_sources_are_cloned_where_that_is_asked_for(
    sources: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the real git, from a repository that stands in for the one on the network.

    What was pushed there since is not what runs, be it on the branch or moved to the same name.
    """
    kept = sources.pop("GPU_BURN_SOURCE")
    git = ("git", "-C", kept, "-c", "user.name=n", "-c", "user.email=e@localhost")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    monkeypatch.setattr(build, "COMMIT", head.stdout.strip(), raising=False)
    (Path(kept) / "Makefile").write_text("gpu_burn:\n\techo stolen >gpu_burn\n")
    subprocess.run([*git, "commit", "-qam", "more"], check=True)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.{kept}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", build.SOURCE)

    assert build.find_gpu_burn(sources, "9.0", tmp_path)[0] is None
    program, notes = build.find_gpu_burn(sources, "9.0", tmp_path, fetch=True)

    assert program is not None, notes
    assert "stolen" not in program.read_text()
    assert "9.0" in program.read_text()


@pytest.mark.parametrize(
    "said",
    [
        "a.cpp:3:4: error: no cublas",
        "a.cpp:3:4: fatal error: cublas.h: No such file or directory",
        "nvcc fatal   : Unsupported gpu architecture compute_100",
        "/usr/bin/ld: cannot find -lcublas",
    ],
)
def test_a_compiler_that_fails_is_a_note_and_no_program(
    sources: dict[str, str], tmp_path: Path, said: str
) -> None:
    """The note has the compiler's word, not make's, which comes last and says only "Error 1"."""
    (tmp_path / "src/Makefile").write_text(f"gpu_burn:\n\t@echo '{said}' && false\n")

    program, notes = build.find_gpu_burn(sources, "9.0", tmp_path)

    assert program is None
    assert notes[-1] == f"gpu-burn does not compile: {said}"


def test_a_clean_burn_of_two_workers_passes(tmp_path: Path) -> None:
    """Without gaps, each worker counted, its products compared and equal to its peer's."""
    code, text, result = run("stress", tmp_path, "--workers", 2, "--duration", 1, "--memory", 4)

    assert code == 0, text
    burns = [test for test in result["tests"] if test["name"] == "stress.torch"]
    assert [test["device"] for test in burns] == ["cpu:0", "cpu:1"]
    assert all(test["details"]["products"] > 0 for test in burns)
    assert all(test["metrics"][0]["value"] > 0 for test in burns)
    assert by_name(result, "stress.digest")["status"] == "PASS"
    assert by_name(result, "telemetry")["code"] == "unsupported"
    assert "errors 0" in text
    assert json.loads((tmp_path / "stress_heartbeat.json").read_text())["devices"]


def test_each_fault_of_a_worker_is_found_and_named(tmp_path: Path) -> None:
    """A flipped bit, another product, a death, a hang, and products that are not made, or half, or
    proven wrong before any is counted: one a worker, all in one run."""
    faults = [
        "bitflip:rank=0", "digest:rank=1", "crash:rank=2", "hang:rank=3",
        "not-launched:rank=4", "half-written:rank=5", "wrong-reference:rank=6",
    ]  # fmt: skip
    words = [word for fault in faults for word in ("--inject", fault)]
    code, text, result = run(
        "stress", tmp_path, "--workers", 7, "--duration", 1, "--silence", 10, *words
    )

    assert code == 1, text
    found = {test["device"]: test for test in result["tests"] if test["name"] == "stress.torch"}
    assert (found["cpu:0"]["code"], found["cpu:0"]["details"]["wrong_elements"]) == (
        "wrong_result",
        1,
    )
    assert found["cpu:1"]["status"] == "PASS"
    assert (found["cpu:2"]["code"], "code 9" in found["cpu:2"]["reason"]) == ("worker_failed", True)
    assert (found["cpu:3"]["code"], "hung" in found["cpu:3"]["reason"]) == ("worker_failed", True)
    wrong = [found[f"cpu:{number}"]["details"]["wrong_elements"] for number in (4, 5)]
    assert wrong == [256 * 256, 256 * 256 / 2]
    assert found["cpu:6"]["code"] == "residual_too_large"
    assert found["cpu:4"]["details"]["compared"] == found["cpu:4"]["details"]["products"]
    digest = by_name(result, "stress.digest")
    assert (digest["code"], digest["device"]) == ("digest_mismatch", "cpu:1")


def test_others_on_its_devices_and_slow_ones_are_found(tmp_path: Path) -> None:
    """A worker far behind its peer, a process, held memory, lost time, and a known model's rate."""
    faults = ["slow:rank=1", "busy", "held", "contended", "below"]
    words = [word for fault in faults for word in ("--inject", fault)]
    code, text, result = run("stress", tmp_path, "--workers", 2, "--duration", 2, *words)

    assert code == 1, text
    assert codes(result) == {
        "peer_outlier", "gpu_busy", "memory_held", "contended", "below_floor",
    }  # fmt: skip
    assert by_name(result, "stress.peers")["device"] == "cpu:1"
    classes = {test["code"]: test["class"] for test in result["tests"] if test["code"]}
    assert {classes[each] for each in ("gpu_busy", "peer_outlier")} == {"CONTENTION"}


def test_each_fault_of_the_telemetry_is_found(tmp_path: Path) -> None:
    faults = [
        "throttle-mask:value=0x44",
        "ecc",
        "remap",
        "temperature:value=91",
        "utilisation:value=50",
        "pcie-width:value=8",
    ]
    words = [word for fault in faults for word in ("--inject", fault)]
    code, text, result = run("stress", tmp_path, "--duration", 1, *words)

    assert code == 1, text
    wanted = {"throttled_thermal", "ecc_uncorrectable", "row_remap", "too_hot"}
    assert codes(result) == wanted
    assert codes(result, "WARN") == {"pcie_degraded", "underloaded"}
    told = result["telemetry"]["per_device"][0]
    assert told["throttle_s"]["hardware thermal slowdown"] > 0
    assert (tmp_path / "telemetry.jsonl").exists()


def test_a_signal_ends_it_with_its_summary(tmp_path: Path) -> None:
    """TERM, as scancel and timeouts send it: what was burned is judged, and nothing stays."""
    words = (
        "--duration",
        600,
        "--device",
        "cpu",
        "--report-dir",
        tmp_path,
        "--report-name",
        "r.json",
    )
    with start("stress", *words) as process:
        wait_for(lambda: beating(tmp_path), process)
        workers = processes.below(process.pid)
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=120)

    assert process.returncode in (130, 143), text
    result = json.loads((tmp_path / "r.json").read_text())
    assert by_name(result, "stress.torch")["status"] == "PASS"
    assert by_name(result, "stress.torch")["details"]["products"] > 0
    assert codes(result, "ERROR") == {"interrupted"}
    assert workers
    wait_for(lambda: not any(processes.is_alive(worker) for worker in workers))


def test_types_take_turns_with_other_factors(tmp_path: Path) -> None:
    """Each is compared to its last product, and has a rate of its own; a fault of each is found."""
    words = ("--rotate", 0.5, "--duration", 10, "--size", 128, "--memory", "2M")
    code, text, result = run("stress", tmp_path, *words, "--inject", "bitflip")

    burned = by_name(result, "stress.torch")
    assert (code, burned["code"]) == (1, "wrong_result"), text
    assert 3 <= burned["details"]["wrong_elements"] <= 20, "one of each turn, and no more"
    assert burned["details"]["turns"] == ["float32", "float64", "bfloat16"]
    assert burned["details"]["compared"] == burned["details"]["products"]
    assert {(each["name"], each["dtype"]) for each in burned["metrics"]} == {
        ("tflops", "float32"), ("tflops.float64", "float64"), ("tflops.bfloat16", "bfloat16"),
    }  # fmt: skip
    turning = plan.Job("cpu", 0, "x", (), 0, 7, {}, 0, ("a", "b"))
    assert len({turning.turn(number).seed for number in range(4)}) == 4


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("p2p-lost", "peer_copy_mismatch"),
        ("p2p-bitflip", "peer_copy_mismatch"),
        ("p2p-stops", "slow_link"),
    ],
)
def test_copies_beside_the_products_are_compared(tmp_path: Path, fault: str, code: str) -> None:
    """One that does not come, one with another bit, and no more after the first; the other
    worker's are right."""
    words = ("--with-p2p", "--workers", 2, "--duration", 2, "--size", 128, "--memory", "2M")
    ended, text, result = run("stress", tmp_path, *words, "--inject", f"{fault}:rank=1")

    found = {test["device"]: test for test in result["tests"] if test["name"] == "stress.p2p"}
    assert (ended, codes(result)) == (1, {code}), text
    assert (found["cpu:0"]["status"], found["cpu:1"]["status"]) == ("PASS", "FAIL")
    assert found["cpu:0"]["details"]["copies"] > 0
    assert found["cpu:1"]["class"] == table.CODES[code].fault


@pytest.mark.parametrize(
    ("arrived", "seconds", "halts"),
    [
        ([8 * n for n in range(1, 31)], 0.2, False),
        ([8 * (n // 3) for n in range(1, 31)], 0.2, False),  # three batches each: a slow link
        ([8] * 30, 0.2, True),
        ([8 * min(n, 15) for n in range(1, 31)], 0.2, True),  # from the middle on
        ([8 * min(n, 980) for n in range(1, 1001)], 0.6, True),  # 12 s at the end of ten minutes
        ([8] * 4, 0.2, False),
    ],
)
def test_copies_that_stop_are_told(arrived: list[int], seconds: float, halts: bool) -> None:
    """By batches of products in a row that saw none arrive, or by seconds."""
    pace = Pace()
    for number, copies in enumerate(arrived):
        pace.note(copies, number * seconds)
    assert bool(pace.halt()) == halts


def test_a_device_alone_has_no_peer(tmp_path: Path) -> None:
    """That is said; and a fault of the copies that nothing makes is an error."""
    words = ("--with-p2p", "--duration", 1, "--size", 128, "--memory", "2M")
    code, _, result = run("stress", tmp_path, *words, "--inject", "p2p-lost")
    assert (code, by_name(result, "stress.p2p")["status"]) == (99, "SKIP")
    assert codes(result, "ERROR") == {"no_effect"}


def test_a_soak_goes_on_after_a_kill(tmp_path: Path) -> None:
    """With the count of the run before, wrong elements too; once it is whole its file is gone."""
    kept = tmp_path / "stress_soak.json"
    words = ("--soak", "--duration", 8, "--device", "cpu", "--report-dir", tmp_path)
    with start("stress", *words, "--inject", "bitflip") as process:
        wait_for(lambda: kept.exists() and beating(tmp_path), process)
        wait_for(lambda: by_device(kept)["wrong"] > 0, process)
        process.kill()
    first = by_device(kept)
    seconds = json.loads(kept.read_text())["seconds"]

    code, text, result = run("stress", tmp_path, "--soak", "--duration", 8)

    whole = by_name(result, "stress.soak")
    assert (code, whole["code"]) == (1, "wrong_result"), text
    assert by_name(result, "stress.torch")["status"] == "PASS"  # this run's own
    assert whole["details"]["runs"] == 2
    assert whole["details"]["devices"]["cpu:0"]["products"] > first["products"]
    assert f"goes on after {seconds:.0f} of 8 s in 1 run(s)" in text
    assert not kept.exists()


def by_device(path: Path) -> dict[str, int]:
    """The count of the only device in a soak's file."""
    (count,) = json.loads(path.read_text())["devices"].values()
    return dict(count)


def test_a_soak_that_is_cut_short_says_how_to_go_on(tmp_path: Path) -> None:
    """And is an error until it is whole."""
    words = ("--soak", "--duration", 600, "--device", "cpu", "--report-dir", tmp_path, "--report-name", "r.json")  # fmt: skip
    with start("stress", *words) as process:
        wait_for(lambda: beating(tmp_path), process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)

    cut = by_name(json.loads((tmp_path / "r.json").read_text()), "stress.soak")
    assert (cut["status"], cut["code"]) == ("ERROR", "interrupted")
    assert "of 600 s of the soak are done" in cut["reason"]


def test_what_is_not_taken_over_is_told(tmp_path: Path) -> None:
    """Wrong elements that stood there are not forgotten in silence."""
    kept = {
        "asked_s": 9.0,
        "seconds": 3.0,
        "runs": 1,
        "devices": {"b": {"products": 9, "wrong": 5}},
    }
    for text, told in ((json.dumps(kept), ["result_stale"]), ("{", ["result_stale"]), ("", [])):
        (tmp_path / soak.NAME).write_text(text)
        report = Report("stress", Ranks())
        soak.Keeper(tmp_path, 9.0, {"cpu:0": "a"}).add(report, [])
        assert [test["code"] for test in report.tests[1:]] == told


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({}, ("PASS", "")),
        ({"compared": 9}, ("ERROR", "could_not_run")),
        ({"compared": 9, "state": "cut"}, ("PASS", "")),
        ({"turns": ("float32", "float64")}, ("WARN", "not_run")),
    ],
)
def test_what_was_not_compared_or_not_burned_is_no_pass(
    more: dict[str, Any], verdict: tuple[str, str]
) -> None:
    """Ten products, of one of two types."""
    made = {"products": 10, "compared": 10, "state": "done", "by_dtype": {"float32": [1]}, **more}
    job = SimpleNamespace(label="cpu:0", device="cpu", faults={}, turns=made.pop("turns", ()))
    worker: Any = SimpleNamespace(job=job, errors=0, rates=[], **made)
    assert verdicts._judge(worker)[:2] == verdict


@pytest.mark.parametrize(
    ("change", "seconds"),
    [
        ({}, 30.0),
        ({"asked_s": 50.0}, 0.0),
        ({"seconds": 100.0}, 0.0),
        ({"seconds": -1.0}, 0.0),
        ({"runs": 1.5}, 0.0),
        ({"devices": {"b": {"products": 1, "compared": 1, "wrong": 0}}}, 0.0),
        ({"devices": {"a": {"products": -1, "compared": 1, "wrong": 0}}}, 0.0),
        ({"devices": {"a": {"products": 1}}}, 30.0),
        ({"devices": {"a": {"products": 0}}}, 0.0),
    ],
)
def test_another_soaks_file_is_no_head_start(change: dict[str, object], seconds: float) -> None:
    """Of other GPUs, of another length, or with counts that cannot be."""
    count = {"products": 5, "compared": 5, "wrong": 0}
    document = {"asked_s": 100.0, "seconds": 30.0, "runs": 1, "devices": {"a": count}, **change}
    assert soak.parse_soak(json.dumps(document), 100.0, ["a"]).seconds == seconds
    assert soak.parse_soak("[]", 100.0, ["a"]).left_s == 100.0


def test_workers_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    with start("stress", "--duration", 600, "--device", "cpu", "--report-dir", tmp_path) as process:
        wait_for(lambda: beating(tmp_path), process)
        workers = processes.below(process.pid)
        process.kill()
        process.communicate(timeout=120)

    assert workers
    wait_for(lambda: not any(processes.is_alive(worker) for worker in workers))


def test_a_detached_burn_is_seen_and_stopped(tmp_path: Path) -> None:
    folder = ("--device", "cpu", "--report-dir", tmp_path)
    with start("stress", "--detach", *folder) as process:
        text, _ = process.communicate(timeout=120)
    assert (process.returncode, "PID" in text) == (0, True), text
    known = programs.read_pid_file(tmp_path / "stress.pid")
    assert known is not None
    wait_for(lambda: beating(tmp_path))
    with start("stress", "--status", *folder) as status:
        seen, _ = status.communicate(timeout=120)
    workers = processes.below(known.pid)
    with start("stress", "--stop", *folder) as stop:
        stopped, _ = stop.communicate(timeout=120)

    assert (status.returncode, f"running as process {known.pid}" in seen) == (0, True), seen
    assert (stop.returncode, "stopped" in stopped) == (0, True), stopped
    wait_for(lambda: not any(processes.is_alive(process) for process in [known, *workers]))
    result = json.loads((tmp_path / "stress_result.json").read_text())
    assert result["summary"]["status"] == "PASS"  # stopped is how an endless burn ends


def test_stop_ends_with_the_burns_verdict(tmp_path: Path) -> None:
    """A burn that found a fault, stopped or ended by itself; one whose result was lost is none."""
    folder = ("--device", "cpu", "--report-dir", tmp_path)
    with start("stress", "--detach", *folder, "--memory", "64", "--inject", "crash") as process:
        process.communicate(timeout=120)
    wait_for((tmp_path / "stress_result.json").exists)
    with start("stress", "--stop", *folder) as stop:
        said, _ = stop.communicate(timeout=120)
    assert (stop.returncode, "[RESULT] FAIL" in said) == (1, True), said

    (tmp_path / "stress_result.json").write_text('{"summary": {"status": "PASS"}}')
    with start("stress", "--detach", *folder) as process:
        process.communicate(timeout=120)
    known = programs.read_pid_file(tmp_path / "stress.pid")
    assert known is not None
    os.kill(known.pid, signal.SIGKILL)
    wait_for(lambda: not processes.is_alive(known))
    with start("stress", "--stop", *folder) as stop:
        said, _ = stop.communicate(timeout=120)
    assert stop.returncode == 99, said


def test_more_memory_than_there_is_is_refused_in_a_line(tmp_path: Path) -> None:
    code, text, result = run("stress", tmp_path, "--memory", "9000G")

    assert (code, codes(result, "ERROR")) == (99, {"out_of_memory"}), text
    assert "--memory asks for" in text.splitlines()[-1]


@pytest.mark.parametrize("words", [["--memory", "0%"], ["--memory", "lots"], ["--workers", "0"]])
def test_wrong_flags_are_usage_errors(words: list[str], tmp_path: Path) -> None:
    code, _, result = run("stress", tmp_path, *words)

    assert (code, result) == (2, {})


FAKE_BURN = """#!/bin/sh
printf "10.0%%%%  proc'd: 50 (900 Gflop/s)   errors: 0   temps: 50 C \\r"
printf "100.0%%%%  proc'd: %s (900 Gflop/s)   errors: 0   temps: 55 C \\r"
printf "\\nTested 1 GPUs:\\n\\tGPU 0: OK\\n"
"""


@pytest.mark.parametrize(
    ("products", "code", "found"),
    [(500, 0, set()), (50, 1, {"engine_failed"})],
    ids=["good", "hung"],
)
def test_gpu_burn_is_judged_by_its_text_and_not_by_its_exit_code(
    products: int, code: int, found: set[str], tmp_path: Path
) -> None:
    """It ends with 0 however its GPUs are, and says OK of one that hung."""
    program(tmp_path / "bin/gpu_burn", FAKE_BURN % products)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"

    ended, text, result = run(
        "stress", tmp_path, "--engine", "gpu-burn", "--duration", 1, PATH=path
    )

    assert (ended, codes(result)) == (code, found), text


@pytest.mark.parametrize(
    "words",
    [("--dtype", "float16"), ("--size", 64), ("--mode", "pulse"), ("--inject", "bitflip")],
    ids=lambda words: words[0],
)
def test_what_gpu_burn_cannot_do_is_not_promised(words: tuple[object, ...], tmp_path: Path) -> None:
    """A flag that did nothing would be a lie, and an injected fault that is not made a PASS."""
    program(tmp_path / "bin/gpu_burn", FAKE_BURN % 500)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"

    ended, text, _ = run(
        "stress", tmp_path, "--engine", "gpu-burn", "--duration", 1, *words, PATH=path
    )

    assert ended == 2
    assert f"gpu-burn has no {words[0]}" in text


@pytest.mark.parametrize(("asked", "told"), [("512", "-m 512 "), ("50%", "-m 50% ")])
def test_gpu_burn_fills_what_was_asked_for(asked: str, told: str, tmp_path: Path) -> None:
    """MiB, or a share."""
    burn = tmp_path / "bin/gpu_burn"
    program(burn, (FAKE_BURN % 500).replace("\n", f'\necho "$* " >{tmp_path}/words\n', 1))
    path = f"{burn.parent}:{os.environ['PATH']}"

    run("stress", tmp_path, "--engine", "gpu-burn", "--duration", 1, "--memory", asked, PATH=path)

    assert told in (tmp_path / "words").read_text()


def wait_for(what: object, process: subprocess.Popen[str] | None = None) -> None:
    """Wait until something is so; give up after a long time, or when the process ended."""
    assert callable(what)
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline, "gave up waiting"
        assert process is None or process.poll() is None, "it ended early"
        time.sleep(0.05)


def beating(folder: Path) -> bool:
    """Whether a burn has counted products."""
    try:
        devices = json.loads((folder / "stress_heartbeat.json").read_text())["devices"]
    except (OSError, ValueError):
        return False
    return bool(devices) and all(device["products"] for device in devices)


@pytest.fixture
def sleeper() -> "subprocess.Popen[bytes]":
    """A stranger's process."""
    return subprocess.Popen(["sleep", "600"])


def test_stop_never_touches_a_process_that_got_the_number_later(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]"
) -> None:
    """The pid file's number is alive, but it is not the process that was started."""
    known = processes.identify(sleeper.pid)
    assert known is not None
    note = {"pid": known.pid, "start": known.start - 1, "boot": known.boot}
    (tmp_path / "stress.pid").write_text(json.dumps(note))

    with pytest.raises(programs.NotStopped, match="another's"):
        programs.stop(tmp_path / "stress.pid")

    assert sleeper.poll() is None
    note |= {"start": known.start, "boot": "another boot"}
    (tmp_path / "stress.pid").write_text(json.dumps(note))
    with pytest.raises(programs.NotStopped, match="another's"):
        programs.stop(tmp_path / "stress.pid")
    assert sleeper.poll() is None
    sleeper.kill()
    sleeper.wait()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"pid": "x"}', "12345"])
def test_a_pid_file_that_is_none_stops_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "stress.pid").write_text(text)

    with pytest.raises(programs.NotStopped, match="names no process"):
        programs.stop(tmp_path / "stress.pid")


def test_a_program_is_ended_with_all_it_started(tmp_path: Path) -> None:
    """A grandchild whose parent is gone is found too."""
    script = (
        "import subprocess, os; subprocess.Popen(['sleep', '600']); print(os.getpid(), flush=True)"
    )
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from _processes import processes, programs; import os\n"
        "out = programs.run_limited([sys.executable, '-c', sys.argv[3]], log=Path(sys.argv[2]), timeout=60)\n"
        "print(out.returncode, len(processes.below(os.getpid())))"
    )
    payloads = Path(programs.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code, str(payloads), str(tmp_path / "log"), script],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.stdout.split() == ["0", "0"], done.stderr
