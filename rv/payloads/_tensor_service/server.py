"""The server: stdlib HTTP, one thread a connection, and no answer for those without the token."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import json
import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from . import protocol
from .protocol import Refused
from .strikes import Strikes

if TYPE_CHECKING:
    from collections.abc import Set
    from pathlib import Path

ABOUT = {
    "service": "rv-tensor-service",
    "version": "1",
    "status": "running",
    "endpoints": ["GET /", "GET /health", "POST /execute", "POST /finish"],
}
READING_S = 30.0  # without a byte: the client is dead; and for all headers of a request
MOST_CONNECTIONS = 64
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
LONGEST_LENGTH = 18  # digits of a Content-Length
DRAINED = 2**24  # bytes read and dropped, so that who sends too much can hear why it is refused


@dataclass
class State:
    """What all threads of a server share."""

    torch: Any
    device: str
    token: str
    limit: int  # bytes of a body
    faults: Set[str] = frozenset()
    started_s: float = field(default_factory=time.monotonic)
    heard_s: float = field(default_factory=time.monotonic)  # of anyone who has the token
    successful: int = 0
    failed: int = 0
    finished: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.strikes = Strikes(self.faults)

    def count(self, *, good: bool) -> None:
        """Count one request for work."""
        with self.lock:
            self.successful += good
            self.failed += not good

    def wait(self, silence_s: float) -> bool:
        """Wait until a client says that it is done; False after so many seconds of silence."""
        self.heard_s = time.monotonic()
        while not self.finished.wait(0.1):
            if time.monotonic() - self.heard_s > silence_s:
                return False
        return True

    def health(self) -> dict[str, Any]:
        """Return what /health answers."""
        with self.lock:
            stats = {"successful": self.successful, "failed": self.failed}
        kind = self.device.partition(":")[0]
        return {
            "status": "healthy",
            "device": self.device,
            "device_type": kind,
            "gpu_name": self.torch.cuda.get_device_name(self.device) if kind == "cuda" else None,
            "cuda_available": bool(self.torch.cuda.is_available()),
            "uptime": round(time.monotonic() - self.started_s, 3),
            "pid": os.getpid(),
            "stats": {"total_requests": sum(stats.values()), **stats},
        }


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = READING_S
    disable_nagle_algorithm = True  # headers and body are two writes: 40 ms apart otherwise
    state: State
    server: Server
    _has_length = False
    _unread = 0  # bytes of this request's body that were not read

    def handle_one_request(self) -> None:
        """Read and answer one request; the server ends a connection whose headers take too long."""
        self.server.reading_since[self.connection] = time.monotonic()
        try:
            super().handle_one_request()
        finally:
            self.server.reading_since.pop(self.connection, None)

    def parse_request(self) -> bool:
        """Read the headers; a body may take its time."""
        is_good = super().parse_request()
        self.server.reading_since.pop(self.connection, None)
        return is_good

    def do_GET(self) -> None:
        """Answer / and /health."""
        pages = {"/": lambda: ABOUT, "/health": self.state.health}
        if self._allowed(pages):
            self._json(200, pages[self.path]())

    def do_POST(self) -> None:
        """Answer /execute and /finish."""
        if not self._allowed(("/execute", "/finish")):
            return
        if self.path == "/execute":
            self._execute()
            return
        self._json(200, {"status": "finishing"})
        self.state.finished.set()

    def _allowed(self, pages: Any) -> bool:
        length = self.headers.get("Content-Length", "")
        self._has_length = length.isascii() and length.isdigit() and len(length) <= LONGEST_LENGTH
        self._unread = int(length) if self._has_length else 0
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        right = hmac.compare_digest(given.encode(), self.state.token.encode())
        if not right and "open-door" not in self.state.faults:
            self._refuse(Refused(401, "the token is missing or wrong"))
            return False
        self.state.heard_s = time.monotonic()
        if self.path not in pages:
            self._refuse(Refused(404, "no such page"))
        return self.path in pages

    def _execute(self) -> None:
        try:
            answer, compute_ms = self._result(protocol.decode(self._body()))
        except Refused as refusal:
            self.state.count(good=False)
            self._refuse(refusal)
        except OSError:  # the client is gone, in the middle of its request
            self.state.count(good=False)
            self.close_connection = True
        else:
            self.state.count(good=True)
            self._send(200, protocol.CONTENT_TYPE, answer, {"X-RV-Compute-Ms": str(compute_ms)})

    def _body(self) -> bytes:
        """Read what was announced. Raises Refused before reading what is too large."""
        length = self._unread
        if not self._has_length:
            raise Refused(400, "a Content-Length is needed")
        if length > self.state.limit:
            raise Refused(413, f"{length} bytes are more than the limit of {self.state.limit}")
        body = self.rfile.read(length)
        self._unread = 0
        if len(body) < length:
            raise ConnectionResetError("the client sent less than it announced")
        return body

    def _result(self, frame: protocol.Frame) -> tuple[bytes, float]:
        """Do the operations on the device; return the result's bytes and the milliseconds of it."""
        torch, device = self.state.torch, self.state.device
        tensor = protocol.from_frame(torch, frame).to(device)
        start_s = time.perf_counter()
        with torch.inference_mode():
            result = protocol.apply(torch, frame.operations, tensor)
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
        compute_ms = round((time.perf_counter() - start_s) * 1e3, 4)
        if self.state.faults:
            result = self.state.strikes.struck(self.client_address, len(frame.raw), result)
        return protocol.encode(protocol.to_frame(result.cpu())), compute_ms

    def _refuse(self, refusal: Refused) -> None:
        """Refuse and close the connection; read no more than a little of what still comes."""
        self.close_connection = True
        left = min(DRAINED, self._unread)
        try:
            self._json(refusal.status, {"error": refusal.reason}, {"Connection": "close"})
            while left > 0 and (chunk := self.rfile.read1(min(left, 65536))):
                left -= len(chunk)
        except OSError:  # gone already
            return

    def _json(self, status: int, document: Any, headers: dict[str, str] | None = None) -> None:
        self._send(status, "application/json", json.dumps(document).encode(), headers or {})

    def _send(self, status: int, kind: str, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        sizes = {"Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in {**sizes, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing: requests are counted, and the console is the result's."""


class Server(ThreadingHTTPServer):
    """The listening socket and its threads."""

    daemon_threads = True

    def __init__(self, host: str, port: int, state: State) -> None:
        self.state = state
        self.reading_since: dict[socket.socket, float] = {}
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((host, port), type("Bound", (Handler,), {"state": state}))

    def verify_request(self, request: Any, *_: Any) -> bool:
        """Take a connection where there is a thread for it; tell any other client to come later."""
        if self._slots.acquire(blocking=False):
            return True
        with contextlib.suppress(OSError):
            request.sendall(BUSY)
        return False

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, and give its slot back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def service_actions(self) -> None:
        """End the connections whose headers take too long; called twice a second."""
        for connection, since_s in list(self.reading_since.items()):
            if time.monotonic() - since_s > READING_S:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: Any) -> None:
        """Print nothing of a client that went away."""

    @property
    def port(self) -> int:
        """The port, also where 0 was asked for."""
        return int(self.server_address[1])

    def address(self) -> dict[str, Any]:
        """Return what clients are told of this server; of the token only its hash."""
        digest = hashlib.sha256(self.state.token.encode()).hexdigest()
        host = str(self.server_address[0])
        return {"host": host, "port": self.port, "pid": os.getpid(), "token_sha256": digest}


def internal_address() -> str:
    """Return the address by which other nodes reach this one; the loopback where there is none.

    Never all addresses: a service that listens everywhere is offered to everybody.
    """
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def token(file: Path) -> str:
    """Read the token, or make one that only this user can read.

    Raises OSError; an empty file is no token, and would let everybody in.
    """
    if not file.exists():
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w") as new:
            new.write(secrets.token_urlsafe(32))
    secret = file.read_text().strip()
    if not secret:
        raise OSError(errno.EINVAL, "the token file is empty: remove it", str(file))
    return secret
