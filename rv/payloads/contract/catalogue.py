"""The payloads: what each tests, and its arguments and durations in each profile.

The one table of `rv accept` and of `run_all.py`. Its order is that of a run: what is cheap, and
what others need, comes first; the load test comes last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SMOKE, ACCEPT, BURNIN = "smoke", "accept", "burnin"
PROFILES = (SMOKE, ACCEPT, BURNIN)
"""How thorough: minutes, a quarter of an hour, hours."""

WALLTIMES = {SMOKE: "20m", ACCEPT: "1h", BURNIN: "8h"}
"""The time limit of an `rv accept` job, where none is given."""
BUDGETS_S = {SMOKE: 240.0, ACCEPT: 900.0, BURNIN: 4 * 3600.0}
"""The seconds that `run_all.py` takes for all payloads of one node, where none are given."""

NODE, RANKS = "python", "torchrun"
"""How a payload starts: one process a node, or one rank a GPU."""


@dataclass(frozen=True)
class Step:
    """A payload in one profile: its arguments, the seconds it should take and those it may."""

    arguments: tuple[str, ...] = ()
    expected_s: float = 60.0
    timeout_s: int = 300


@dataclass(frozen=True)
class PayloadSpec:
    """A payload of the catalogue; `steps` has the profiles that run it.

    `needs` names the payloads without which its verdict means nothing. `extra` ones are left out of
    the smoke profile of `run_all.py`, which takes about a minute. `faults` are what `--inject` can
    make, to test its own detectors: the launcher refuses others before anything is submitted.
    `results` are the tests that a result without a failure has from every rank (`NAME.rank` from
    ranks but the first) and of every GPU on which any of them was made, passed or skipped:
    `rv accept` takes a result with fewer for damaged. A name may be a shell pattern.
    """

    name: str
    tests: str
    starts: str = NODE
    needs: tuple[str, ...] = ()
    steps: Mapping[str, Step] = field(default_factory=dict)
    extra: bool = False
    faults: tuple[str, ...] = ()
    results: str = ""

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profiles that run it."""
        return tuple(profile for profile in PROFILES if profile in self.steps)


OF_RANKS = ("hang", "drop-rank", "crash")
"""Faults that a payload with a process group has from `_harness/ranks.py`."""
OF_COLLECTIVES = ("bitflip", "nan", "not-written", "stale")
"""Faults of what a collective delivers."""
OF_SUMS = ("unsummed", "stale-gradient", "wrong-elements")
"""Faults of the gradients of a step, which all replicas have alike."""
OF_UPDATES = ("lost-update", "flipped-weight")
"""Faults of what an optimizer holds: its update, and its memory between two of them."""
OF_PRODUCTS = ("wrong-element", "not-launched", "half-written")
"""Faults of products that are repeated or timed."""
OF_OUTPUTS = ("wrong-output", "stale-output", "not-launched", "other-rounding")
"""Faults of what a network infers."""
OF_CHECKPOINTS = (
    "forget-random", "forget-optimizer", "repeat-step", "ignore-signal", "in-place",
    "trust-newest", "shared-draft", "keep-draft", "reshard", "corrupt-save", "lost-save",
)  # fmt: skip
"""Faults in how ckpt_cycle's training saves and resumes."""
OF_WORKERS = ("die", "allocate", "wrong-slot", "leak", "nan", "hollow", "swapped", "still")
"""Faults of one of alloc_stress's workers."""
OF_SPEED = ("busy", "held", "contended", "below", "unknown-model")
"""Others on the GPU: a process, memory that somebody holds, time that somebody takes; a GPU that is
slower than its model should be, and a model that nobody knows."""
OF_OTHERS = ("busy", "held", "contended")
"""Those of them that the look at others finds."""
OF_WEAR = (
    "ecc", "ecc-before", "ecc-corrected", "remap", "rows-failed", "rows-remapped", "repair", "xid",
    "replays", "nvlink-errors", "nvlink-crc", "nvlink-down", "power-limit", "clocks", "unreadable",
    "vanish", "sxid",
)  # fmt: skip
"""Faults of a made-up GPU's counters and limits."""
OF_TELEMETRY = (
    "throttle-mask", "temperature", "utilisation", "pcie-gen", "pcie-width", "sm-clock",
)  # fmt: skip
"""Faults of made-up readings of GPUs under load."""


def _steps(
    smoke: tuple[str, float, int], accept: tuple[str, float, int], burnin: tuple[str, float, int]
) -> dict[str, Step]:
    """Make the steps of three (arguments, expected seconds, most seconds)."""
    return {
        profile: Step(tuple(arguments.split()), expected_s, timeout_s)
        for profile, (arguments, expected_s, timeout_s) in zip(
            PROFILES, (smoke, accept, burnin), strict=True
        )
    }


PAYLOADS = (
    PayloadSpec(
        "check",
        "environment, devices as promised, exact matmul and its rate",
        steps=_steps(("--quick", 10, 120), ("", 60, 300), ("", 60, 600)),
        results="""
            matmul.fp64 matmul.fp32 matmul.tf32 matmul.fp16 matmul.bf16 matmul.fp8
            matmul.fp32.exact matmul.fp32.repeat matmul.fp32.residual
            matmul.fp64.exact matmul.fp64.repeat matmul.fp64.residual
        """,
        faults=(
            *OF_RANKS,
            *OF_PRODUCTS,
            "wrong-product",
            "not-repeatable",
            "digest",
            "residual",
            "slow",
            "stretch",
            "dcgm",
            *OF_SPEED,
            *OF_WEAR,
        ),
    ),
    PayloadSpec(
        "membw",
        "memory pattern and bandwidth, host link, peer copies",
        # Eight GPUs have 28 pairs, each measured three times.
        steps=_steps(("--quick", 10, 240), ("", 90, 300), ("", 90, 900)),
        results="membw.stream membw.host membw.peer membw.pcie membw.pattern.random",
        faults=(
            "bitflip",
            "not-written",
            "stuck-bit",
            "host-copy",
            "host-copy-lost",
            "peer-copy",
            "peer-copy-lost",
            "slow-gpu",
            "slow-peer",
            "pcie",
        ),
    ),
    PayloadSpec(
        "allreduce",
        "collectives exact at every size and rank, bus bandwidth, stragglers",
        RANKS,
        needs=("check",),
        steps=_steps(("--quick", 12, 120), ("", 120, 300), ("", 120, 900)),
        results="""
            allreduce.all_reduce allreduce.all_gather allreduce.reduce_scatter
            allreduce.broadcast allreduce.all_to_all allreduce.half_precision
        """,
        faults=(
            *OF_RANKS,
            *OF_COLLECTIVES,
            "slow",
            "slow-call",
            "slow-node",
            "slow-host",
            "slow-link",
            "stretch",
            "below-floor",
            "no-p2p",
            *OF_SPEED,
            *OF_WEAR,
        ),
    ),
    PayloadSpec(
        "nccl_tests",
        "all_reduce_perf of nccl-tests, where it is installed",
        needs=("check",),
        steps=_steps(("--quick", 2, 120), ("", 60, 300), ("", 60, 900)),
        extra=True,
        results="nccl_tests.all_reduce*",
        faults=("wrong", "unchecked", "below-floor"),
    ),
    PayloadSpec(
        "train",
        "DDP training: loss falls, replicas equal, gradients and updates right",
        RANKS,
        needs=("allreduce",),
        steps=_steps(("--quick", 10, 120), ("", 60, 300), ("", 60, 900)),
        results="ddp.layout ddp.gradients ddp.replicas ddp.sums ddp.updates ddp.train",
        faults=(
            *OF_RANKS,
            *OF_SUMS,
            *OF_UPDATES,
            "node-rank",
            "gradient",
            "bitflip",
            "nan",
            "no-learning",
            "corrupt-checkpoint",
            "stale-checkpoint",
        ),
    ),
    PayloadSpec(
        "train_fsdp",
        "sharded training: gradients and updates right, memory per rank, checkpoint",
        RANKS,
        needs=("train",),
        steps=_steps(("--quick", 12, 120), ("", 90, 300), ("", 90, 900)),
        results="fsdp.gradients fsdp.shard fsdp.sums fsdp.updates fsdp.train fsdp.checkpoint",
        faults=(
            *OF_RANKS,
            *OF_SUMS,
            *OF_UPDATES,
            "gradient",
            "unsharded",
            "nan",
            "no-learning",
            "corrupt-checkpoint",
            "stale-checkpoint",
        ),
    ),
    PayloadSpec(
        "moe",
        "mixture of experts, sharded: logits and decoded tokens right",
        RANKS,
        needs=("train_fsdp",),
        steps=_steps(("--quick", 12, 120), ("", 60, 300), ("", 60, 600)),
        extra=True,
        results="moe.shard moe.logits moe.tokens",
        faults=(*OF_RANKS, "unsharded", "wrong-expert", "wrong-token"),
    ),
    PayloadSpec(
        "inference",
        "ResNet-50's shape in mixed precision: outputs right, images a second",
        RANKS,
        needs=("check",),
        steps=_steps(("--quick", 10, 120), ("", 45, 300), ("", 45, 600)),
        extra=True,
        results="inference.reference inference.throughput",
        faults=(
            *OF_RANKS,
            *OF_OUTPUTS,
            "reference",
            "wrong-place",
            "slow",
            "stretch",
            *OF_SPEED,
        ),
    ),
    PayloadSpec(
        "dataload",
        "every sample exactly once, worker sweep, CPUs and shared memory",
        steps=_steps(("--quick", 12, 120), ("", 60, 300), ("", 60, 600)),
        results="dataload.cpus dataload.pool dataload.shm dataload.workers* dataload.knee",
        faults=(
            "duplicate",
            "balanced-loss",
            "other-data",
            "torn-sample",
            "worker-dies",
            "small-shm",
            "wrong-pool",
        ),
    ),
    PayloadSpec(
        "ckpt_cycle",
        "kill and resume bitwise, resharded load, damaged files",
        needs=("train",),
        steps=_steps(("--quick", 20, 120), ("", 120, 300), ("", 120, 900)),
        results="""
            checkpoint.straight checkpoint.resumed checkpoint.term checkpoint.killed
            checkpoint.truncated checkpoint.reshard
        """,
        faults=OF_CHECKPOINTS,
    ),
    PayloadSpec(
        "alloc_stress",
        "parallel workers on the GPUs given and no others, balance, leaks",
        needs=("check",),
        steps=_steps(
            ("--quick", 15, 120), ("--duration 30", 90, 300), ("--duration 120", 180, 900)
        ),
        extra=True,
        results="alloc.workers alloc.isolation alloc.balance alloc.processes alloc.launches",
        faults=(*OF_WORKERS, "unbalanced", "no-scaling", "held-memory", "neighbour"),
    ),
    PayloadSpec(
        "storage_net",
        "scratch writes and reads, many small files, network",
        steps=_steps(("--quick", 5, 120), ("", 60, 300), ("", 60, 900)),
        extra=True,
        results="storage.large_file storage.small_files storage.overwrite storage.rename",
        faults=(
            "corrupt-file",
            "lost-file",
            "mixed-files",
            "stale-write",
            "slow-storage",
            "fio-corrupt",
            "fio-slow",
        ),
    ),
    PayloadSpec(
        "tensor_service",
        "tensors to a server and back, exact, and what remote costs",
        needs=("check",),
        steps=_steps(
            ("pair --here --quick", 12, 120), ("pair --here", 60, 300), ("pair --here", 60, 600)
        ),
        extra=True,
        results="""
            tensor_service.server.server_operations tensor_service.client.http_tensor_transfer
            tensor_service.client.remote_execution tensor_service.client.error_handling
        """,
        faults=(
            "wrong-answer",
            "wrong-large",
            "stale-answer",
            "mixed-clients",
            "late",
            "late-each-fourth",
            "open-door",
            "dead-server",
        ),
    ),
    PayloadSpec(
        "stress",
        "continuous load with a bitwise check, temperature, throttling",
        needs=("check",),
        steps=_steps(
            ("--quick --duration 5", 10, 120),
            ("--duration 120", 150, 400),
            ("--duration 3600", 600, 4500),  # run_all.py burns for what is left of its budget
        ),
        results="stress.[tg]* telemetry",
        faults=(
            "bitflip",
            "digest",
            "hang",
            "crash",
            "slow",
            "not-launched",
            "half-written",
            "wrong-reference",
            "p2p-lost",
            "p2p-bitflip",
            "p2p-stops",
            *OF_TELEMETRY,
            *OF_SPEED,
            *OF_WEAR,
        ),
    ),
)

FAULTS = {
    "run_all": ("child", "lost-result", "cut-short"),
    **{payload.name: payload.faults for payload in PAYLOADS},
}
"""By script, the faults that `--inject` takes."""

NEEDS_RANKS: dict[str, tuple[str, ...]] = {
    "check": OF_RANKS,
    "allreduce": ("drop-rank",),
    "train": ("drop-rank", "unsummed", "bitflip", "node-rank"),
    "train_fsdp": ("drop-rank", *OF_SUMS, "unsharded"),
    "moe": ("drop-rank",),
    "inference": OF_RANKS,
}
"""By payload, the faults that show between ranks alone."""

EVERY_GPU = ("check", "membw", "stress", "alloc_stress")
"""Payloads that list every GPU of their node among a result's devices, and test each."""
