#!/usr/bin/env python3
"""A small distributed training (DDP) in which every step can be checked.

    torchrun train.py                      # all GPUs of the job, also over several nodes
    python train.py --quick                # one after the other, each on its own
    torchrun train.py --epochs 1 --steps 10 --batch-size 256

Checks who is where, the averaged gradients against those of one process, the replicas' parameters
bit by bit, and that the loss falls; measures the steps and what of them is communication.

Stand-alone: stdlib and torch.
"""

from __future__ import annotations

import copy
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _checkpoint import store
from _harness import timing
from _harness.files import training_aliases
from _harness.flags import whole
from _harness.main import Payload, Session, run
from contract.verdicts import NotPassed

if TYPE_CHECKING:
    import argparse

    from _harness.ranks import Group

ROWS = 4000  # of an epoch, as in the programs before rv


def body(session: Session) -> None:
    """Train on this rank's device; where there is one rank and several GPUs, on each in turn."""
    devices = session.devices()
    session.need_torch()
    for device in devices:
        with session.group(device) as group:
            train(session, group)


def train(session: Session, group: Group) -> None:
    """Place, compare gradients, train, time."""
    from _training import models, progress

    options, ranks = session.options, group.ranks
    place(session, group)
    session.test = "ddp.train"
    rows = max(1, options.batch_size // ranks.world) * ranks.world
    batches = models.vectors(options.seed, rows)
    compare_gradients(session, group, models.mlp(options.seed), batches(0))
    model = parallel(group, models.mlp(options.seed))
    losses, seconds = steps(session, group, model, batches)
    session.test = "ddp.train"
    facts = {"epochs": options.epochs, "batch_size": options.batch_size, "model": "mlp"}
    counted = f" ranks counted={count(group)}"
    progress.judge(session, group, model, losses, seconds, facts, more=counted)
    time_communication(session, group, model, batches(0))
    save(session, group, model)


def place(session: Session, group: Group) -> None:
    """Print and check the map of ranks, nodes and devices."""
    from _training import checks

    session.test = "ddp.layout"
    places = checks.gather_places(group, pretend=session.faults.get("node-rank") is not None)
    for each in places:
        gpu = f" {each['gpu']} {each['uuid']}" if each["gpu"] else ""
        where = f"node {each['node_rank']} {each['node']} {each['device']}{gpu}"
        session.say("DDP", f"rank {each['rank']}/{group.ranks.world} -> {where}")
    with session.attempt("ddp.layout", device=group.device):
        checks.require_distinct(places)
        details = {"places": places}
        session.report.add("ddp.layout", "PASS", device=group.device, details=details)


def parallel(group: Group, model: Any) -> Any:
    """Wrap a model for DDP; with one rank too, so that the same code runs."""
    from torch.nn.parallel import DistributedDataParallel

    ids = [group.torch.device(group.device)] if group.device.startswith("cuda") else None
    return DistributedDataParallel(model.to(group.device), device_ids=ids)


def compare_gradients(session: Session, group: Group, model: Any, batch: Any) -> None:
    """Compare the gradients of the first step, averaged over the ranks, with one process's."""
    from _training import checks, models

    session.test = "ddp.gradients"
    alone = copy.deepcopy(model).to(group.device)
    expected = checks.of_whole_batch(alone, batch, group.device)
    ddp = parallel(group, model)
    x, y = models.part(batch, group.ranks.rank, group.ranks.world, group.device)
    models.loss_of(ddp(x), y).backward()
    gradients = [parameter.grad for parameter in ddp.parameters()]
    checks.report_gradients(session, group, gradients, expected)


def steps(
    session: Session, group: Group, model: Any, batches: Any
) -> tuple[list[float], list[float]]:
    """Train; return every step's loss, averaged over the ranks, and this rank's seconds."""
    from _training import checks, models, progress, sums
    from _training.strikes import Strike
    from _training.updates import Updates

    torch, optimizer = group.torch, progress.optimizer_of(session, model)
    losses, seconds, parameters = [], [], list(model.parameters())
    alone = models.mlp(session.options.seed)
    compared = sums.Sums(alone, group.device, range(total(session.options)))
    updates, strike = Updates(session, optimizer), Strike(session, group)
    strike.plant_in_ddp(model)
    session.test = "ddp.replicas"
    for step in range(total(session.options)):
        every, strike.step = batches(step), step
        batch = models.part(every, group.ranks.rank, group.ranks.world, group.device)
        compared.before(step, parameters)
        updates.before(step)
        start = time.perf_counter()
        losses.append(progress.one_step(model, optimizer, batch))
        timing.synchronize(torch, group.device)
        seconds.append(time.perf_counter() - start)
        compared.after(step, parameters, [every])
        updates.after(step)
        if session.faults.get("nan", step=step):
            losses[-1] *= float("nan")
        if session.faults.get("bitflip", step=step):
            checks.flip_bit(model)
        checks.require_equal(model, group, step)
    session.report.add("ddp.replicas", "PASS", device=group.device, details={"steps": len(losses)})
    compared.report(session, "ddp.sums")
    updates.report(group.device, "ddp.updates")
    return progress.averaged(group, losses), seconds


def time_communication(session: Session, group: Group, model: Any, batch: Any) -> None:
    """Report what part of a step is waiting for the gradients of the other ranks."""
    from _training import models, progress

    if group.ranks.alone:
        return
    session.test = "ddp.communication"
    x, y = models.part(batch, group.ranks.rank, group.ranks.world, group.device)

    def step() -> None:
        models.loss_of(model(x), y).backward()

    share = progress.exposed_share(session, model, step, group.device)
    session.report.add(session.test, "PASS", device=group.device, metrics=[share])


def count(group: Group) -> int:
    """Count the ranks by adding a one from each. Raises NotPassed where not all are counted."""
    ones = group.torch.ones(1, device=group.device)
    group.dist.all_reduce(ones)
    if int(ones) != group.ranks.world:
        reason = f"a one from each of {group.ranks.world} ranks adds up to {int(ones)}"
        raise NotPassed("FAIL", "wrong_collective", reason)
    return int(ones)


def save(session: Session, group: Group, model: Any) -> None:
    """Save a checkpoint where the job keeps them."""
    folder = session.options.checkpoint_dir
    if not folder or group.ranks.rank:
        return
    with session.attempt("ddp.checkpoint"):
        target = Path(folder) / "train.pt"
        target.parent.mkdir(parents=True, exist_ok=True)
        write(session, group, model.module.state_dict(), target)
        require_kept(group.torch, model.module.state_dict(), target)
        size = target.stat().st_size
        session.say("TRAIN", f"checkpoint {target}: {size / 1024:.1f} KB")
        details = {"path": str(target), "bytes": size, "read_back": True}
        session.report.add("ddp.checkpoint", "PASS", details=details)


def write(session: Session, group: Group, state: dict[str, Any], target: Path) -> None:
    """Write a checkpoint under its name when it is whole and on disk."""
    if session.faults.get("stale-checkpoint"):
        state = {name: group.torch.zeros_like(tensor) for name, tensor in state.items()}
    draft = target.with_suffix(".part")
    with draft.open("wb") as file:
        group.torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(target)
    if session.faults.get("corrupt-checkpoint"):
        store.corrupt(target)


def require_kept(torch: Any, state: dict[str, Any], target: Path) -> None:
    """Read a checkpoint back, past the cache. Raises NotPassed unless it is what was saved."""
    store.drop_cache(target)
    try:
        is_same = store.same(torch, torch.load(target, weights_only=True), dict(state))
    except Exception as error:  # whatever torch says of a file that is none of its own
        why = f"{target} cannot be read back: {error}".partition("\n")[0]
        raise NotPassed("FAIL", "checkpoint_corrupt", why) from error
    if not is_same:
        raise NotPassed("FAIL", "checkpoint_corrupt", f"{target}: read back, it is another one")


def total(options: argparse.Namespace) -> int:
    """Return the number of steps: those asked for in each epoch, or one look at all the data."""
    each = options.steps or max(1, ROWS // options.batch_size)
    return int(options.epochs * (min(each, 10) if options.quick else each))


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this payload; the first four are those of the program before rv."""
    parser.add_argument("--epochs", type=whole, default=3, help="looks at the data")
    parser.add_argument("--batch-size", type=whole, default=256, help="rows of all ranks together")
    parser.add_argument("--steps", type=int, default=0, help="steps of an epoch (0: all the data)")
    parser.add_argument("--train-smoke", action="store_true", help="taken for older command lines")
    where = os.environ.get("RV_CHECKPOINT_DIR", "")
    parser.add_argument("--checkpoint-dir", default=where, help="where to save, if anywhere")


TRAIN = Payload(
    "train",
    "A small distributed training in which every step can be checked.",
    body,
    add_flags=add_flags,
    aliases=training_aliases,
    stands_for="ddp_tests",
    needs_numpy=True,
)

if __name__ == "__main__":
    run(TRAIN)
