"""The client's tests: right answers, strangers refused, and where the time goes."""

from __future__ import annotations

import pickle
import shutil
import socket
import statistics
import subprocess
import time
from typing import TYPE_CHECKING, Any

from contract.schema import LOWER, metric
from contract.stats import percentile
from contract.verdicts import NotPassed

from . import wire
from .analysis import break_even, fit
from .suite import close_to, require
from .tensors import OPERATIONS

if TYPE_CHECKING:
    from .client import Client
    from .suite import Suite

REPEATS = 7
KIB = 1024


def run(suite: Suite, torch: Any, client: Client, sizes: list[int], patience: float) -> None:
    """Run all of them; a server that cannot be reached leaves only the first two."""
    suite.run("network_connectivity", lambda: _network(client.host))
    if not suite.run("server_connectivity", lambda: _server(client, patience)):
        return
    suite.run("http_tensor_transfer", lambda: _transfer(torch, client))
    suite.run("remote_execution", lambda: _remote(torch, client))
    suite.run("performance_comparison", lambda: _compare(torch, client))
    suite.run("multi_operation_chain", lambda: _chain(torch, client))
    suite.run("error_handling", lambda: _errors(torch, client))
    suite.run("large_tensor_handling", lambda: _large(torch, client))
    suite.run("strangers_refused", lambda: _strangers(client))
    suite.run("bad_uploads_refused", lambda: _uploads(client))
    suite.run("client_killed_mid_request", lambda: _killed(client))
    suite.run("connection_reuse", lambda: _connections(torch, client))
    suite.run("size_sweep", lambda: _sweep(torch, client, sizes))


def _network(host: str) -> dict[str, Any]:
    """Ping where that is possible; the tests after it need a connection in any case."""
    ping = shutil.which("ping")
    if ping is None:
        return {"ping": "not installed", "address": socket.gethostbyname(host)}
    command = [ping, "-c1", "-W2", host]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    if done.returncode:
        return {"ping": "not answered (often filtered)", "address": socket.gethostbyname(host)}
    return {"ping_ms": round((time.perf_counter() - start) * 1e3, 3)}


def _server(client: Client, patience: float) -> dict[str, Any]:
    health = client.wait(patience)
    url = f"http://{client.host}:{client.port}"
    return {"server_url": url, **{k: health[k] for k in ("device", "cuda_available", "gpu_name")}}


def _transfer(torch: Any, client: Client) -> dict[str, Any]:
    tensor = torch.randn(100, 100)
    result, split = client.execute(torch, ["relu"], tensor)
    require(close_to(torch, result, torch.relu(tensor)), "relu came back wrong")
    return {"http": 200, "phases_ms": split}


def _remote(torch: Any, client: Client) -> dict[str, Any]:
    tensor = torch.randn(128, 128)
    result, split = client.execute(torch, ["matmul"], tensor)
    require(close_to(torch, result, tensor @ tensor, len(tensor)), "a product came back wrong")
    return {"phases_ms": split}


def _compare(torch: Any, client: Client) -> dict[str, Any]:
    """Multiply 1000 x 1000 here and there, both warmed up; medians in milliseconds."""
    tensor = torch.randn(1000, 1000)
    for _ in range(2):
        tensor @ tensor
        client.execute(torch, ["matmul"], tensor)
    here = [_timed(lambda: tensor @ tensor) for _ in range(REPEATS)]
    splits = [client.execute(torch, ["matmul"], tensor)[1] for _ in range(REPEATS)]
    there = [split["total"] for split in splits]
    compute = [split["compute"] for split in splits]
    middle = {name: statistics.median(split[name] for split in splits) for name in splits[0]}
    return {
        "local_cpu_ms": statistics.median(here),
        "server_compute_ms": statistics.median(compute),
        "remote_ms": statistics.median(there),
        "remote_p95_ms": percentile(there, 95),
        "phases_ms": middle,
        "metrics": [metric("remote_1000_ms", there, "ms", LOWER)],
    }


def _timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def _chain(torch: Any, client: Client) -> dict[str, Any]:
    tensor = torch.randn(50, 50)
    names = ["relu", "sigmoid", "tanh", "abs"]
    expected = torch.tanh(torch.sigmoid(torch.relu(tensor))).abs()
    result, split = client.execute(torch, names, tensor)
    require(close_to(torch, result, expected), f"{' -> '.join(names)} came back wrong")
    return {"operations": names, "phases_ms": split}


def _errors(torch: Any, client: Client) -> dict[str, Any]:
    """Pass only where an operation that nobody knows is refused, with the list of the known."""
    try:
        client.execute(torch, ["frobnicate"], torch.ones(2))
    except wire.Refused as refusal:
        listed = all(name in refusal.reason for name in OPERATIONS)
        require(refusal.status == 422 and listed, f"{refusal.status}: {refusal.reason}")
        return {"refused": refusal.status, "reason": refusal.reason}
    raise NotPassed("FAIL", "not_refused", "an operation that nobody knows was answered")


def _large(torch: Any, client: Client) -> dict[str, Any]:
    tensor = torch.randn(500, 500)
    result, split = client.execute(torch, ["neg"], tensor)
    require(bool(torch.equal(result, -tensor)), "a tensor of 1 MB came back wrong")
    return {"bytes": tensor.numel() * 4, "phases_ms": split}


def _strangers(client: Client) -> dict[str, Any]:
    """Ask everything without a token and with a wrong one: 401 each time."""
    body = wire.encode(wire.Frame("float32", (1,), b"\0\0\0\0", ("relu",)))
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        for method, path in (("GET", "/health"), ("POST", "/execute"), ("POST", "/finish")):
            content = body if path == "/execute" else b""
            status = client.ask(method, path, content, headers).status
            if status != 401:
                who = "a wrong token" if headers else "no token"
                raise NotPassed("FAIL", "not_refused", f"{path} with {who} gave {status}, not 401")
    return {"refused": 401}


def _uploads(client: Client) -> dict[str, Any]:
    """Send what is no tensor, and what is too large; each has its own refusal."""
    wrong_size = wire.encode(wire.Frame("float32", (3,), b"\0" * 8, ("relu",)))
    strange = wire.encode(wire.Frame("object", (1,), b"\0" * 8, ("relu",)))
    cases = {"pickle": (pickle.dumps({"a": 1}), 400), "empty": (b"", 400)}
    cases |= {"shape": (wrong_size, 422), "dtype": (strange, 422)}
    seen = {name: client.ask("POST", "/execute", body).status for name, (body, _) in cases.items()}
    seen["too large"] = _announce(client, 2**50)
    wanted = {name: status for name, (_, status) in cases.items()} | {"too large": 413}
    if seen != wanted:
        raise NotPassed("FAIL", "not_refused", f"refused with {seen}, not {wanted}")
    return {"refused": seen}


def _announce(client: Client, length: int) -> int:
    """Announce a body, send nothing of it, and give the status of the answer."""
    connection = client.connection()
    connection.putrequest("POST", "/execute")
    connection.putheader("Authorization", f"Bearer {client.token}")
    connection.putheader("Content-Length", str(length))
    connection.endheaders()
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def _killed(client: Client) -> dict[str, Any]:
    """Die in the middle of a request: the server must count it and serve others."""
    before = client.health()["stats"]["failed"]
    connection = client.connection()
    connection.putrequest("POST", "/execute")
    connection.putheader("Authorization", f"Bearer {client.token}")
    connection.putheader("Content-Length", str(KIB))
    connection.endheaders(b"RVT1")
    connection.close()
    deadline = time.monotonic() + client.timeout
    while client.health()["stats"]["failed"] <= before:
        require(time.monotonic() < deadline, "the server still waits for a client that died")
        time.sleep(0.02)
    return {"server": "healthy after it"}


def _connections(torch: Any, client: Client) -> dict[str, Any]:
    """Compare one connection kept with a new one each time."""
    tensor = torch.randn(KIB)
    kept = [client.execute(torch, ["neg"], tensor)[1]["total"] for _ in range(REPEATS)]
    fresh = []
    for _ in range(REPEATS):
        client.close()
        fresh.append(client.execute(torch, ["neg"], tensor)[1]["total"])
    return {"kept_ms": statistics.median(kept), "new_ms": statistics.median(fresh)}


def _sweep(torch: Any, client: Client, sizes: list[int]) -> dict[str, Any]:
    """Time elementwise work by size, there and here; fit lines to find where remote pays."""
    rows = []
    for size in sizes:
        tensor = torch.randn(size // 4)
        client.execute(torch, ["sigmoid"], tensor)
        splits = [client.execute(torch, ["sigmoid"], tensor)[1] for _ in range(REPEATS)]
        totals = [split["total"] for split in splits]
        here = [_timed(lambda t=tensor: torch.sigmoid(t)) for _ in range(REPEATS)]
        rows.append(
            {
                "bytes": size,
                "remote_ms": statistics.median(totals),
                "remote_p95_ms": percentile(totals, 95),
                "local_ms": statistics.median(here),
                "phases_ms": {n: statistics.median(s[n] for s in splits) for n in splits[0]},
            }
        )
    remote = fit([(row["bytes"], row["remote_ms"]) for row in rows])
    local = fit([(row["bytes"], row["local_ms"]) for row in rows])
    return {
        "sizes": rows,
        "remote": remote,
        "local": local,
        "break_even": break_even(remote, local),
    }
