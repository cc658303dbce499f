"""A checkpoint of two ranks, loaded by one: the same weights, bit for bit, at the save point.

FSDP2 shards them, torch.distributed.checkpoint saves and loads them. Further steps would differ by
the order of a reduction, so what is compared is what was saved.
"""

from __future__ import annotations

import importlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.verdicts import NotPassed

from . import store
from .training import deterministic, model

if TYPE_CHECKING:
    from .runner import SegmentRunner

RANKS, STEPS, BATCH, FEATURES = 2, 3, 8, 16


def resharded(runner: SegmentRunner) -> dict[str, Any]:
    """Save with two ranks, load with one, and compare the digests."""
    gpus = runner.torch.cuda.device_count() if runner.basis.device != "cpu" else 0
    kind = "cuda" if gpus >= RANKS else "cpu"
    folder = runner.root / "reshard"
    folder.mkdir(exist_ok=True)
    fault = "reshard" if "reshard" in runner.faults else ""
    jobs = (kind, str(folder), runner.basis.seed)
    _run(runner, folder, [(rank, RANKS, *jobs, "") for rank in range(RANKS)])
    _run(runner, folder, [(0, 1, *jobs, fault)])
    saved, loaded = ((folder / f"digest.{world}").read_text() for world in (RANKS, 1))
    if saved != loaded:
        reason = f"saved by {RANKS} ranks {saved[:12]}, loaded by one {loaded[:12]}"
        raise NotPassed("FAIL", "reshard_mismatch", reason)
    return {"digest": saved, "device": kind}


def _run(runner: SegmentRunner, folder: Path, jobs: list[tuple[Any, ...]]) -> None:
    processes = [runner.context.Process(target=work, args=job) for job in jobs]
    for process in processes:
        process.start()
    try:
        codes = [runner.ended(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.join()
    if any(codes):
        error = folder / "error"
        message = error.read_text() if error.exists() else f"ended with {codes}"
        raise NotPassed("FAIL", "reshard_mismatch", f"{len(jobs)} ranks: {message}")


def work(rank: int, world: int, kind: str, folder: str, seed: int, fault: str) -> None:
    """Run one rank: two of them train and save, one alone loads."""
    import torch

    dist: Any = torch.distributed

    signal.set_wakeup_fd(-1)
    torch.set_num_threads(1)
    try:
        meeting = dist.FileStore(f"{folder}/meet.{world}", world)
        if kind == "cuda":
            torch.cuda.set_device(rank)
        backend = "nccl" if kind == "cuda" else "gloo"
        dist.init_process_group(backend, store=meeting, rank=rank, world_size=world)
        _save_or_load(torch, rank, world, kind, Path(folder), seed, fault)
        dist.destroy_process_group()
    except Exception as error:
        message = f"rank {rank}: {type(error).__name__}: {error}".partition("\n")[0]
        Path(folder, "error").write_text(message)
        raise SystemExit(1) from None


def _save_or_load(
    torch: Any, rank: int, world: int, kind: str, folder: Path, seed: int, fault: str
) -> None:
    dcp: Any = importlib.import_module("torch.distributed.checkpoint")
    states: Any = importlib.import_module("torch.distributed.checkpoint.state_dict")
    fsdp: Any = importlib.import_module("torch.distributed.fsdp")
    meshes: Any = importlib.import_module("torch.distributed.device_mesh")
    deterministic(torch)
    torch.manual_seed(seed if world == RANKS else seed + 1)
    net = model(torch).to(kind)
    fsdp.fully_shard(net, mesh=meshes.init_device_mesh(kind, (world,)))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, foreach=False)
    if world == RANKS:
        _train(torch, net, optimizer, rank, kind)
    weights, moments = states.get_state_dict(net, optimizer)
    whole = {"model": weights, "optimizer": moments}
    if world == RANKS:
        dcp.save(whole, checkpoint_id=str(folder / "state"))
    else:
        dcp.load(whole, checkpoint_id=str(folder / "state"))
        states.set_state_dict(net, optimizer, model_state_dict=weights, optim_state_dict=moments)
        weights, moments = states.get_state_dict(net, optimizer)
    full = {"model": _full(torch, weights), "optimizer": _full(torch, moments)}
    if fault:
        next(iter(full["model"].values())).view(-1)[0] += 1e-6
    if rank == 0:
        (folder / f"digest.{world}").write_text(store.digest(torch, full))


def _train(torch: Any, net: Any, optimizer: Any, rank: int, kind: str) -> None:
    generator = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        inputs = torch.randn(BATCH, FEATURES, generator=generator).to(kind)
        optimizer.zero_grad()
        net(inputs).square().mean().backward()
        optimizer.step()


def _full(torch: Any, value: Any) -> Any:
    """Gather sharded tensors, in the order of their names."""
    if hasattr(value, "full_tensor"):
        return value.full_tensor()
    if isinstance(value, dict):
        return {name: _full(torch, value[name]) for name in sorted(value, key=str)}
    return [_full(torch, one) for one in value] if isinstance(value, list) else value
