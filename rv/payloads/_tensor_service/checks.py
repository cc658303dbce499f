"""The tests of both sides: right answers, strangers refused, and what a request costs."""

from __future__ import annotations

import math
import pickle
import platform
import socket
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from _harness import files
from _harness.timing import time_each, warm_up
from contract.schema import LOWER, metric
from contract.stats import percentile
from contract.verdicts import NotPassed

from . import protocol
from .client import Unreachable
from .clients import at_once, in_time
from .protocol import OPERATIONS, Refused
from .report import break_even, fit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _harness.main import Session

    from .client import Client

SYMBOLS = {"PASS": "\u2705", "SKIP": "\u23ed", "WARN": "\u26a0"}
TOLERANCE = 1e-5  # absolute, as float32 allows
SIDE = 1000  # of the matrix whose product is timed
LARGE_SIDE = 2000
REPEATS = 7
INFO_TIME = "%Y-%m-%dT%H:%M:%S"
CHAIN = ["relu", "sigmoid", "tanh", "abs"]


class Suite:
    """The tests of one side, `server` or `client`: each in the report and in the side's file."""

    def __init__(self, session: Session, side: str) -> None:
        self.session, self.side = session, side
        self.tests: list[dict[str, Any]] = []

    def run(self, name: str, test: Callable[..., dict[str, Any]], *arguments: Any) -> bool:
        """Run a test, which returns its details or raises; return whether it passed."""
        start_s = time.perf_counter()
        verdict = {"status": "PASS"}
        details: dict[str, Any] = {}
        try:
            details = test(*arguments)
        except NotPassed as outcome:
            verdict = {"status": outcome.status, "code": outcome.code, "reason": outcome.reason}
            details = outcome.more.get("details", {})
        except Unreachable as error:
            verdict = {"status": "FAIL", "code": "server_unreachable", "reason": str(error)}
        except Refused as refusal:
            reason = f"refused with {refusal.status}: {refusal.reason}"
            verdict = {"status": "FAIL", "code": "wrong_answer", "reason": reason}
        ms = round((time.perf_counter() - start_s) * 1e3, 3)
        metrics = details.pop("metrics", [])
        full_name = f"tensor_service.{self.side}.{name}"
        self.session.report.add(
            full_name, **verdict, details={**details, "test_ms": ms}, metrics=metrics
        )
        status, reason = verdict["status"], verdict.get("reason", "")
        test_record = {"name": name, "status": status, "details": reason or details}
        self.tests.append({**test_record, "timing_ms": ms, "timestamp": time.strftime(INFO_TIME)})
        self.session.say("SERVICE", f"{SYMBOLS.get(status, chr(0x274C))} {name} {reason}".rstrip())
        return status == "PASS"

    def write(self, folder: Path) -> None:
        """Write `SIDE_test_results_YYYYmmdd_HHMMSS.json`, and print how all of it went."""
        info = {
            "hostname": socket.gethostname(),
            "timestamp": time.strftime(INFO_TIME),
            "test_type": f"{self.side}_side",
        }
        target = folder / f"{self.side}_test_results_{time.strftime('%Y%m%d_%H%M%S')}.json"
        files.write(target, {"test_info": info, "tests": self.tests})
        bad = [test["name"] for test in self.tests if test["status"] not in ("PASS", "SKIP")]
        passed = f"All {self.side} tests passed!"
        self.session.say("SERVICE", f"not passed: {', '.join(bad)}" if bad else passed)


def run_server_tests(
    suite: Suite, torch: Any, device: str, client: Client, patience_s: float
) -> None:
    """Test the server at the address it listens on; one that does not come up leaves two."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    suite.run("environment_setup", lambda: versions)
    if not suite.run("server_startup", _startup, client, patience_s):
        return
    suite.run("health_endpoint", _health, client)
    suite.run("gpu_detection", _gpu, torch, device)
    suite.run("server_operations", _operations, torch, client)
    suite.run("server_stats", _stats, client)


def run_client_tests(
    suite: Suite, torch: Any, client: Client, sizes: list[int], patience_s: float
) -> None:
    """Test from the client's side; a server that cannot be reached leaves the first two."""
    suite.run("network_connectivity", lambda: {"address": socket.gethostbyname(client.host)})
    if not suite.run("server_connectivity", _server, client, patience_s):
        return
    answers = partial(_answers, torch, client)
    suite.run("http_tensor_transfer", answers, ["relu"], 100)
    suite.run("remote_execution", answers, ["matmul"], 128)
    suite.run("performance_comparison", _compare, torch, client)
    suite.run("multi_operation_chain", answers, CHAIN, 50)
    suite.run("error_handling", _errors, torch, client)
    suite.run("large_tensor_handling", answers, ["neg"], side_of(max(sizes)))
    suite.run("concurrent_clients", at_once, torch, client)
    suite.run("strangers_refused", _strangers, client)
    suite.run("bad_uploads_refused", _uploads, client)
    suite.run("client_killed_mid_request", _killed, client)
    suite.run("connection_reuse", _connections, torch, client)
    suite.run("size_sweep", _sweep, torch, client, sizes)
    suite.run("answers_in_time", in_time, client)


def side_of(most: int) -> int:
    """Return the side of a large square: 16 MB, or what is let through."""
    return min(LARGE_SIDE, math.isqrt(most // 4))


def require(right: bool, reason: str) -> None:  # noqa: FBT001 - it reads as a sentence
    """Raise NotPassed(FAIL, wrong_answer) unless it is right."""
    if not right:
        raise NotPassed("FAIL", "wrong_answer", reason)


def _answers(torch: Any, client: Client, names: list[str], size: int) -> dict[str, Any]:
    """Let the server work on a random square; compare with the same on this CPU.

    Sums of products may be rounded otherwise on another device.
    """
    tensor = torch.randn(size, size)
    if names[0] in ("log", "sqrt"):
        tensor = tensor.abs() + 0.5
    result, total_ms, _ = client.execute(torch, names, tensor)
    _require_same(torch, names, result, protocol.apply(torch, names, tensor))
    return {"operations": names, "bytes": 4 * size * size, "remote_ms": total_ms}


def _require_same(torch: Any, names: list[str], result: Any, expected: Any) -> None:
    """Compare an answer with what this CPU computes: bit by bit where nothing is rounded."""
    same = result.shape == expected.shape
    if same and set(names) <= {"relu", "abs", "neg"}:
        same = bool(torch.equal(result, expected))
    elif same:
        atol = TOLERANCE * (len(expected) ** 0.5 if "matmul" in names else 1.0)
        same = bool(torch.allclose(result, expected, atol=atol, rtol=TOLERANCE))
    size = f"{expected.numel() * expected.element_size()} bytes"
    require(same, f"{' -> '.join(names)} of {size} is not what this CPU computes")


def _startup(client: Client, patience_s: float) -> dict[str, Any]:
    health = client.wait(patience_s)
    where = f"listening on {client.host}:{client.port}"
    return {"server": f"PID {health['pid']}, {where}", "uptime_s": health["uptime"]}


def _health(client: Client) -> dict[str, Any]:
    health = client.health()
    require(health["status"] == "healthy", f"its health is {health['status']!r}")
    return {"device": health["device"], "cuda_available": health["cuda_available"]}


def _gpu(torch: Any, device: str) -> dict[str, Any]:
    """Time a product on the device, after a warm-up: not the loading of a kernel."""
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
    for name in OPERATIONS:
        _answers(torch, client, [name], 100)
    return {"operations": list(OPERATIONS)}


def _stats(client: Client) -> dict[str, Any]:
    """Require that the counters grew by what was asked."""
    stats: dict[str, Any] = client.health()["stats"]
    right = stats["successful"] >= len(OPERATIONS) and not stats["failed"]
    require(right, f"counted {stats} of {len(OPERATIONS)} requests")
    return stats


def _server(client: Client, patience_s: float) -> dict[str, Any]:
    health = client.wait(patience_s)
    url = f"http://{client.host}:{client.port}"
    return {"server_url": url, **{k: health[k] for k in ("device", "cuda_available", "gpu_name")}}


def _compare(torch: Any, client: Client) -> dict[str, Any]:
    """Multiply 1000 x 1000 here and there, both warmed up; medians in milliseconds."""
    timed = _timed(torch, client, "matmul", torch.randn(SIDE, SIDE))
    remote, local_ms = (
        metric("remote_1000_ms", timed.pop("samples"), "ms", LOWER),
        timed.pop("local_ms"),
    )
    return {**timed, "local_cpu_ms": local_ms, "metrics": [remote]}


def _timed(torch: Any, client: Client, name: str, tensor: Any) -> dict[str, Any]:
    """Time one operation there and here, after a warm-up; medians in milliseconds.

    Each time with another tensor than before, so that an old answer is a wrong one.
    """
    tensors = [tensor, tensor.roll(1)]
    for each in tensors:
        client.execute(torch, [name], each)
        protocol.apply(torch, [name], each)
    local_ms, remote_ms, compute_ms = [], [], []
    for turn in range(REPEATS):
        given = tensors[turn % len(tensors)]
        start_s = time.perf_counter()
        expected = protocol.apply(torch, [name], given)
        local_ms.append((time.perf_counter() - start_s) * 1e3)
        result, total, compute = client.execute(torch, [name], given)
        _require_same(torch, [name], result, expected)
        remote_ms.append(total)
        compute_ms.append(compute)
    return {
        "remote_ms": statistics.median(remote_ms),
        "remote_p95_ms": percentile(remote_ms, 95),
        "local_ms": statistics.median(local_ms),
        "server_compute_ms": statistics.median(compute_ms),
        "samples": remote_ms,
    }


def _sweep(torch: Any, client: Client, sizes: list[int]) -> dict[str, Any]:
    """Time elementwise work by size, there and here; fit lines to find where remote pays."""
    rows = []
    for size in sizes:
        timed = _timed(torch, client, "sigmoid", torch.randn(size // 4))
        del timed["samples"]
        rows.append({"bytes": size, **timed})
    remote = fit([(row["bytes"], row["remote_ms"]) for row in rows])
    local = fit([(row["bytes"], row["local_ms"]) for row in rows])
    crossing = break_even(remote, local)
    return {"sizes": rows, "remote": remote, "local": local, "break_even": crossing}


def _errors(torch: Any, client: Client) -> dict[str, Any]:
    """Pass only where an unknown operation is refused, with the list of those supported."""
    try:
        client.execute(torch, ["frobnicate"], torch.ones(2))
    except Refused as refusal:
        listed = all(name in refusal.reason for name in OPERATIONS)
        require(refusal.status == 422 and listed, f"{refusal.status}: {refusal.reason}")
        return {"refused": refusal.status, "reason": refusal.reason}
    raise NotPassed("FAIL", "not_refused", "an operation that is not supported was answered")


def _strangers(client: Client) -> dict[str, Any]:
    """Ask everything without a token and with a wrong one: 401 each time."""
    body = protocol.encode(protocol.Frame("float32", (1,), b"\0\0\0\0", ("relu",)))
    pages = {"/health": ("GET", b""), "/execute": ("POST", body), "/finish": ("POST", b"")}
    for who, headers in (("no token", {}), ("a wrong token", {"Authorization": "Bearer wrong"})):
        for path, (method, content) in pages.items():
            status = client.ask(method, path, content, headers).status
            if status != 401:
                raise NotPassed("FAIL", "not_refused", f"{path} with {who} gave {status}, not 401")
    return {"refused": 401}


def _uploads(client: Client) -> dict[str, Any]:
    """Send what is no tensor, and what is too large; each has its own refusal."""
    expected = {"pickle": 400, "empty": 400, "shape": 422, "dtype": 422, "too large": 413}
    bodies = {
        "pickle": pickle.dumps({"a": 1}),
        "empty": b"",
        "shape": protocol.encode(protocol.Frame("float32", (3,), b"\0" * 8, ("relu",))),
        "dtype": protocol.encode(protocol.Frame("object", (1,), b"\0" * 8, ("relu",))),
    }
    statuses = {name: client.ask("POST", "/execute", body).status for name, body in bodies.items()}
    connection = client.announce(2**50)
    statuses["too large"] = connection.getresponse().status
    connection.close()
    if statuses != expected:
        raise NotPassed("FAIL", "not_refused", f"refused with {statuses}, not {expected}")
    return {"refused": statuses}


def _killed(client: Client) -> dict[str, Any]:
    """Die in the middle of a request: the server must count it and serve others."""
    before = client.health()["stats"]["failed"]
    client.announce(1024, b"RVT1").close()
    deadline_s = time.monotonic() + client.timeout_s
    while client.health()["stats"]["failed"] <= before:
        require(time.monotonic() < deadline_s, "the server still waits for a client that died")
        time.sleep(0.02)
    return {"server": "healthy after it"}


def _connections(torch: Any, client: Client) -> dict[str, Any]:
    """Compare one connection kept with a new one each time."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(2 * REPEATS):
        if turn >= REPEATS:
            client.close()
        tensor = torch.randn(1024)
        result, total_ms, _ = client.execute(torch, ["neg"], tensor)
        _require_same(torch, ["neg"], result, -tensor)
        times[turn >= REPEATS].append(total_ms)
    kept, new = times
    return {"kept_ms": statistics.median(kept), "new_ms": statistics.median(new)}
