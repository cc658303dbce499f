"""The text of a ticket: what failed on a node, what was expected, how to see it again, the log."""

import itertools
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from rv.accept.pairs import judged_pairs
from rv.accept.report.ticket import log_of, tickets
from rv.accept.report.write import ticket_markdown
from rv.accept.results import Device, Metric, Reference, RunResult, Status
from rv.accept.runs import Run, RunRecord
from tests.unit.accept.made_pages import HOSTILE
from tests.unit.accept.made_results import metric, outcome, run_of

UUID = "aef4b2fe-676f-8f91-8de1-711e2ebac28e"
GPU = Device(index=1, name="NVIDIA H200", uuid=UUID, more={"serial": "1654922000"})
LOG = """\
[ACCEPT] check
[ENV] HOME=/root
[COMPUTE] cuda:1: 518 TFLOPS bf16
[RESULT] PASS: rv judges the speeds
[ACCEPT] check ended with exit code 0
[ACCEPT] membw
[COMPUTE] membw
"""


def slow(**more: object) -> RunResult:
    """A node one of whose GPUs is 28 % below its reference."""
    number = metric(518.0, reference=Reference(value=720, kind="builtin"))
    test = outcome(
        "cuda:1", number, status=Status.FAIL, code="below_floor", reason="518 of 720 TFLOPS"
    )
    fields = {"status": Status.FAIL, "argv": ("--quick", "--no-reference"), "job_id": "77"}
    return run_of([test], [GPU], **{**fields, **more})


def kept(*results: RunResult) -> Run:
    record = RunRecord(race_id="abc12345", cluster="c", label="campus", profile="smoke")
    return Run(record=record, results=results, logs={"n1": LOG})


def test_a_ticket_has_all_that_a_repair_needs() -> None:
    text = ticket_markdown(tickets(kept(slow())))
    for wanted in (
        "# n1: FAIL in acceptance tests (campus)",
        f"GPU 1: NVIDIA H200, GPU-{UUID}, serial 1654922000",
        "2026-11-22 10:00 UTC, run abc12345, Slurm job 77",
        "driver 580",
        "| FAIL | check: matmul.bf16 | 1 | tflops 518 TFLOPS | 720 (builtin reference) |",
        "    rv accept sweep check --profile smoke --nodes n1 --no-avoid",
        "    srun -N1 -n1 -w n1 --exclusive --gpus-per-node=1 python3 check.py --quick\n",
        f"    srun -N1 -n1 -w n1 nvidia-smi -q -i GPU-{UUID}",
        "    [COMPUTE] cuda:1: 518 TFLOPS bf16",
    ):
        assert wanted in text
    assert "[ENV]" not in text
    assert "[COMPUTE] membw" not in text


def test_only_nodes_that_failed_have_one_the_worst_first() -> None:
    fine = run_of([outcome("cuda:0", metric(7.0), host="n2")], [GPU], hostname="n2")
    warned = run_of(
        [outcome("cuda:0", status=Status.WARN, host="n3")], [GPU], hostname="n3",
        status=Status.WARN,
    )  # fmt: skip
    silent = run_of(
        [outcome("", status=Status.ERROR, host="n0", code="no_result")], [], hostname="n0",
        status=Status.ERROR, test_type="sweep",
    )  # fmt: skip
    made = tickets(kept(fine, warned, silent, slow()))
    assert [ticket.place for ticket in made] == ["n1", "n0"]
    assert made[1].commands == ["rv accept sweep --profile smoke --nodes n0 --no-avoid"]
    assert ticket_markdown([]) == "No node failed.\n"


def test_a_fault_made_on_purpose_is_told_as_such() -> None:
    made = tickets(kept(slow(argv=("--inject", "wrong-product"))))
    assert "A fault was made on purpose" in ticket_markdown(made)
    assert "on purpose" not in ticket_markdown(tickets(kept(slow())))


def test_ranks_of_a_node_are_started_as_they_were() -> None:
    (made,) = tickets(kept(slow(world_size=4, test_type="allreduce", argv=("--duration", "a b"))))
    assert made.commands[1].endswith("torchrun --nproc-per-node=4 allreduce.py --duration 'a b'")


def of_pairs(*slow: str) -> Run:
    """A sweep over all pairs of four nodes of two GPUs each; those of `slow` are at half the rate.

    A name of it is a node, `a1`, or a pair, `a1 a4`.
    """
    names = ("a1", "a2", "a3", "a4")
    jobs = {pair: [job(pair, slow)] for pair in itertools.combinations(names, 2)}
    every = itertools.chain.from_iterable(jobs.values())
    record = RunRecord(
        race_id="sweep-p", cluster="c", label="c", profile="smoke", payloads=("allreduce",),
        nodes=names,
    )  # fmt: skip
    return Run(record=record, results=(*every, *judged_pairs(jobs, {})))


def job(pair: tuple[str, ...], slow: Sequence[str]) -> RunResult:
    is_slow = any(set(name.split()) <= set(pair) for name in slow)
    rate = Metric(
        name="busbw_256M", value=20.0 if is_slow else 45.0, unit="GB/s", direction="higher",
        more={"bytes": 256 << 20},
    )  # fmt: skip
    return run_of(
        [outcome("", rate, name="allreduce.all_reduce", host=pair[0])],
        [Device(index=at, name="X", uuid=f"GPU-{n}-{at}", host=n) for n in pair for at in (0, 1)],
        test_type="allreduce", hostname=pair[0], hosts=(pair[0],) * 2 + (pair[1],) * 2, nnodes=2,
        world_size=4, backend="nccl", argv=("--quick", "--no-reference"),
    )  # fmt: skip


def test_a_slow_pair_is_measured_again_alone() -> None:
    """With rv, and without it on both nodes."""
    (made,) = tickets(of_pairs("a1 a4"))
    assert made.place == "a1 and a4"
    with_rv, by_itself = made.commands
    assert with_rv == "rv accept sweep --pairs --profile smoke --nodes a1,a4 --no-avoid"
    assert by_itself == (
        "srun -N2 --ntasks-per-node=1 -w a1,a4 --exclusive --gpus-per-node=2 torchrun --nnodes=2 "
        "--nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=a1:29500 allreduce.py --quick"
    )
    text = ticket_markdown([made])
    assert "# a1 and a4: FAIL in acceptance tests (c)" in text
    assert "- Where: a1 and a4" in text


def test_a_node_that_is_slow_to_all_others_is_seen_again_by_their_pairs() -> None:
    """Alone it has none to be in a pair with; the judgement of pairs is no payload."""
    (made,) = tickets(of_pairs("a3"))
    assert made.place == "a3"
    assert made.commands == [
        "rv accept sweep --pairs --profile smoke --nodes a1,a2,a3,a4 --no-avoid"
    ]
    text = ticket_markdown([made])
    assert "- Node: a3" in text
    assert "rv/payloads" not in text


def test_every_command_of_rv_in_a_ticket_of_pairs_can_be_asked_for() -> None:
    """The payloads that it names exist, and its nodes are nodes."""
    made = [*tickets(of_pairs("a1 a4")), *tickets(of_pairs("a3")), *tickets(of_pairs("a1", "a2"))]
    for words in (shlex.split(ticket.commands[0]) for ticket in made):
        assert words[:4] == ["rv", "accept", "sweep", "--pairs"]
        named = words[words.index("--nodes") + 1].split(",")
        assert len(named) >= 2
        assert set(named) <= {"a1", "a2", "a3", "a4"}


def test_what_no_node_is_known_of_has_no_command() -> None:
    test = replace(slow().tests[0], host="")
    (made,) = tickets(kept(replace(slow(), hostname="", tests=(test,))))
    assert made.commands == []
    assert "To see it again" not in ticket_markdown([made])


def test_hostile_text_stays_in_its_cell_and_out_of_the_commands() -> None:
    bad = slow(hostname="n1;rm -rf /")
    test = replace(bad.tests[0], reason=HOSTILE, host="", name="a\n# b")
    text = ticket_markdown(tickets(kept(replace(bad, tests=(test,)))))
    assert "<script" not in text
    assert "-w 'n1;rm -rf /' --exclusive" in text
    assert len(re.findall(r"^# ", text, re.M)) == 1


def test_the_log_is_that_of_the_payloads_last_run_and_bounded() -> None:
    again = LOG + "[ACCEPT] check\n" + "".join(f"line {n}\n" for n in range(50))
    assert log_of(again, "check")[-1] == "line 49"
    assert len(log_of(again, "check")) == 20
    assert log_of(LOG, "stress") == []
