"""The server: stdlib HTTP, one thread a connection, nothing done for those without the token."""

from __future__ import annotations

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

from . import tensors, wire
from .wire import Refused

if TYPE_CHECKING:
    from collections.abc import Set
    from pathlib import Path

SERVICE, VERSION = "rv-tensor-service", "1"
ENDPOINTS = ("GET /", "GET /health", "POST /execute", "POST /finish")
READING = 30.0  # seconds without a byte: the client is dead
DRAINED = 2**24  # bytes read and dropped so that who sends too much can hear why it is refused


@dataclass
class State:
    """What all threads of a server share."""

    torch: Any
    device: str
    token: str
    limit: int  # bytes of a body
    faults: Set[str] = frozenset()
    started: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)  # of anyone who has the token
    total: int = 0
    successful: int = 0
    failed: int = 0
    finished: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, *, good: bool) -> None:
        """Count one request for work."""
        with self.lock:
            self.total += 1
            self.successful += good
            self.failed += not good

    def wait(self, silence: float) -> bool:
        """Wait until a client says that it is done; False after so many seconds of silence."""
        self.heard = time.monotonic()
        while not self.finished.wait(0.1):
            if time.monotonic() - self.heard > silence:
                return False
        return True

    def health(self) -> dict[str, Any]:
        """Give what /health says."""
        with self.lock:
            stats = {
                "total_requests": self.total,
                "successful": self.successful,
                "failed": self.failed,
            }
        kind = self.device.partition(":")[0]
        return {
            "status": "healthy",
            "device": self.device,
            "device_type": kind,
            "gpu_name": self.torch.cuda.get_device_name(self.device) if kind == "cuda" else None,
            "cuda_available": bool(self.torch.cuda.is_available()),
            "uptime": round(time.monotonic() - self.started, 3),
            "pid": os.getpid(),
            "stats": stats,
        }


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = READING
    disable_nagle_algorithm = True  # headers and body are two writes: 40 ms apart otherwise
    state: State
    _read = False  # whether this request's body was taken in

    def do_GET(self) -> None:
        """Answer / and /health."""
        self._read = False
        if not self._allowed():
            return
        if self.path == "/health":
            self._json(200, self.state.health())
        elif self.path == "/":
            about = {"service": SERVICE, "version": VERSION, "status": "running"}
            self._json(200, {**about, "endpoints": list(ENDPOINTS)})
        else:
            self._refuse(Refused(404, "no such page"))

    def do_POST(self) -> None:
        """Answer /execute and /finish."""
        self._read = False
        if not self._allowed():
            return
        if self.path == "/finish":
            self._json(200, {"status": "finishing"})
            self.state.finished.set()
        elif self.path == "/execute":
            self._execute()
        else:
            self._refuse(Refused(404, "no such page"))

    def _allowed(self) -> bool:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        right = hmac.compare_digest(given.encode(), self.state.token.encode())
        if right or "open-door" in self.state.faults:
            self.state.heard = time.monotonic()
            return True
        self._refuse(Refused(401, "the token is missing or wrong"))
        return False

    def _execute(self) -> None:
        try:
            body = self._body()
            phases = tensors.Phases(self.state.torch, self.state.device)
            answer = self._worked(wire.decode(body), phases)
        except Refused as refusal:
            self.state.count(good=False)
            self._refuse(refusal)
            return
        except OSError:  # the client is gone, in the middle of its request
            self.state.count(good=False)
            self.close_connection = True
            return
        self.state.count(good=True)
        self._send(200, wire.CONTENT_TYPE, answer, {"X-RV-Timing": json.dumps(phases.ms)})

    def _body(self) -> bytes:
        """Read what was announced. Raises Refused before reading what is too large."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise Refused(400, "a Content-Length is needed")
        if int(length) > self.state.limit:
            raise Refused(413, f"{length} bytes are more than the limit of {self.state.limit}")
        body = self.rfile.read(int(length))
        self._read = True
        if len(body) < int(length):
            raise ConnectionResetError("the client sent less than it announced")
        return body

    def _worked(self, frame: wire.Frame, phases: tensors.Phases) -> bytes:
        torch, device = self.state.torch, self.state.device
        tensor = tensors.from_frame(torch, frame)
        phases.done("deserialize")
        tensor = tensor.to(device)
        phases.done("h2d")
        with torch.inference_mode():
            result = tensors.apply(torch, frame.operations, tensor)
        phases.done("compute")
        if "wrong-answer" in self.state.faults:
            result = result + 1
        result = result.cpu()
        phases.done("d2h")
        answer = wire.encode(tensors.to_frame(result))
        phases.done("serialize")
        return answer

    def _refuse(self, refusal: Refused) -> None:
        """Refuse, and close: of what the client still sends no more than a little is read."""
        self.close_connection = True
        try:
            self._json(refusal.status, {"error": refusal.reason}, {"Connection": "close"})
            self._drain()
        except OSError:  # gone already
            return

    def _drain(self) -> None:
        length = self.headers.get("Content-Length", "")
        left = min(DRAINED, int(length)) if length.isdecimal() and not self._read else 0
        while left > 0 and (chunk := self.rfile.read1(min(left, 65536))):
            left -= len(chunk)

    def _json(self, status: int, document: Any, headers: dict[str, str] | None = None) -> None:
        self._send(status, "application/json", json.dumps(document).encode(), headers or {})

    def _send(self, status: int, kind: str, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing: requests are counted, and the console is the result's."""


class Server(ThreadingHTTPServer):
    """The listening socket and its threads."""

    daemon_threads = True

    def __init__(self, host: str, port: int, state: State) -> None:
        self.state = state
        super().__init__((host, port), type("Bound", (Handler,), {"state": state}))

    def handle_error(self, *_: Any) -> None:
        """Say nothing of a client that went away."""

    @property
    def port(self) -> int:
        """The port, also where 0 was asked for."""
        return int(self.server_address[1])


def internal_address() -> str:
    """Give the address by which other nodes reach this one; the loopback where there is none.

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


def publish(file: Path, host: str, port: int, secret: str) -> None:
    """Tell clients where the server is; of the token only its hash."""
    known = hashlib.sha256(secret.encode()).hexdigest()
    document = {"host": host, "port": port, "pid": os.getpid(), "token_sha256": known}
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(json.dumps(document))
    draft.replace(file)
