"""The ranks of a launch: this process's place, and the rendezvous of all of them.

A process group is joined in two steps. First every rank leaves its host's name in the rendezvous
store, where rank 0 counts them: whoever is missing is named after half the time there is.
Only then is the process group made, so that nothing waits for a rank that never came.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contract.verdicts import NotPassed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .inject import Faults

LAUNCH = "MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT SLURM_JOB_ID"


@dataclass(frozen=True)
class Ranks:
    """This process's place in its launch; the only rank where torchrun did not start it."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1
    node: int = 0
    launch: str = ""

    @property
    def nodes(self) -> int:
        """How many nodes, where all have as many ranks as this one."""
        return max(1, self.world // self.local_world)

    @property
    def alone(self) -> bool:
        """Whether this is the only rank."""
        return self.world == 1


@dataclass(frozen=True)
class Group:
    """A process group that everyone has joined, and the device that this rank works on."""

    torch: Any
    ranks: Ranks
    device: str
    backend: str
    hosts: tuple[str, ...]

    @property
    def dist(self) -> Any:
        """The module torch.distributed."""
        return self.torch.distributed


def node_name() -> str:
    """Return this node's Slurm name: it may differ from the host's."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def from_environment() -> Ranks:
    """Read torchrun's variables; plain python is a world of one, whatever a job script left."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return Ranks(launch=_launch())
    world = int(os.environ["WORLD_SIZE"])
    return Ranks(
        rank=int(os.environ["RANK"]),
        world=world,
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
        local_world=int(os.environ.get("LOCAL_WORLD_SIZE", world)),
        node=int(os.environ.get("GROUP_RANK", "0")),
        launch=_launch(),
    )


def _launch() -> str:
    """Return an id of this launch, from the variables that all of its ranks share."""
    launch = "|".join(os.environ.get(name, "") for name in LAUNCH.split())
    return hashlib.sha256(launch.encode()).hexdigest()[:16]


@contextlib.contextmanager
def joined(
    torch: Any, ranks: Ranks, device: str, backend: str, timeout_s: float, faults: Faults
) -> Iterator[Group]:
    """Join the process group, work, leave it.

    `backend` is auto, nccl or gloo; `timeout_s` bounds the meeting (half of it) and
    every collective: gloo raises before it is over; NCCL would end the process without a result, so
    that there the payload's own deadline comes first.
    Raises NotPassed: `rank_missing` on rank 0, `rdzv_timeout` elsewhere.
    """
    dist = torch.distributed
    backend = ("nccl" if device.startswith("cuda") else "gloo") if backend == "auto" else backend
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    _strike_before(faults, ranks)
    store = dist.HashStore() if ranks.alone else _rendezvous(dist, ranks, timeout_s / 2)
    hosts = _roll_call(store, ranks, timeout_s / 2)
    dist.init_process_group(
        backend,
        store=dist.PrefixStore("group", store),
        rank=ranks.rank,
        world_size=ranks.world,
        timeout=datetime.timedelta(seconds=timeout_s * (4 if backend == "nccl" else 0.8)),
        device_id=torch.device(device) if backend == "nccl" else None,
    )
    _strike_after(faults)
    yield Group(torch, ranks, device, backend, hosts)
    # Not in a `finally`: after an error others still wait in a collective, and leaving would too.
    dist.destroy_process_group()


def _strike_before(faults: Faults, ranks: Ranks) -> None:
    """Leave without a word; where no rank is named all do but the first, which must tell of it."""
    dropped = faults.get("drop-rank")
    if dropped and (ranks.rank or "rank" in dropped.where):
        os._exit(0)


def _strike_after(faults: Faults) -> None:
    if faults.get("crash"):
        os._exit(9)
    if faults.get("hang"):
        time.sleep(1e6)


def _rendezvous(dist: Any, ranks: Ranks, timeout_s: float) -> Any:
    """Open the launch's store: torchrun's agent has one, without it rank 0 does.

    torch's own `env://` would have rank 0 wait for all the others before it could name any.
    """
    host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        store = dist.TCPStore(
            host,
            int(port),
            ranks.world,
            is_master=ranks.rank == 0 and not agent,
            timeout=datetime.timedelta(seconds=timeout_s),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except (RuntimeError, ValueError, OSError) as error:
        message = str(error).partition("\n")[0]
        reason = f"rank {ranks.rank} on {node_name()} did not reach {host}:{port}: {message}"
        raise NotPassed("FAIL", "rdzv_timeout", reason) from error
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"rv/{attempt}", store)


def _roll_call(store: Any, ranks: Ranks, timeout_s: float) -> tuple[str, ...]:
    """Store this rank's host and wait for all ranks' hosts; return them by rank."""
    keys = [f"host/{rank}" for rank in range(ranks.world)]
    store.set(keys[ranks.rank], node_name())
    deadline = time.monotonic() + timeout_s
    while not store.check(keys):
        if time.monotonic() > deadline:
            missing = [rank for rank, key in enumerate(keys) if not store.check([key])]
            raise _missing(missing, _present(store, keys), ranks, timeout_s)
        time.sleep(0.05)
    return tuple(store.get(key).decode() for key in keys)


def _present(store: Any, keys: list[str]) -> dict[int, str]:
    came = (rank for rank, key in enumerate(keys) if store.check([key]))
    return {rank: store.get(keys[rank]).decode() for rank in came}


def _missing(
    missing: list[int], hosts: dict[int, str], ranks: Ranks, timeout_s: float
) -> NotPassed:
    names = [f"rank {rank} on {host_of(rank, hosts, ranks)}" for rank in missing]
    reason = f"{', '.join(names)} did not join within {timeout_s:.1f} s"
    code = "rank_missing" if ranks.rank == 0 else "rdzv_timeout"
    details = {"missing": missing, "joined": {str(rank): host for rank, host in hosts.items()}}
    return NotPassed("FAIL", code, reason, details=details)


def host_of(rank: int, hosts: dict[int, str], ranks: Ranks) -> str:
    """Return a rank's host, as its neighbours on the node gave it, else the node's number."""
    node = rank // ranks.local_world
    beside = (host for other, host in hosts.items() if other // ranks.local_world == node)
    return next(beside, f"node {node}")
