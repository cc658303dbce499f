"""Every fault that a payload can be told to make is found: by its code, with exit code 1."""

from pathlib import Path

import pytest

from rv.payloads.contract import catalogue
from tests.payloads.starting import Launcher

CHECK = ["--size", "64", "--dtypes", "fp32"]
DATA = ["--workers", "0,1", "--samples", "40", "--work-ms", "0.1"]
TRAIN = ["--epochs", "1", "--steps", "10"]
KEPT = [*TRAIN, "--checkpoint-dir", "kept"]
FSDP = ["--steps", "10"]
MOE = ["--new-tokens", "4"]
FILES = ["--workers", "0", "--samples", "8", "--work-ms", "0.1", "--files", "."]
WAITS = {"drop-rank": "16", "hang": "30"}  # seconds; half of them go by before a rank is missing
FAULTS = [
    ("check", 1, "wrong-product", "matmul.fp32.exact", "wrong_result", CHECK),
    ("check", 1, "wrong-product:dtype=fp32", "matmul.fp32.exact", "wrong_result", CHECK),
    ("check", 1, "not-repeatable", "matmul.fp32.repeat", "not_repeatable", CHECK),
    ("check", 1, "residual", "matmul.fp32.residual", "residual_too_large", CHECK),
    ("check", 1, "wrong-element:stage=timed,product=20", "matmul.fp32", "wrong_result", CHECK),
    ("check", 1, "not-launched:stage=timed,product=20", "matmul.fp32", "wrong_result", CHECK),
    ("check", 1, "half-written:stage=timed", "matmul.fp32", "wrong_result", CHECK),
    (
        "check",
        1,
        "half-written:stage=repeat,product=3",
        "matmul.fp32.repeat",
        "not_repeatable",
        CHECK,
    ),
    ("check", 1, "not-launched:stage=repeat", "matmul.fp32.repeat", "residual_too_large", CHECK),
    ("check", 2, "digest:rank=1", "matmul.digest", "digest_mismatch", CHECK),
    ("check", 3, "slow:rank=1,factor=50", "matmul.peers", "peer_outlier", CHECK),
    ("check", 1, "stretch", "matmul.fp32", "contended", CHECK),
    ("check", 1, "busy", "contention", "gpu_busy", CHECK),
    ("check", 1, "held", "contention", "memory_held", CHECK),
    ("check", 2, "contended:rank=1", "contention", "contended", CHECK),
    ("check", 1, "below", "matmul.fp32", "below_floor", CHECK),
    ("check", 2, "drop-rank:rank=1", "ranks", "rank_missing", CHECK),
    ("train", 2, "gradient:rank=0", "ddp.gradients", "gradient_mismatch", TRAIN),
    ("train", 2, "unsummed:step=5", "ddp.sums", "gradient_mismatch", TRAIN),
    ("train", 2, "stale-gradient:step=5", "ddp.sums", "gradient_mismatch", TRAIN),
    ("train", 2, "wrong-elements:step=5", "ddp.sums", "gradient_mismatch", TRAIN),
    ("train", 2, "lost-update:step=5", "ddp.updates", "wrong_result", TRAIN),
    ("train", 1, "flipped-weight:step=9", "ddp.updates", "wrong_result", TRAIN),
    ("train", 1, "corrupt-checkpoint", "ddp.checkpoint", "checkpoint_corrupt", KEPT),
    ("train", 1, "stale-checkpoint", "ddp.checkpoint", "checkpoint_corrupt", KEPT),
    ("train", 2, "bitflip:step=2,rank=1", "ddp.replicas", "replica_divergence", TRAIN),
    ("train", 2, "nan:step=3,rank=1", "ddp.train", "nan_loss", TRAIN),
    ("train", 1, "no-learning", "ddp.train", "loss_not_falling", TRAIN),
    ("train", 2, "node-rank:rank=1", "ddp.layout", "node_rank_clash", TRAIN),
    ("train", 2, "drop-rank", "ranks", "rank_missing", TRAIN),
    ("train", 2, "crash:rank=1", "ddp.layout", "collective_timeout", TRAIN),
    ("train", 2, "hang:rank=1", "ddp.layout", "collective_timeout", TRAIN),
    ("train_fsdp", 2, "gradient:rank=1", "fsdp.gradients", "gradient_mismatch", FSDP),
    ("train_fsdp", 2, "unsummed:step=6", "fsdp.sums", "gradient_mismatch", FSDP),
    ("train_fsdp", 2, "stale-gradient:step=6", "fsdp.sums", "gradient_mismatch", FSDP),
    ("train_fsdp", 2, "wrong-elements:step=6", "fsdp.sums", "gradient_mismatch", FSDP),
    ("train_fsdp", 2, "lost-update:step=4,rank=1", "fsdp.updates", "wrong_result", FSDP),
    ("train_fsdp", 2, "flipped-weight:step=4,rank=1", "fsdp.updates", "wrong_result", FSDP),
    ("train_fsdp", 2, "stale-checkpoint", "fsdp.checkpoint", "resume_mismatch", FSDP),
    ("train_fsdp", 2, "unsharded", "fsdp.shard", "not_sharded", FSDP),
    ("train_fsdp", 2, "nan:step=1", "fsdp.train", "nan_loss", FSDP),
    ("train_fsdp", 1, "no-learning", "fsdp.train", "loss_not_falling", FSDP),
    ("train_fsdp", 2, "corrupt-checkpoint:rank=1", "fsdp.checkpoint", "resume_mismatch", FSDP),
    ("train_fsdp", 2, "drop-rank:rank=1", "ranks", "rank_missing", FSDP),
    ("moe", 2, "unsharded", "moe.shard", "not_sharded", MOE),
    ("moe", 2, "wrong-expert:rank=1", "moe.logits", "wrong_result", MOE),
    ("moe", 2, "wrong-token:rank=1", "moe.tokens", "wrong_result", MOE),
    ("inference", 1, "reference", "inference.reference", "residual_too_large", []),
    ("inference", 1, "wrong-place", "inference.reference", "residual_too_large", []),
    ("inference", 1, "wrong-output:batch=17", "inference.throughput", "wrong_result", []),
    ("inference", 1, "stale-output:batch=5", "inference.throughput", "wrong_result", []),
    ("inference", 1, "stale-output:batch=9,back=4", "inference.throughput", "wrong_result", []),
    ("inference", 1, "not-launched:batch=30", "inference.throughput", "wrong_result", []),
    ("inference", 1, "stretch", "inference.throughput", "contended", []),
    ("inference", 1, "below", "inference.throughput", "below_floor", []),
    ("inference", 1, "busy", "contention", "gpu_busy", []),
    ("inference", 1, "held", "contention", "memory_held", []),
    ("inference", 1, "contended", "contention", "contended", []),
    ("inference", 3, "slow:rank=1,factor=50", "inference.peers", "peer_outlier", []),
    ("dataload", 1, "duplicate", "dataload.workers0", "wrong_samples", DATA),
    ("dataload", 1, "balanced-loss", "dataload.workers1", "wrong_samples", DATA),
    ("dataload", 1, "other-data", "dataload.workers0", "wrong_samples", DATA),
    ("dataload", 1, "torn-sample", "dataload.workers1", "wrong_samples", DATA),
    ("dataload", 1, "torn-sample:source=files", "dataload.files", "wrong_samples", FILES),
    ("dataload", 1, "balanced-loss:source=files", "dataload.files", "wrong_samples", FILES),
    ("dataload", 1, "worker-dies", "dataload.workers1", "worker_died", DATA),
    ("dataload", 1, "small-shm", "dataload.shm", "shm_too_small", DATA),
    ("dataload", 1, "wrong-pool", "dataload.pool", "wrong_answer", DATA),
]


@pytest.mark.parametrize(
    ("payload", "world", "fault", "test", "code", "words"),
    FAULTS,
    ids=[f"{payload}-{fault}" for payload, _, fault, *_ in FAULTS],
)
def test_fault_is_found(
    launch: Launcher, tmp_path: Path, payload: str, world: int, fault: str, test: str, code: str, words: list[str],
) -> None:  # fmt: skip
    """Of the run without it each test passes: see the test of each payload."""
    waits = ["--timeout", WAITS.get(fault.partition(":")[0], "300")]
    argv = ["--device", "cpu", "--quick", *words, *waits, "--inject", fault]

    done = launch(payload, tmp_path, *argv, world=world)

    assert done.code == 1, done.out + done.err
    assert (test, code) in done.bad
    assert done.last.startswith("[RESULT] FAIL: ")
    assert done.result["summary"]["status"] == "FAIL"
    assert "Traceback" not in done.err


def test_every_fault_is_tried() -> None:
    """A fault that nothing finds would be a lie in --help."""
    for payload in ("check", "train", "train_fsdp", "moe", "inference", "dataload"):
        tried = {fault.partition(":")[0] for name, _, fault, *_ in FAULTS if name == payload}
        # tests/payloads/test_sharing.py, test_inference.py, test_diagnosis.py and test_wear.py
        warned = {"unknown-model", "other-rounding", "dcgm", *catalogue.OF_WEAR}
        assert set(catalogue.FAULTS[payload]) - tried <= set(catalogue.OF_RANKS) | warned
