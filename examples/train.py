"""A small distributed training run: `torchrun train.py`, or plain `python train.py`.

Every rank says where it runs, the ranks count each other once, and the loss must fall.
"""

from __future__ import annotations

import os
import socket
import sys
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

STEPS = 20


def join() -> torch.device:
    """Join the group that torchrun describes, else a group of one; give this rank's device."""
    for name, value in {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }.items():
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            os.environ[name] = value
    local = int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available():
        torch.cuda.set_device(local)
        dist.init_process_group("nccl", device_id=torch.device("cuda", local))
        return torch.device("cuda", local)
    dist.init_process_group("gloo")
    return torch.device("cpu")


def count_ranks(device: torch.device) -> int:
    """Add up one slot a rank over all ranks: each slot must come back as exactly one."""
    seen = torch.zeros(dist.get_world_size(), device=device)
    seen[dist.get_rank()] = 1
    dist.all_reduce(seen)
    if not torch.equal(seen, torch.ones_like(seen)):
        sys.exit(f"[TRAIN] ranks were not counted once each: {seen.tolist()}")
    return int(seen.sum())


def train(device: torch.device) -> list[float]:
    """Fit a line with data-parallel steps; give the loss of each step over all ranks."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(1 + dist.get_rank())
    losses = []
    for _ in range(STEPS):
        inputs = torch.randn(64, 8, generator=data).to(device)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    return losses


def main() -> None:
    """Run, and fail where a rank is missing or the loss does not fall."""
    device = join()
    world, rank, local = dist.get_world_size(), dist.get_rank(), os.environ["LOCAL_RANK"]
    where = f"rank {rank}/{world} on {socket.gethostname()} local {local} pid {os.getpid()}"
    print(f"{where} device {device}", flush=True)
    counted, losses = count_ranks(device), train(device)
    if rank == 0:
        print(f"[TRAIN] world={world} ranks counted={counted}", end=" ")
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}", flush=True)
    dist.barrier()  # nobody leaves while another still talks to it
    dist.destroy_process_group()
    if not losses[-1] < 0.5 * losses[0]:
        sys.exit(f"[TRAIN] the loss did not fall: {losses}")


if __name__ == "__main__":
    main()
    # DDP keeps gloo's threads past destroy_process_group, and one that frees its last tensor while
    # the interpreter shuts down aborts the process: leave without that shutdown.
    sys.stdout.flush()
    os._exit(0)
