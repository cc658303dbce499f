#!/usr/bin/env python3
"""A small sharded training (FSDP2) in which every step can be checked.

    torchrun train_fsdp.py                 # all GPUs of the job, also over several nodes
    torchrun train_fsdp.py --hf-model TinyLlama/TinyLlama-1.1B-Chat-v1.0      # needs transformers

Checks the sharded gradients against those of one process, that each rank holds its share of the
parameters, that the loss falls, and that a distributed checkpoint gives the same bits back.

Stand-alone: stdlib and torch; without --hf-model nothing is downloaded.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _harness import timing
from _harness.flags import whole
from _harness.main import Payload, Session, run
from contract.verdicts import NotPassed

if TYPE_CHECKING:
    import argparse

    from _harness.ranks import Group

ON_CPU = 3  # steps whose gradients are computed again
MOST_ALONE = 2**31  # parameters of a model that each rank holds a whole copy of, to compare


def body(session: Session) -> None:
    """Shard, compare, train, save, load."""
    device = session.devices()[0]
    session.need_torch()
    with session.group(device) as group:
        compare_gradients(session, group)
        model, draw = model_and_data(session, group)
        require_sharded(session, group, model)
        train(session, group, model, draw)
        save_and_load(session, group, model)


def shard(group: Group, model: Any, dtype: Any = None) -> Any:
    """Shard a model's blocks and the rest over all ranks; compute in `dtype`, sum in fp32."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    kind = group.device.partition(":")[0]
    mesh = init_device_mesh(kind, (group.ranks.world,))  # explicit, or gloo would move to CUDA
    mixed = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=group.torch.float32)
    policy = mixed if dtype is not None else MixedPrecisionPolicy()
    model = model.to(group.device)
    for block in blocks(model):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def blocks(model: Any) -> Any:
    """Return the layers that are sharded one by one: a model's largest list of modules."""
    from torch.nn import ModuleList

    lists = (module for module in model.modules() if isinstance(module, ModuleList))
    return max(lists, key=lambda each: sum(p.numel() for p in each.parameters()), default=[])


def compare_gradients(session: Session, group: Group) -> None:
    """Compare the gradients of the first step, in fp32, with those of one whole model."""
    from _training import checks, models

    session.test = "fsdp.gradients"
    seed, ranks = session.options.seed, group.ranks
    batch = models.tokens(seed, 4 * ranks.world)(0)
    expected = checks.of_whole_batch(models.decoder(seed).to(group.device), batch, group.device)
    model = shard(group, models.decoder(seed))
    x, y = models.part(batch, ranks.rank, ranks.world, group.device)
    models.loss_of(model(x), y).backward()
    gradients = [parameter.grad.full_tensor() for parameter in model.parameters()]
    checks.report_gradients(session, group, gradients, expected)


def model_and_data(session: Session, group: Group) -> tuple[Any, Any]:
    """Make the sharded model to train, and its global batches."""
    from _training import models

    session.test = "fsdp.shard"
    options = session.options
    rows = max(1, options.batch_size // group.ranks.world) * group.ranks.world
    dtype = computing(group)
    if options.hf_model:
        model, draw = models.hub_model(options.hf_model), models.hub_batches(options.hf_model, rows)
    else:
        model = models.decoder(options.seed)
        draw = models.tokens(options.seed, rows)
    whole_model = session.faults.get("unsharded") is not None
    return (model.to(group.device) if whole_model else shard(group, model, dtype)), draw


def computing(group: Group) -> Any:
    """Return the type that the sharded model computes in, None for that of its parameters."""
    return group.torch.bfloat16 if group.device.startswith("cuda") else None


def sums_of(session: Session, group: Group, model: Any) -> Any:
    """Return what compares the gradients of steps: all of them, or of some where that takes long.

    A model of another is as large as a whole one, on each rank; for the largest there is no room.
    """
    from _training import models, sums

    options = session.options
    most = max(4, 160 // group.ranks.world) if group.device.startswith("cuda") else ON_CPU
    if options.hf_model:
        most = 2 if sum(p.numel() for p in model.parameters()) < MOST_ALONE else 0
    if not most or not all(hasattr(p, "full_tensor") for p in model.parameters()):
        return sums.Sums(group.torch.nn.Module(), group.device, [])
    whole = models.hub_model(options.hf_model) if options.hf_model else models.decoder(options.seed)
    compared = sums.Sums(whole, group.device, sums.spread(options.steps, most))
    if (dtype := computing(group)) is not None:
        compared.round_to(dtype)
    return compared


def require_sharded(session: Session, group: Group, model: Any) -> None:
    """Report what part of the parameters this rank holds; about 1/W."""
    from _training import shards

    share, rank = shards.share_of(model.parameters(), group.ranks.world), group.ranks.rank
    part = share.held / share.every
    session.say("DDP", f"rank {rank} holds {part:.1%} of {share.every:,} parameters")
    with session.attempt("fsdp.shard", device=group.device, details=share.details):
        if not share.is_right:
            raise NotPassed("FAIL", "not_sharded", share.said(rank))
        session.report.add("fsdp.shard", "PASS", device=group.device, details=share.details)


def train(session: Session, group: Group, model: Any, draw: Any) -> None:
    """Train; the loss must fall."""
    from _training import models, progress
    from _training.strikes import Strike
    from _training.updates import Updates

    session.test = "fsdp.train"
    compared, strike = sums_of(session, group, model), Strike(session, group)
    parameters = list(model.parameters())
    ranks, optimizer = group.ranks, progress.optimizer_of(session, model)
    updates = Updates(session, optimizer)
    losses, seconds = [], []
    for step in range(session.options.steps):
        every, strike.step = draw(step), step
        parts = [models.part(every, rank, ranks.world, group.device) for rank in range(ranks.world)]
        compared.before(step, parameters)
        updates.before(step)
        start = time.perf_counter()
        with strike.planted_in_fsdp():
            losses.append(progress.one_step(model, optimizer, parts[ranks.rank]))
        timing.synchronize(group.torch, group.device)
        seconds.append(time.perf_counter() - start)
        compared.after(step, parameters, parts)
        updates.after(step)
        if session.faults.get("nan", step=step):
            losses[-1] *= float("nan")
    values = progress.averaged(group, losses)
    progress.judge(session, group, model, values, seconds, memory(group))
    compared.report(session, "fsdp.sums")
    updates.report(group.device, "fsdp.updates")


def memory(group: Group) -> dict[str, int]:
    """Return the most bytes that a GPU held."""
    if not group.device.startswith("cuda"):
        return {}
    return {"peak_bytes": int(group.torch.cuda.max_memory_allocated(group.device))}


def save_and_load(session: Session, group: Group, model: Any) -> None:
    """Save a distributed checkpoint, lose the parameters, load it: every bit must be back."""
    from _training import checks, shards

    session.test = "fsdp.checkpoint"
    folder = Path(session.options.checkpoint_dir) / "train_fsdp.dcp"
    size, seconds = shards.save(model, folder, group)
    if session.faults.get("stale-checkpoint"):
        shards.move_on(model)
    before = int(checks.fingerprint(shards.local(model)))
    shards.forget(model)
    shards.load(model, folder)
    if session.faults.get("corrupt-checkpoint"):
        checks.flip_bit_of(shards.local(model)[0])
    after = int(checks.fingerprint(shards.local(model)))
    details = {"path": str(folder), "bytes": size, "save_s": seconds}
    with session.attempt(session.test, device=group.device, details=details):
        if before != after:
            reason = f"rank {group.ranks.rank}: other parameters than were saved came back"
            raise NotPassed("FAIL", "resume_mismatch", reason)
        session.report.add(session.test, "PASS", device=group.device, details=details)
    group.dist.barrier()
    if group.ranks.rank == 0:
        shards.remove(folder)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this payload."""
    parser.add_argument("--steps", type=whole, default=20)
    parser.add_argument("--batch-size", type=whole, default=32, help="rows of all ranks together")
    parser.add_argument("--hf-model", default="", help="a causal model of the Hugging Face hub")
    where = os.environ.get("RV_CHECKPOINT_DIR") or "."
    parser.add_argument("--checkpoint-dir", default=where, help="a folder that all ranks share")


TRAIN = Payload(
    "train_fsdp",
    "A small sharded training in which every step can be checked.",
    body,
    add_flags=add_flags,
    needs_numpy=True,
)

if __name__ == "__main__":
    run(TRAIN)
