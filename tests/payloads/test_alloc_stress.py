"""alloc_stress.py on CPUs: slots are CPUs there, and everything else is as on GPUs."""

import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import alloc_stress
import pytest
from _harness import flags
from contract import nvidia

from rv.payloads._workers import expected, launches, slots, verdicts, workers
from rv.payloads._workers.workers import MATRICES, MIB, Order, side
from tests.payloads.starting import Done, Launcher

CPU = ("--device", "cpu")
ASKED = """
    import os, sys
    print("CUDA_VISIBLE_DEVICES is", os.environ.get("CUDA_VISIBLE_DEVICES"))
    print("gpu" if "--gpu_ids" in sys.argv else "no cuda", *sys.argv[1:])
    """


def by_name(run: Done) -> dict[str, dict[str, Any]]:
    """The tests of a result, by name."""
    return {test["name"]: test for test in run.result["tests"]}


def eventually_gone(pids: list[str]) -> None:
    """Wait until processes are gone, or wait to be reaped."""
    deadline = time.monotonic() + 30
    for pid in pids:
        stat = Path(f"/proc/{pid}/stat")
        while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline, f"{pid} is still there"
            time.sleep(0.05)


def test_workers_have_their_slots_and_give_all_back(launch: Launcher, tmp_path: Path) -> None:
    """Round robin, alone in its slot, at the same time, and gone."""
    words = (*CPU, "--workers", 2, "--duration", 3, "--skip-launch", "--scaling", "--memory", 64,
             "--balance", 1000, "--telemetry", "gpu.csv")  # fmt: skip
    (tmp_path / "bin").mkdir()
    recorder = tmp_path / "bin" / "nvidia-smi"
    recorder.write_text(
        '#!/bin/sh\ncase $* in *"-l 1") echo "$*"; exec sleep 600 ;; esac; exit 1\n'
    )
    recorder.chmod(0o755)
    path = f"{recorder.parent}:{os.environ['PATH']}"
    run = launch("alloc_stress", tmp_path, *words, PATH=path)

    assert run.code == 0, run.out
    assert "utilization.gpu,memory.used" in (tmp_path / "gpu.csv").read_text()
    named = by_name(run)
    workers = named["alloc.workers"]["details"]["workers"]
    allowed = sorted(os.sched_getaffinity(0))
    wanted = [str(allowed[number % min(2, len(allowed))]) for number in range(2)]
    assert [one["seen"] for one in workers] == wanted
    assert all(one["operations"] > 0 and one["status"] == "success" for one in workers)
    assert named["alloc.workers"]["details"]["overlap_s"] > 0
    assert not any(Path(f"/proc/{one['pid']}").exists() for one in workers)
    assert named["alloc.processes"]["status"] == named["alloc.isolation"]["status"] == "PASS"
    if len(allowed) > 1:
        [scaling] = named["alloc.scaling"]["metrics"]
        assert scaling["value"] > 0
        assert workers[0]["alone_ops_per_second"] > 0
    assert "alone_ops_per_second" not in workers[1] or len(allowed) == 1
    assert "Successful Workers: 2/2" in run.out
    assert "Success Rate: 100.0%" in run.out


def test_every_detector_sees_its_fault(launch: Launcher, tmp_path: Path) -> None:
    """All at once, in workers of their own; what was left behind is ended."""
    faults = ("die:worker=0", "wrong-slot:worker=1", "leak:worker=2", "unbalanced", "held-memory",
              "neighbour")  # fmt: skip
    words = (word for fault in faults for word in ("--inject", fault))
    run = launch(
        "alloc_stress", tmp_path, *CPU, "--workers", 3, "--duration", 1, "--skip-launch", *words
    )

    assert run.code == 1
    expected = {
        "alloc.workers": "worker_failed",
        "alloc.isolation": "gpu_not_ours",
        "alloc.balance": "unbalanced",
        "alloc.processes": "process_leak",
        "alloc.memory": "memory_leak",
        "alloc.neighbours": "neighbour_reachable",
        "alloc.launch": "not_asked",
    }
    is_one_cpu = len(os.sched_getaffinity(0)) == 1  # no slot is another's then
    if is_one_cpu:
        del expected["alloc.balance"], expected["alloc.isolation"]
    assert expected.items() <= run.coded.items()
    assert f"{1 + is_one_cpu} of 3 workers succeeded; worker 0 on cpu:" in run.reasons
    assert "Traceback" not in run.out


def test_a_worker_that_computes_nothing_right_or_stands_still_fails(
    launch: Launcher, tmp_path: Path
) -> None:
    """One of five each, which the rate of success would let pass; and GPUs that do not add up."""
    wrong = ("nan:worker=0", "hollow:worker=1", "swapped:worker=3")
    faults = (*wrong, "still:worker=2", "no-scaling")
    words = (word for fault in faults for word in ("--inject", fault))
    sizes = ("--workers", 5, "--duration", 2, "--skip-launch", "--scaling", "--ops-floor", 1e9)
    run = launch("alloc_stress", tmp_path, *CPU, *sizes, *words)

    assert run.code == 1
    assert {
        "alloc.products": "wrong_result",
        "alloc.progress": "worker_failed",
        "alloc.operations": "below_floor",
    }.items() <= run.coded.items()
    assert len(os.sched_getaffinity(0)) == 1 or run.coded["alloc.scaling"] == "below_floor"
    assert "wrong products of 3 workers, first worker 0 on cpu:" in run.reasons
    assert "worker 2 on cpu:" in run.reasons
    assert "alloc.workers" not in run.coded


def test_a_worker_that_never_got_ready_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not in the time of its slot alone: the workers of the others would give up before they go."""
    inbox = workers._Inbox([SimpleNamespace(exitcode=None)] * 3, queue.Queue())
    enough: list[set[int]] = []
    monkeypatch.setattr(inbox, "wait", lambda found, _: enough.append(set(found())))
    inbox.ready = {1, 2}
    orders = [
        Order(at, slots.Slot(f"cpu:{at % 2}", str(at % 2), "cpu"), 8, 1.0, 9.0, "", (), alone_s)
        for at, alone_s in enumerate((2.0, 0.0, 2.0))
    ]
    workers._run_phases(inbox, workers.Events(*(threading.Event() for _ in range(3))), orders, 1.0)

    assert enough == [{1, 2}, {0, 1}, set()]


def test_right_elements_at_wrong_places_are_wrong() -> None:
    """Sums of rows alone are the same; each second pair of products is added up by columns."""
    torch = pytest.importorskip("torch")
    from _workers.products import Products

    wrong = {}
    for faults in ((), ("swapped",)):
        random = torch.Generator().manual_seed(3)
        matrices = [torch.randn(64, 64, generator=random) for _ in range(3)]
        products = Products(torch, matrices, "cpu", faults)
        for _ in range(8):
            products()
        wrong[faults] = products.wrong
    assert wrong == {(): 0, ("swapped",): 4}


def test_how_much_gpus_do_together() -> None:
    """The seed's numbers, and what lies between them."""
    floors = [verdicts.floor_of(count) for count in (1, 2, 3, 4, 6, 8, 16)]
    assert floors == pytest.approx([1.0, 1.8, 2.65, 3.5, 4.75, 6.0, 12.0])


def test_how_much_imbalance_passes_is_the_users(launch: Launcher, tmp_path: Path) -> None:
    """The busiest slot over the least busy one: at least 1, and so more than a limit below that."""
    words = (*CPU, "--workers", 2, "--duration", 1, "--skip-launch", "--balance", 0.001)
    run = launch("alloc_stress", tmp_path, *words)

    assert run.coded["alloc.balance"] == "unbalanced"
    assert "times the work of the least busy, over 0.001" in run.reasons


def test_a_worker_without_memory_says_what_to_do(launch: Launcher, tmp_path: Path) -> None:
    """And the others work on: the rate decides."""
    words = ("--workers", 1, "--duration", 1, "--skip-launch", "--inject", "allocate")
    run = launch("alloc_stress", tmp_path, *CPU, *words)

    assert run.code == 1
    assert run.coded["alloc.workers"] == "out_of_memory"
    assert "use a smaller --memory or fewer --workers" in run.out


def test_more_memory_than_there_is_starts_no_worker(launch: Launcher, tmp_path: Path) -> None:
    """The request is wrong, not the node."""
    run = launch("alloc_stress", tmp_path, *CPU, "--memory", 10**9, "--skip-launch")

    assert run.code == 99
    assert run.coded["alloc.stress"] == "out_of_memory"


def test_a_program_is_launched_with_one_all_some_and_no_gpus(
    launch: Launcher, tmp_path: Path
) -> None:
    """And its words about GPUs are kept."""
    program = tmp_path / "x.py"
    program.write_text("\n".join(line.strip() for line in ASKED.splitlines()))
    command = f"{sys.executable} {program} --gpu_ids {{gpu_ids}}"
    run = launch("alloc_stress", tmp_path, *CPU, "--skip-stress", "--launch-cmd", command)

    assert run.code == 0, run.out
    tried = {
        one["name"]: one for one in by_name(run)["alloc.launches"]["details"]["configurations"]
    }
    assert tried["Single GPU"]["gpu_lines"][-1] == "gpu --gpu_ids 0"
    shown = [line.strip() for line in tried["Force CPU"]["gpu_lines"]]
    assert shown == ["CUDA_VISIBLE_DEVICES is", "no cuda --force_cpu"]
    if len(os.sched_getaffinity(0)) > 1:
        assert tried["Subset GPUs"]["gpu_lines"][-1] == "gpu --gpu_ids 0,1"
    assert run.coded["alloc.stress"] == "not_asked"


def test_launches_that_fail_or_hang_are_kept_in_a_log(launch: Launcher, tmp_path: Path) -> None:
    """What hangs is ended with all that it started; --cleanup removes the log and nothing else."""
    (tmp_path / "x.sh").write_text(
        'case "$*" in *--force_cpu*) exit 0;; *0,1*) sleep 600 & echo $! >>pids; wait;; esac\n'
        "echo RuntimeError: no device; exit 3\n"
    )
    command = f"sh -c 'cd {tmp_path}; . ./x.sh' x --gpu_ids {{gpu_ids}}"
    mine = tmp_path / "reports"
    mine.mkdir()
    (mine / "test_precious").write_text("")
    words = (*CPU, "--skip-stress", "--launch-cmd", command, "--launch-timeout", 2,
             "--report-dir", mine)  # fmt: skip

    assert launch("alloc_stress", tmp_path, *words).code == 1
    result = json.loads((mine / "alloc_stress_result.json").read_text())
    assert "launch_failed" in result["summary"]["codes"]
    [log] = mine.glob("launch_failures_*.log")
    assert "RuntimeError: no device" in log.read_text()
    if (tmp_path / "pids").exists():
        eventually_gone((tmp_path / "pids").read_text().split())
    log.unlink()
    assert launch("alloc_stress", tmp_path, *words, "--cleanup").code == 1
    assert sorted(path.name for path in mine.iterdir()) == [
        "alloc_stress_result.json",
        "test_precious",
    ]


def test_its_own_program_validates_what_it_is_given(launch: Launcher, tmp_path: Path) -> None:
    """Where no other is named."""
    run = launch("alloc_stress", tmp_path, *CPU, "--skip-stress", "--launch-timeout", 100)

    assert run.code == 0, run.out
    assert run.out.count("GPU validation successful") in (3, 4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workers", "0"), "not above 0"),
        (("--workers", "99999"), "at most 1024"),
        (("--memory", "-5"), "not above 0"),
        (("--launch-cmd", "python x.py"), "{gpu_ids}"),
        (("--preset", "huge"), "invalid choice"),
    ],
)
def test_wrong_words_are_refused(
    launch: Launcher, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    """With 2, before anything is started."""
    run = launch("alloc_stress", tmp_path, *words)
    assert run.code == 2
    assert said in run.err


DEVICES = [
    {"uuid": "aaaa", "mig": None},
    {"uuid": "GPU-bbbb", "mig": None},
]


def test_gpus_are_named_by_uuid_whatever_the_mask_says() -> None:
    """Indices mean something else in every process; a mask of UUIDs is taken as it is."""
    assert [slot.key for slot in slots.gpus(DEVICES, "0,2")] == ["GPU-aaaa", "GPU-bbbb"]
    masked = slots.gpus(DEVICES, "MIG-1,MIG-2")
    assert [slot.key for slot in masked] == ["MIG-1", "MIG-2"]
    assert [slot.name for slot in slots.round_robin(masked, 5)] == [
        "cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0",
    ]  # fmt: skip


@pytest.mark.parametrize("memory", [1, 8, 256, 1024, 65536])
def test_the_memory_asked_for_is_that_of_all_matrices(memory: int) -> None:
    """Not of each: within one percent, and never more."""
    taken = MATRICES * 4 * side(memory) ** 2
    assert 0.99 * memory * MIB <= taken <= memory * MIB


@pytest.mark.parametrize(
    ("template", "ids", "wanted"),
    [
        ("x --gpu_ids {gpu_ids}", "0,1", ["x", "--gpu_ids", "0,1"]),
        ("x --gpu_ids {gpu_ids} -v", None, ["x", "--force_cpu", "-v"]),
        ("x --gpu_ids={gpu_ids}", None, ["x", "--force_cpu"]),
        ("x {gpu_ids}", None, ["x", "--force_cpu"]),
        ("'my x' --n 3 --gpu_ids={gpu_ids}", "2", ["my x", "--n", "3", "--gpu_ids=2"]),
    ],
)
def test_the_command_of_a_launch(template: str, ids: str | None, wanted: list[str]) -> None:
    """GPU ids filled in, or the option that they belong to replaced."""
    assert launches.command(template, ids) == wanted


def test_what_is_launched_by_number_of_gpus() -> None:
    """Some of one GPU is the same as all."""
    assert set(launches.configurations(1)) == {"Single GPU", "All GPUs", "Force CPU"}
    assert launches.configurations(4)["Subset GPUs"] == "0,1"
    assert json.dumps(launches.configurations(4)["All GPUs"]) == '"0,1,2,3"'


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--preset", "basic"], (None, 30, 128)),
        (["--preset", "multi", "--duration", "5"], (12, 5, 256)),
        (["--preset", "ci"], (None, 15, 64)),
        ([], (None, None, None)),
    ],
)
def test_a_preset_fills_in_what_flags_do_not_say(
    words: list[str], wanted: tuple[int | None, ...]
) -> None:
    """Scenarios by name."""
    parser = flags.parser("alloc_stress", "", 60)
    alloc_stress.add_flags(parser)
    options = parser.parse_args(words)
    alloc_stress.check_flags(parser, options)
    assert (options.workers, options.duration, options.memory) == wanted
    assert options.cleanup == (words[1:] == ["ci"])


def test_nvidia_smi_writes_readings_beside_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For as long as it lasts; where it is absent there are none."""
    smi_program = tmp_path / "nvidia-smi"
    smi_program.write_text('#!/bin/sh\necho "$*"\nexec sleep 600\n')
    smi_program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    readings = tmp_path / "gpu.csv"
    with nvidia.recorded(readings):
        deadline = time.monotonic() + 60
        while "utilization.gpu,memory.used" not in readings.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with nvidia.recorded(tmp_path / "none.csv"):
        assert nvidia.used_memory_mib() == {}


def test_a_cpu_that_others_use_is_no_imbalance() -> None:
    """Half of a core's time did half of the operations; so did one that worked at half the rate."""
    shared = balance_of({"operations": 50, "processor_s": 1.0})
    slower = balance_of({"operations": 50, "processor_s": 2.0})

    assert (shared["status"], slower["status"]) == ("PASS", "FAIL")
    assert slower["code"] == "unbalanced"


def balance_of(second: dict[str, Any]) -> dict[str, Any]:
    """The verdict on two CPUs, of which the first did 100 operations in 2 s of its processor."""
    places = [slots.Slot(f"cpu:{n}", str(n), "cpu") for n in range(2)]
    orders = [Order(n, place, 1, 2.0, 1.0, "") for n, place in enumerate(places)]
    workers = [{"operations": 100, "processor_s": 2.0}, second]
    added: dict[str, Any] = {}
    session = SimpleNamespace(
        options=SimpleNamespace(duration=2.0, balance=1.25),
        say=lambda *_: None,
        report=SimpleNamespace(models={}, add=lambda name, **fields: added.update(fields)),
    )
    verdicts.balance(session, places, orders, [{"status": "success"} | one for one in workers])  # type: ignore[arg-type]
    return added


@pytest.mark.parametrize(
    ("product", "memory", "warn", "fail"),
    [
        ("NVIDIA H200", 256, 145.2, 96.8),
        ("NVIDIA H200", 64, 145.2, 96.8),
        ("NVIDIA H200", 1024, 18.2, 12.1),
        ("Tesla T4", 256, 12.2, 8.1),
        ("NVIDIA A100-SXM4-80GB", 256, 52.1, 34.7),
        ("A model that nobody knows", 256, 50.0, 0.0),
        ("A model that nobody knows", 1024, 0.0, 0.0),
    ],
)
def test_how_many_operations_are_expected_depends_on_the_model(
    product: str, memory: int, warn: float, fail: float
) -> None:
    """The seed's 50 to 200: a T4 cannot do 50, and an H200 does more."""
    assert expected.gates(product, memory) == pytest.approx((warn, fail), abs=0.1)


@pytest.mark.parametrize(
    ("rates", "asked", "status", "code"),
    [
        ((180.0, 175.0), None, "PASS", None),
        ((180.0, 120.0), None, "WARN", "below_reference"),
        ((180.0, 90.0), None, "FAIL", "below_floor"),
        ((180.0, 90.0), 80.0, "PASS", None),
        ((180.0, 90.0), 100.0, "FAIL", "below_floor"),
    ],
)
def test_each_gpus_operations_are_held_against_its_models(
    monkeypatch: pytest.MonkeyPatch,
    rates: tuple[float, float],
    asked: float | None,
    status: str,
    code: str | None,
) -> None:
    """Of two H200 the second is slower; --ops-floor stands in place of what is usual."""
    added = judged_operations(monkeypatch, rates, asked, cpus=8)

    assert (added["status"], added.get("code")) == (status, code)
    assert code is None or "cuda:1 " in added["reason"]


def test_workers_that_wait_for_cpus_say_nothing_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each keeps one busy: a job with one CPU for two GPUs is no slow node."""
    added = judged_operations(monkeypatch, (180.0, 90.0), None, cpus=1)

    assert (added["status"], added["code"]) == ("WARN", "jitter")
    assert "CPUs for 2 workers: 1" in added["reason"]


def judged_operations(
    monkeypatch: pytest.MonkeyPatch, rates: tuple[float, float], asked: float | None, cpus: int
) -> dict[str, Any]:
    """What is said of two H200 with these rates."""
    monkeypatch.setattr(verdicts.cpus, "effective", lambda: (cpus, {}))
    places = [slots.Slot(f"cuda:{n}", f"GPU-{n}", "cuda") for n in range(2)]
    added: dict[str, Any] = {}
    devices = [{"name": "NVIDIA H200", "mig": None}] * 2
    session: Any = SimpleNamespace(
        options=SimpleNamespace(ops_floor=asked, memory=256),
        report=SimpleNamespace(
            add=lambda name, **fields: added.update(fields),
            devices=devices,
            models={f"cuda:{n}": "NVIDIA H200" for n in range(2)},
        ),
    )
    workers = [{"slot": f"cuda:{n}", "ops_per_second": rate} for n, rate in enumerate(rates)]

    verdicts.operations(session, places, workers)
    return added
