"""tensor_service.py: right answers, nobody let in, nothing unpickled, nobody waited for in vain."""

import contextlib
import http.client
import json
import os
import pickle
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contract.verdicts import NotPassed

from rv.payloads._tensor_service import clients, protocol, report
from rv.payloads._tensor_service import server as service
from rv.payloads._tensor_service.client import Client, Unreachable
from rv.payloads._tensor_service.server import (
    MOST_CONNECTIONS,
    Server,
    State,
    internal_address,
    token,
)
from tests.payloads.burning import by_name, codes, run, start
from tests.payloads.starting import Launcher
from tests.payloads.test_stress import wait_for

TOKEN = "a-token"


def frame(header: object, raw: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return protocol.MAGIC + struct.pack("<I", len(text) if length is None else length) + text + raw


GOOD: dict[str, Any] = {"dtype": "float32", "shape": [2, 3], "operations": ["relu"]}


def test_a_frame_comes_back_as_it_was() -> None:
    sent = protocol.Frame("float32", (2, 3), bytes(range(24)), ("relu", "tanh"))

    got = protocol.decode(protocol.encode(sent))

    assert (got.dtype, got.shape, bytes(got.raw), got.operations) == (
        sent.dtype, sent.shape, sent.raw, sent.operations,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"RVT1", 400),
        (b"PK\3\4 a torch file", 400),
        (pickle.dumps([1, 2]), 400),
        (frame(GOOD, b"\0" * 24, length=2**31), 400),
        (frame(b"\xff\xfe not text"), 400),
        (frame(b"{not json"), 400),
        (frame([1, 2]), 400),
        (frame(GOOD, b"\0" * 23), 422),
        (frame(GOOD, b"\0" * 25), 422),
        (frame({**GOOD, "dtype": "object"}, b"\0" * 24), 422),
        (frame({**GOOD, "dtype": "__import__"}, b"\0" * 24), 422),
        (frame({**GOOD, "dtype": []}, b"\0" * 24), 422),
        (frame({**GOOD, "shape": [-2, -3]}, b"\0" * 24), 422),
        (frame({**GOOD, "shape": "23"}, b"\0" * 24), 422),
        (frame({**GOOD, "shape": [2.0, 3]}, b"\0" * 24), 422),
        (frame({**GOOD, "shape": [True, 6]}, b"\0" * 24), 422),
        (frame({**GOOD, "shape": [1] * 9}, b"\0" * 4), 422),
        (frame({**GOOD, "operations": "relu"}, b"\0" * 24), 422),
        (frame({}, b""), 422),
        (frame(b"[" * 60_000), 400),
        (frame(b'{"shape": [' + b"9" * 5_000 + b"]}"), 400),
        (frame({**GOOD, "shape": [0, 2**39, 2**39]}, b""), 422),
        (frame({**GOOD, "shape": [2**40]}, b""), 422),
    ],
)
def test_what_is_no_tensor_is_refused(body: bytes, status: int) -> None:
    with pytest.raises(protocol.Refused) as refused:
        protocol.decode(body)

    assert refused.value.status == status


@pytest.fixture
def server() -> Iterator[Server]:
    """A server on the loopback, which has torch where a test needs it."""
    torch = pytest.importorskip("torch")
    state = State(torch, "cpu", TOKEN, limit=100_000)
    with Server("127.0.0.1", 0, state) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    made = Client("127.0.0.1", server.port, TOKEN)
    yield made
    made.close()


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "a"}])
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/"), ("GET", "/health"), ("POST", "/execute"), ("POST", "/finish")],
)
def test_nothing_is_told_or_done_without_the_token(
    client: Client, server: Server, method: str, path: str, headers: dict[str, str]
) -> None:
    answer = client.ask(method, path, b"x" * 1000 if method == "POST" else b"", headers)

    assert answer.status == 401
    assert "token" in answer.error
    assert not server.state.finished.is_set()


class Bomb:
    """What unpickling it would do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


def test_an_upload_is_never_unpickled(client: Client, tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))

    assert client.ask("POST", "/execute", bomb).status == 400
    assert client.ask("POST", "/execute", frame(GOOD, bomb)).status == 422
    assert not (tmp_path / "exploded").exists()
    pickle.loads(bomb)  # it would have
    assert (tmp_path / "exploded").exists()


def test_an_upload_that_is_too_large_is_refused_and_the_client_hears_why(client: Client) -> None:
    answer = client.ask("POST", "/execute", b"x" * 100_001)

    assert answer.status == 413
    assert "100000" in answer.error
    assert client.health()["stats"]["failed"] == 1


def test_a_body_without_a_length_is_refused(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest("POST", "/execute")
    connection.putheader("Authorization", f"Bearer {TOKEN}")
    connection.endheaders()

    assert connection.getresponse().status == 400
    connection.close()


def test_a_length_of_5000_digits_is_refused(server: Server) -> None:
    """Python refuses to read such a number, which dropped the connection without an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest("POST", "/execute")
    connection.putheader("Authorization", f"Bearer {TOKEN}")
    connection.putheader("Content-Length", "9" * 5_000)
    connection.endheaders()

    assert connection.getresponse().status == 400
    connection.close()


def test_connections_are_bounded_and_those_that_end_make_room(
    server: Server, client: Client
) -> None:
    """One more than there are threads for is told to come later."""
    address = ("127.0.0.1", server.port)
    idle = [socket.create_connection(address) for _ in range(MOST_CONNECTIONS)]
    with socket.create_connection(address) as late:
        assert late.recv(100).startswith(b"HTTP/1.1 503")
    for connection in idle:
        connection.close()
    deadline = time.monotonic() + 30
    while True:
        try:
            assert client.ask("GET", "/health").status == 200
            return
        except (AssertionError, OSError):
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_headers_that_never_end_do_not_keep_a_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then keeps a socket's timeout from coming; the whole of them has its own."""
    monkeypatch.setattr(service, "READING_S", 1.0)
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\n")
        ended_by = time.monotonic() + 20
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() < ended_by:
                slow.sendall(b"X-A: b\r\n")
                time.sleep(0.2)
        assert time.monotonic() < ended_by


def test_operations_are_done_in_their_order_and_timed(client: Client) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([[-4.0, 1.0], [0.25, 9.0]])

    result, total_ms, compute_ms = client.execute(torch, ["abs", "sqrt", "neg"], tensor)

    assert torch.equal(result, -tensor.abs().sqrt())
    assert 0 < compute_ms < total_ms


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int64", "uint8"])
def test_every_dtype_survives_bit_by_bit(client: Client, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6).to(getattr(torch, dtype)).reshape(2, 3)

    result, *_ = client.execute(torch, ["abs"], tensor)

    assert (result.dtype, torch.equal(result, tensor)) == (tensor.dtype, True)


@pytest.mark.parametrize(
    ("names", "words"),
    [(["frobnicate"], "supported: relu"), ([], "supported"), (["matmul"], "not possible")],
)
def test_what_cannot_be_done_is_refused_with_422(
    client: Client, names: list[str], words: str
) -> None:
    torch = pytest.importorskip("torch")

    with pytest.raises(protocol.Refused, match=words) as refused:
        client.execute(torch, names, torch.ones(2, 3))

    assert refused.value.status == 422


def test_a_client_that_dies_in_its_request_leaves_the_server_healthy(
    client: Client, server: Server
) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as dying:
        head = f"POST /execute HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 999\r\n\r\nRV"
        dying.sendall(head.encode())

    wait_for(lambda: client.health()["stats"]["failed"] == 1)
    assert client.health()["status"] == "healthy"


def test_a_dead_server_is_a_plain_error(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 GET /health: .*refused"):
        Client("127.0.0.1", 1, TOKEN).wait(0.1)


def test_an_empty_token_is_none(tmp_path: Path) -> None:
    """As a full disk leaves it; it would let everybody in."""
    (tmp_path / "token").touch()
    with pytest.raises(OSError, match="the token file is empty"):
        token(tmp_path / "token")


def test_the_token_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    first = token(tmp_path / "token")

    assert len(first) > 20
    assert token(tmp_path / "token") == first
    assert (tmp_path / "token").stat().st_mode & 0o077 == 0


def test_the_server_listens_on_one_address_unless_told() -> None:
    assert internal_address() not in ("", "0.0.0.0")


def test_overheads_are_those_of_the_first_report() -> None:
    """86.1 ms are 448 % of 19.2, and 103.8 are 6920 % of 1.5."""
    overheads = report.overheads(cpu_ms=1.5, gpu_ms=19.2, remote_ms=105.3)

    assert overheads["overhead_ms"] == pytest.approx(86.1)
    assert overheads["overhead_pct"] == pytest.approx(448, abs=0.5)
    assert overheads["total_overhead_ms"] == pytest.approx(103.8)
    assert overheads["total_overhead_pct"] == pytest.approx(6920)


def test_a_line_through_points_and_where_two_lines_cross() -> None:
    sizes = [4096.0 * 4**n for n in range(6)]
    remote = report.fit([(x, 2.0 + 1e-6 * x) for x in sizes])
    local = report.fit([(x, 0.0 + 3e-6 * x) for x in sizes])

    assert remote["a_ms"] == pytest.approx(2.0, rel=1e-6)
    assert remote["b_ms_per_byte"] == pytest.approx(1e-6, rel=1e-6)
    assert report.break_even(remote, local)["bytes"] == pytest.approx(1e6, rel=1e-3)
    assert report.break_even(local, remote)["bytes"] is None


OLD = {
    "client_info": {"hostname": "laptop", "server_ip": "10.0.0.1"},
    "tests": [
        {
            "name": "performance_comparison",
            "status": "PASS",
            "details": "{'cpu_time_ms': 1.5, 'gpu_time_ms': 19.2, 'remote_time_ms': 105.3}",
            "timing_ms": 150,
        },
        {"name": "error_handling", "status": "FAIL", "details": "no text of a dictionary"},
    ],
}


def write(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}_test_results_20250109_143000.json").write_text(text)


def test_older_results_are_read_with_details_as_text(tmp_path: Path) -> None:
    write(tmp_path, "client", json.dumps(OLD))
    write(tmp_path, "server", '{"server_info": {"hostname": "gpu"}, "tests": [')

    analysis = report.analyse(report.load(tmp_path))
    text = report.markdown(analysis)

    assert (analysis["passed"], analysis["failed"]) == (1, ["error_handling"])
    assert analysis["cut_short"] == ["server_test_results_20250109_143000.json"]
    assert "105.3 ms" in text
    assert "(448 % of it)" in text
    assert report.details_of({"details": "__import__('os').system('true')"}) == {
        "text": "__import__('os').system('true')"
    }


def test_a_result_that_was_cut_short_is_an_error_of_the_report(
    tmp_path: Path, launch: Launcher
) -> None:
    write(tmp_path, "client", json.dumps(OLD)[:-20])

    code, text, result = run("tensor_service", tmp_path, "report", tmp_path, launch=launch)

    assert (code, codes(result, "ERROR")) == (99, {"no_result"}), text


def test_both_sides_pass_and_a_killed_server_is_noticed_and_brought_back(
    tmp_path: Path, launch: Launcher
) -> None:
    code, text, result = run("tensor_service", tmp_path, "pair", "--limit", 8, launch=launch)

    assert code == 0, text
    killed = by_name(result, "tensor_service.client.server_killed_mid_request")
    assert killed["details"]["brought back"] is True
    assert "All server tests passed!" in text
    assert "All client tests passed!" in text
    sides = {path.name.partition("_")[0] for path in tmp_path.glob("*_test_results_*.json")}
    assert sides == {"server", "client"}
    assert (tmp_path / "test_analysis_report.md").exists()
    written = json.loads((tmp_path / "comprehensive_report.json").read_text())
    assert written["analysis"]["failed"] == []
    stats = by_name(result, "tensor_service.server.server_stats")["details"]
    assert stats["successful"] == 9


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("wrong-answer", "wrong_answer"),
        ("open-door", "not_refused"),
        ("dead-server", "server_unreachable"),
    ],
)
def test_a_server_that_is_wrong_open_or_dead_fails(
    fault: str, code: str, tmp_path: Path, launch: Launcher
) -> None:
    words = ("pair", "--quick", "--limit", 8, "--inject", fault)
    ended, text, result = run("tensor_service", tmp_path, *words, launch=launch)

    assert (ended, codes(result)) == (1, {code}), text


def test_each_fault_of_an_answer_is_found_where_it_strikes(
    tmp_path: Path, launch: Launcher
) -> None:
    """Large tensors wrong in one element, and a client that gets another's."""
    words = (
        "pair",
        "--quick",
        "--limit",
        32,
        "--inject",
        "wrong-large",
        "--inject",
        "mixed-clients",
    )
    ended, text, result = run("tensor_service", tmp_path, *words, launch=launch)

    assert (ended, codes(result)) == (1, {"wrong_answer"}), text
    bad = {test["name"].rpartition(".")[2] for test in result["tests"] if test["status"] == "FAIL"}
    assert bad == {
        "large_tensor_handling", "performance_comparison", "size_sweep", "concurrent_clients",
        "connection_reuse",
    }  # fmt: skip


def test_clients_at_once_have_each_its_own(server: Server, client: Client) -> None:
    """From a server that is right, and not from one that mixes them or answers what is old."""
    torch = pytest.importorskip("torch")
    server.state.limit = 2**20
    assert clients.at_once(torch, client)["requests"] == 32
    for fault in ("mixed-clients", "stale-answer"):
        server.state.faults = server.state.strikes.faults = {fault}
        with pytest.raises(NotPassed) as mixed:
            clients.at_once(torch, client)
        assert mixed.value.code == "wrong_answer"


def test_answers_that_are_a_second_late_are_told(server: Server, client: Client) -> None:
    """Two of three are no accident; of forty they are."""
    torch = pytest.importorskip("torch")
    client.execute(torch, ["neg"], torch.ones(4))
    assert clients.in_time(client)["late"] == 0
    server.state.faults = server.state.strikes.faults = {"late"}
    for _ in range(2):
        client.execute(torch, ["neg"], torch.ones(4))
    with pytest.raises(NotPassed) as late:
        clients.in_time(client)
    assert late.value.code == "late_answer"
    client.times += [(4, 1.0)] * 37
    assert clients.in_time(client)["late"] == 2


def test_a_client_without_a_server_says_so_soon(tmp_path: Path, launch: Launcher) -> None:
    words = ("client", "--server", "127.0.0.1:1", "--wait", 0.5)
    code, text, result = run("tensor_service", tmp_path, *words, launch=launch)

    assert (code, codes(result)) == (1, {"server_unreachable"}), text
    assert "Traceback" not in text


def test_two_tasks_of_a_job_find_each_other(tmp_path: Path) -> None:
    """As srun starts them: task 0 serves and is tested, task 1 tests from the other node."""
    words = ("pair", "--quick", "--device", "cpu", "--report-dir", tmp_path, "--limit", 8)
    tasks = [start("tensor_service", *words, SLURM_NTASKS="2", SLURM_PROCID=str(n)) for n in (0, 1)]
    texts = [task.communicate(timeout=240)[0] for task in tasks]

    assert [task.returncode for task in tasks] == [0, 0], texts
    served = json.loads((tmp_path / "tensor_service_server_result.json").read_text())
    asked = json.loads((tmp_path / "tensor_service_result.json").read_text())
    assert served["summary"]["status"] == asked["summary"]["status"] == "PASS"


def test_a_client_that_never_comes_is_told(tmp_path: Path, launch: Launcher) -> None:
    task = {"SLURM_NTASKS": "2", "SLURM_PROCID": "0"}
    code, text, _ = run(
        "tensor_service", tmp_path, "pair", "--quick", "--wait", 0.1, launch=launch, **task
    )
    path = tmp_path / "tensor_service_server_result.json"

    assert (code, codes(json.loads(path.read_text()))) == (1, {"client_died"}), text


def test_a_server_that_is_stopped_ends_with_its_counts(tmp_path: Path) -> None:
    words = ("serve", "--host", "127.0.0.1", "--device", "cpu", "--report-dir", tmp_path)
    with start("tensor_service", *words) as process:
        wait_for((tmp_path / "tensor_service.json").exists, process)
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=120)

    result = json.loads((tmp_path / "tensor_service_result.json").read_text())
    assert by_name(result, "tensor_service.serve")["status"] == "PASS", text


def test_a_port_that_is_taken_is_told(server: Server, tmp_path: Path, launch: Launcher) -> None:
    words = ("serve", "--host", "127.0.0.1", "--port", server.port)
    code, text, result = run("tensor_service", tmp_path, *words, launch=launch)

    assert (code, codes(result, "ERROR")) == (99, {"could_not_run"}), text
    assert f"127.0.0.1:{server.port}" in text.splitlines()[-1]
