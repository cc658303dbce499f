"""allreduce.py on CPUs with gloo: exact everywhere, and each of its faults found by name."""

import functools
import json
import operator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from contract.verdicts import NotPassed

from rv.payloads import allreduce
from rv.payloads._collectives import half_precision, measure, operations, sweep
from rv.payloads._collectives.between_nodes import places_of
from tests.payloads.starting import Launcher, slow_judging, torchrun

CPU = ("--device", "cpu")
SHORT = (*CPU, "--numel", 1000, "--iters", 10)


def test_every_collective_is_exact_at_every_size(launch: Launcher, tmp_path: Path) -> None:
    """Two ranks, five collectives, from 8 bytes up; one result for both ranks."""
    done = launch("allreduce", tmp_path, *CPU, "--quick", world=2)

    assert done.codes == [0, 0], done.out
    for name in operations.OPERATIONS:
        test = done.test(f"allreduce.{name}")
        rows = test["details"]["rows"]
        assert [row["bytes"] for row in rows] == [8, 64, 512, 4096, 16384]
        assert {row["wrong"] for row in rows} == {0}
        assert all(len(row["by_rank_us"]) == 2 for row in rows)
        kept = {one["name"]: one for one in test["metrics"]}
        assert kept["busbw_16KiB"]["value"] > 0
    rows = done.test("allreduce.half_precision")["details"]["rows"]
    assert {(row["dtype"], row["operation"]) for row in rows} == {
        (dtype, name) for dtype in ("fp16", "bf16") for name in ("all_reduce", "reduce_scatter")
    }
    assert {row["wrong"] for row in rows} == {0}
    assert len(done.test("allreduce.arrival")["details"]["arrivals"]) == 2
    assert done.result["summary"]["status"] == "PASS"


def test_fifty_rounds_of_torchrun_are_right(tmp_path: Path) -> None:
    """A sum that is not set again before each round would be 2 to the 49th too large."""
    done = torchrun("allreduce", tmp_path, "--iters=50", "--numel=20000", "--device=cpu")

    assert done.code == 0, done.out + done.err
    lines = [line for line in done.out.splitlines() if line.startswith("[DDP] world=")]
    assert lines[0].startswith("[DDP] world=2 numel=20000 iters=50 time=")
    assert lines[0].endswith("ok=True")
    assert json.loads((tmp_path / "ddp_tests_result.json").read_text())["ok"] is True


@pytest.mark.parametrize(
    ("fault", "more", "code", "said"),
    [
        (
            "bitflip:rank=1",
            (),
            "wrong_collective",
            "first at rank 1 element 500 of iteration 0 (11 wrong there, in 11 iterations)",
        ),
        ("nan:rank=0", (), "wrong_collective", "first at rank 0 element 500 of iteration 0"),
        ("bitflip:rank=1,iteration=8", (), "wrong_collective", "rank 1 of iteration 8 (1 wrong"),
        ("not-written:rank=0,iteration=7", (), "wrong_collective", "rank 0 of iteration 7 (1000 "),
        (
            "stale:iteration=8",
            (),
            "wrong_collective",
            "rank 0 of iteration 8 (1000 wrong there, in 1",
        ),
        ("stale:iteration=8,back=2", (), "wrong_collective", "rank 0 of iteration 8 (1000 wrong"),
        ("stale:iteration=9,back=8", (), "wrong_collective", "rank 0 of iteration 9 (1000 wrong"),
        ("bitflip:dtype=bf16,rank=1", (), "wrong_collective", "all_reduce of 1KiB in bf16: "),
        ("nan:dtype=fp16", (), "wrong_collective", "all_reduce of 1KiB in fp16: "),
        ("stale:dtype=bf16,iteration=5,back=2", (), "wrong_collective", "KiB in bf16: "),
        ("slow:rank=1,factor=8", (), "straggler", "late to a barrier: rank 1 on "),
        ("slow-call", (), "below_floor", "of the bare call's"),
        ("stretch", (), "contended", "0.50 of the median rate"),
        ("below-floor", (), "slow_fabric", "half of what the fabric gives"),
        (
            "no-p2p",
            (),
            "wrong_transport",
            "though NVLink joins these GPUs; set: NCCL_P2P_DISABLE=1",
        ),
        ("below", (), "slow_fabric", "is 0.70 of the "),
        ("busy", (), "gpu_busy", "is not this job's alone: python of root (process 1, "),
        ("held", (), "memory_held", "8000 MiB were in use"),
        ("contended:rank=1", (), "contended", "worked for this job 50% of the time"),
    ],
)
def test_a_fault_is_found(
    launch: Launcher, tmp_path: Path, fault: str, more: tuple[str, ...], code: str, said: str
) -> None:
    """By its code, with the rank that it strikes, and exit code 1."""
    done = launch("allreduce", tmp_path, *SHORT, "--inject", fault, *more, world=2)

    assert done.code == 1
    assert set(done.coded.values()) == {code}
    assert said in done.reasons


def test_gloo_on_a_node_with_gpus_is_told(launch: Launcher, tmp_path: Path) -> None:
    """Asked for with --device cpu it warns; on the sandbox's fake GPUs there is no other way."""
    for name in ("real", "fake"):
        (tmp_path / name).mkdir()
    done = launch("allreduce", tmp_path / "real", *SHORT, world=2, RV_GPUS="2")
    fake = launch("allreduce", tmp_path / "fake", *SHORT, world=2, RV_GPUS="2", RV_FAKE_GPUS="1")

    assert set(done.coded.values()) == {"wrong_transport"}, done.out
    assert "gloo in place of NCCL on a node with 2 GPU(s)" in done.reasons
    assert (done.code, done.result["summary"]["status"]) == (0, "WARN")
    assert "allreduce.transport" not in fake.coded


@pytest.mark.parametrize(
    ("gpus", "words", "coded"),
    [("2", [], {"ranks": "one_rank"}), ("1", [], {}), ("2", ["--device", "cpu"], {})],
)
def test_one_rank_where_there_are_more_gpus_vouches_for_no_exchange(
    launch: Launcher, tmp_path: Path, gpus: str, words: list[str], coded: dict[str, str]
) -> None:
    """As `rv run --gpu 2 allreduce.py` starts it, without torchrun."""
    words = [*words, "--quick"]
    done = launch("allreduce", tmp_path, *words, RV_GPUS=gpus, RV_FAKE_GPUS="1")

    found = {name: code for name, code in done.coded.items() if name == "ranks"}
    assert found == coded, done.out
    assert done.code == 0
    assert ("nothing was exchanged" in done.last) == bool(coded)


def test_that_there_is_one_rank_finds_no_planted_fault(launch: Launcher, tmp_path: Path) -> None:
    """It is told with and without."""
    words = ("--quick", "--inject", "slow-node")
    done = launch("allreduce", tmp_path, *words, RV_GPUS="2", RV_FAKE_GPUS="1")

    assert done.code == 99
    assert set(done.coded.values()) >= {"one_rank", "no_effect"}


@pytest.mark.parametrize(
    ("fault", "code"), [("drop-rank:rank=1", "rank_missing"), ("hang:rank=1", "timeout")]
)
def test_a_rank_that_does_not_come_is_named(
    launch: Launcher, tmp_path: Path, fault: str, code: str
) -> None:
    """Within the timeout; the rank that did come ends, and says so."""
    done = launch("allreduce", tmp_path, *SHORT, "--timeout", 8, "--inject", fault, world=2)

    assert done.code in (1, 124)
    assert done.codes[1] in (0, 124)
    assert done.result["summary"]["status"] in ("FAIL", "ERROR")
    assert code in done.coded.values()
    assert "rank 1 on " in done.reasons or "not done after 8 s" in done.reasons


def test_what_others_send_between_nodes_is_no_ones_fault(launch: Launcher, tmp_path: Path) -> None:
    """A bare call that nobody's traffic met, on one node a failure, is a warning there."""
    words = [*SHORT, "--inject", "slow-call"]
    done = launch.start("allreduce", tmp_path, *words, world=2, apart=True).wait()

    speeds = [test for test in done.result["tests"] if test["name"].startswith("allreduce.speed")]
    assert [test["status"] for test in speeds] == ["WARN", "WARN"]


@pytest.mark.parametrize(
    ("seconds", "taken"),
    [
        (0.01, [1 << 27, 1 << 28, 1 << 30, 1 << 32]),  # 100 Gb/s
        (0.20, [1 << 27, 1 << 28]),  # 10
        (0.09, [1 << 27, 1 << 28, 1 << 30]),  # 25
        (2.00, []),  # 1
    ],
)
def test_a_slow_network_gets_no_more_than_it_can_carry(
    monkeypatch: pytest.MonkeyPatch, seconds: float, taken: list[int]
) -> None:
    """4 GiB in eleven rounds of five operations would take the payload's time; 256 MiB suffice."""

    def measured(_field: object, _operation: object, total: int, **_: object) -> SimpleNamespace:
        return SimpleNamespace(elements=total, middle=seconds * total / (1 << 25))

    monkeypatch.setattr(sweep, "measure", measured)
    monkeypatch.setattr(sweep, "line", lambda _: "")
    monkeypatch.setattr(sweep, "most_bytes", lambda *_: 4 << 30)
    field = SimpleNamespace(device="cuda:0", item_bytes=4)
    options = SimpleNamespace(numel=0, max_bytes=0, iters=0, duration=0, quick=True)

    table = sweep.sweep(field, options, lambda _: None)  # type: ignore[arg-type]

    measured_bytes = [4 * row.elements for row in table["all_gather"]]
    assert [nbytes for nbytes in measured_bytes if nbytes >= 1 << 27] == taken


@pytest.mark.parametrize("slow", ["0", "2"])
def test_what_other_ranks_found_outlasts_one_that_failed(tmp_path: Path, slow: str) -> None:
    """torchrun ends all ranks at the first code, while one still asks who else was on its GPU."""
    words = [*map(str, SHORT), "--inject", "bitflip:rank=1"]
    done = torchrun("allreduce", tmp_path, *words, ranks=3, **slow_judging(tmp_path, slow))

    assert "KeyboardInterrupt" not in done.err
    assert [each["rank"] for each in done.result["ranks"]] == [0, 1, 2]
    assert done.result["summary"]["codes"] == ["wrong_collective"]


def test_what_the_network_carries_is_measured_by_a_collective(
    launch: Launcher, tmp_path: Path
) -> None:
    """Three ranks, each as if on a node of its own: one group, whose sums all cross the network."""
    done = launch.start("allreduce", tmp_path, *SHORT, world=3, apart=True).wait()

    assert done.code == 0, done.out + done.err
    test = done.test("allreduce.between_nodes")
    [rate] = test["metrics"]
    assert (rate["name"], rate["unit"], rate["nodes"], rate["value"] > 0) == (
        "busbw_a_node", "GB/s", 3, True,
    )  # fmt: skip
    assert len(test["details"]["by_node"]) == 3


def test_wrong_sums_between_nodes_fail(launch: Launcher, tmp_path: Path) -> None:
    words = [*SHORT, "--inject", "bitflip:rank=1"]
    done = launch.start("allreduce", tmp_path, *words, world=2, apart=True).wait()

    assert ("allreduce.between_nodes", "wrong_collective") in done.bad


def test_groups_between_nodes_have_a_rank_of_each() -> None:
    """Two nodes of two ranks and one of three: the third has no partner elsewhere."""
    assert places_of([0, 0, 1, 1, 2, 2, 2]) == [[0, 2, 4], [1, 3, 5]]


def test_pairs_of_nodes_name_the_slow_one(launch: Launcher, tmp_path: Path) -> None:
    """Three nodes meet in three pairs; both pairs of the second are slow."""
    words = ("--pairwise", "all", "--max-bytes", 4096, "--inject", "slow-node:node=1")
    done = launch.start("allreduce", tmp_path, *SHORT, *words, world=3, apart=True).wait()

    assert done.codes == [1, 1, 1], done.out
    assert done.coded["allreduce.pairs"] == "peer_outlier"
    reason = done.test("allreduce.pairs")["reason"]
    assert reason.startswith("slow with most partners: ")
    assert reason.endswith("#1")
    assert "#0" not in reason


def test_a_pair_of_nodes_that_adds_wrong_is_named(launch: Launcher, tmp_path: Path) -> None:
    """In one iteration; its rate is no excuse."""
    words = ("--pairwise", "all", "--max-bytes", 4096, "--inject", "stale:iteration=9,rank=1")
    done = launch.start("allreduce", tmp_path, *SHORT, *words, world=3, apart=True).wait()

    assert done.coded["allreduce.pairs"] == "wrong_collective"
    assert "#1" in done.test("allreduce.pairs")["reason"]


@pytest.mark.parametrize("words", [("--max-bytes", "0"), ("--numel", "-1"), ("--inject", "x")])
def test_wrong_words_are_refused(launch: Launcher, tmp_path: Path, words: tuple[str, ...]) -> None:
    """With 2, as every command does."""
    assert launch("allreduce", tmp_path, *words).code == 2


def test_a_folder_that_cannot_be_written_is_an_error(launch: Launcher, tmp_path: Path) -> None:
    """Said at once, not after the measurement."""
    (tmp_path / "file").write_text("")
    done = launch("allreduce", tmp_path, *CPU, "--report-dir", tmp_path / "file")

    assert done.code == 99
    assert "[RESULT] ERROR: no result written" in done.out


def test_no_gpu_and_none_asked_for_is_a_skip(launch: Launcher, tmp_path: Path) -> None:
    """With the file that the first version of this test wrote."""
    assert launch("allreduce", tmp_path).code == 77
    assert (tmp_path / "ddp_tests_skipped.json").exists()


def test_the_factors_of_bus_bandwidth() -> None:
    """4 GB in a second over 4 ranks, as nccl-tests counts."""
    four = {name: operations.bandwidths(operation, 4 * 10**9, 4, 1.0)[1]
            for name, operation in operations.OPERATIONS.items()}  # fmt: skip
    assert four == {
        "all_reduce": 6.0, "all_gather": 3.0, "reduce_scatter": 3.0, "broadcast": 4.0,
        "all_to_all": 3.0,
    }  # fmt: skip


def test_one_late_rank_is_named_and_noise_is_not() -> None:
    """Against the median of the others."""
    work = [1.0, 1.02, 1.3, 0.99]
    found = [measure.Arrival(rank, seconds, 0.0) for rank, seconds in enumerate(work)]
    late = measure.stragglers(found, (1.05, 1.11), (1.11, 1.25))
    assert [(each.one.rank, each.status) for each in late] == [(2, "FAIL")]


@pytest.mark.parametrize(
    ("work", "told"),
    [
        ((1.0, 1.1), []),
        ((1.0, 1.12), ["WARN"]),
        ((1.0, 1.26), ["FAIL"]),
        ((1.0, 1.12, 1), ["FAIL"]),
    ],
)
def test_of_two_ranks_the_slower_has_twice_the_room(
    work: tuple[float, ...], told: list[str]
) -> None:
    """As of two GPUs everywhere: check.py warned where this failed."""
    found = [measure.Arrival(rank, seconds, 0.0) for rank, seconds in enumerate(work)]
    late = measure.stragglers(found, allreduce.LATE["cuda"], allreduce.LATE_OF_TWO["cuda"])
    assert [each.status for each in late] == told


def test_sizes_climb_to_the_largest() -> None:
    """The last is always there, even where the steps miss it."""
    assert measure.ladder(2, 64, 2) == [2, 4, 8, 16, 32, 64]
    assert measure.ladder(2, 100, 8) == [2, 16, 100]
    assert sweep.size_word(4 << 30) == "4GiB"
    assert sweep.size_word(24) == "24B"


def test_one_wrong_element_is_found_wherever_it_is() -> None:
    """In every place of a buffer, and NaN too."""
    torch = pytest.importorskip("torch")
    pattern = operations.Pattern(torch, 3, "cpu")
    buffer = torch.empty(2500)
    pieces = [operations.Piece(0, 0, 1000), operations.Piece(operations.SUM, 7, 1500)]
    buffer[:1000] = pattern.table(0, 0, 1000)[:1000]
    buffer[1000:] = pattern.table(operations.SUM, 7, 1500)[:1500]
    assert pattern.wrong(buffer, pieces) == (0, -1)
    for place in (0, 999, 1000, 2499):
        spoilt = buffer.clone()
        spoilt[place] = float("nan") if place % 2 else spoilt[place] + 1
        assert pattern.wrong(spoilt, pieces) == (1, place)
    # A power of two away from its place.
    assert pattern.wrong(buffer.roll(64), pieces).total > 2000


@pytest.mark.parametrize("world", [1, 2, 8, 16, 1000, 16_000])
def test_sums_are_exact_and_use_the_bits_that_there_are(world: int) -> None:
    """Bits that are 0 in all that is sent may be lost without a trace."""
    pattern = operations.Pattern(torch, world, "cpu")
    sent, sums = (pattern.table(source, 0, 5000).long() for source in (0, operations.SUM))

    assert 2**22 < int(sums.max()) < 2**24
    used = functools.reduce(operator.or_, sent.unique().tolist())
    assert used == 2 ** int(sent.max()).bit_length() - 1


@pytest.mark.parametrize("world", [1, 2, 3, 8, 32, 64, 128])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_sums_are_exact_in_half_precision_too(dtype: str, world: int) -> None:
    """Whatever the order in which they are added; the ranks' inputs differ, and one is not all 0."""
    pattern = operations.Pattern(torch, world, "cpu", dtype)
    inputs = [pattern.table(rank, 0, 5000) for rank in range(world)]
    length = len(inputs[0])
    summed = torch.stack(inputs).sum(dim=0, dtype=torch.float64)

    assert torch.equal(pattern.table(operations.SUM, 0, 5000).double(), summed)
    for order in (inputs, inputs[::-1]):
        running = torch.zeros(length, dtype=inputs[0].dtype)
        for one in order:
            running += one
        assert torch.equal(running.double(), summed)
    assert summed.max() > 0
    assert world == 1 or not torch.equal(inputs[0], inputs[1])


def test_parts_that_are_gathered_are_the_ranks_whose_place_they_have() -> None:
    """Numbers of the harness's own go that way: a copy of one's own would hide all others'."""
    own = SimpleNamespace(all_gather=lambda every, part, group: [e.copy_(part) for e in every])
    field = measure.Field(torch, own, 0, 2, "cpu", time_each=lambda *_: [])

    with pytest.raises(NotPassed, match="another part as rank 1's"):
        field.gather([1.0])


def test_more_ranks_than_a_type_can_sum_leave_it_out() -> None:
    """A verdict says what was summed."""
    assert [operations.most_ranks(name) for name in ("bf16", "fp16")] == [128, 1024]
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        field = measure.Field(torch, dist, 0, 129, "cpu", time_each=lambda *_: [])
        assert [half_precision.can_sum(field, name) for name in ("bf16", "fp16")] == [False, True]
    finally:
        dist.destroy_process_group()


def test_equal_work_on_a_cpu_has_one_thread() -> None:
    """Of two threads one spins while the other waits for a core, and a busy machine seems late."""
    threads: list[int] = []
    before = torch.get_num_threads()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    field = measure.Field(torch, dist, 0, 1, "cpu", time_each=lambda *_: [])
    torch.set_num_threads(2)
    try:
        measure.arrivals(field, lambda: threads.append(torch.get_num_threads()), rounds=2)

        assert threads == [1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
        dist.destroy_process_group()
