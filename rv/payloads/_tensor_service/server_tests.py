"""The server's own tests, against the address it really listens on, while it is up."""

from __future__ import annotations

import platform
import statistics
from typing import TYPE_CHECKING, Any

from _harness.timing import time_each, warm_up
from contract.schema import LOWER, metric
from contract.verdicts import NotPassed

from .suite import close_to, require
from .tensors import OPERATIONS

if TYPE_CHECKING:
    from .client import Client
    from .suite import Suite

SIDE = 1000  # of the matrix whose product is timed


def run(suite: Suite, torch: Any, device: str, client: Client, patience: float) -> None:
    """Run all of them; a server that does not come up leaves only the first two."""
    suite.run("environment_setup", lambda: _environment(torch))
    if not suite.run("server_startup", lambda: _startup(client, patience)):
        return
    suite.run("health_endpoint", lambda: _health(client))
    suite.run("gpu_detection", lambda: _gpu(torch, device))
    suite.run("server_operations", lambda: _operations(torch, client))
    suite.run("server_stats", lambda: _stats(client))


def _environment(torch: Any) -> dict[str, Any]:
    return {"python": platform.python_version(), "torch": torch.__version__}


def _startup(client: Client, patience: float) -> dict[str, Any]:
    health = client.wait(patience)
    where = f"listening on {client.host}:{client.port}"
    return {"server": f"PID {health['pid']}, {where}", "uptime_s": health["uptime"]}


def _health(client: Client) -> dict[str, Any]:
    health = client.health()
    require(health["status"] == "healthy", f"its health is {health['status']!r}")
    return {"device": health["device"], "cuda_available": health["cuda_available"]}


def _gpu(torch: Any, device: str) -> dict[str, Any]:
    """Time a product on the device, warmed up and waited for: not the loading of a kernel."""
    matrix = torch.randn(SIDE, SIDE, device=device)
    warm_up(torch, device, lambda: matrix @ matrix, seconds=0.2, rounds=3)
    samples = [s * 1e3 for s in time_each(torch, device, lambda: matrix @ matrix, rounds=10)]
    on_gpu = device.startswith("cuda")
    return {
        "cuda_available": bool(torch.cuda.is_available()),
        "gpu_count": torch.cuda.device_count(),
        "gpu_name": torch.cuda.get_device_name(device) if on_gpu else None,
        "gpu_time_ms": statistics.median(samples) if on_gpu else None,
        "device": device,
        "metrics": [metric("matmul_1000_ms", samples, "ms", LOWER)],
    }


def _operations(torch: Any, client: Client) -> dict[str, Any]:
    """Try every operation over HTTP and compare it with the same on this CPU."""
    tensor = torch.rand(100, 100) + 0.5  # above zero: log and sqrt are numbers
    for name in OPERATIONS:
        expected = tensor @ tensor if name == "matmul" else getattr(torch, name)(tensor)
        result, _ = client.execute(torch, [name], tensor)
        right = close_to(torch, result, expected, len(tensor) if name == "matmul" else 1)
        require(right, f"{name} is not what this CPU computes")
    return {"operations": list(OPERATIONS)}


def _stats(client: Client) -> dict[str, Any]:
    """See the counters grow by what was asked."""
    stats: dict[str, Any] = client.health()["stats"]
    if stats["successful"] < len(OPERATIONS) or stats["failed"]:
        raise NotPassed("FAIL", "wrong_answer", f"counted {stats} of {len(OPERATIONS)} requests")
    return stats
