"""The client: a connection that is kept, the time of a request, and plain errors."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass
from typing import Any

from . import protocol
from .protocol import Refused

PATIENCE_S = 30.0  # for any answer


class Unreachable(Exception):  # noqa: N818 - shown to the user as it is
    """The server does not answer: why, in one line."""


@dataclass(frozen=True)
class Answer:
    """An answer of the server, with the milliseconds that its device worked."""

    status: int
    body: bytes
    compute_ms: float = 0.0

    @property
    def error(self) -> str:
        """Why the request was refused."""
        try:
            return str(json.loads(self.body)["error"])
        except (ValueError, KeyError, TypeError):
            return ""


class Client:
    """A connection to one server; not for several threads."""

    def __init__(self, host: str, port: int, token: str, timeout_s: float = PATIENCE_S) -> None:
        self.host, self.port, self.timeout_s = host, port, timeout_s
        self.headers = {"Authorization": f"Bearer {token}"}
        self.times: list[tuple[int, float]] = []  # of all tensors: bytes and milliseconds
        self._connection: http.client.HTTPConnection | None = None

    def another(self) -> Client:
        """Return a client of the same server with a connection of its own."""
        made = Client(self.host, self.port, "", self.timeout_s)
        made.headers = self.headers
        return made

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """Send one request. Raises Unreachable for anything but an answer."""
        headers = self.headers if headers is None else headers
        try:
            if self._connection is None:
                self._connection = self._new_connection()
            self._connection.request(method, path, body=body or None, headers=headers)
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            why = str(error) or type(error).__name__
            raise Unreachable(f"{self.host}:{self.port} {method} {path}: {why}") from error
        if response.headers.get("Connection") == "close":
            self.close()
        return Answer(response.status, content, float(response.headers.get("X-RV-Compute-Ms", 0)))

    def announce(self, length: int, sent: bytes = b"") -> http.client.HTTPConnection:
        """Open another connection and announce an upload, of which only `sent` is sent."""
        connection = self._new_connection()
        connection.putrequest("POST", "/execute")
        for name, value in {**self.headers, "Content-Length": str(length)}.items():
            connection.putheader(name, value)
        connection.endheaders(sent or None)
        return connection

    def _new_connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=self.timeout_s)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def health(self) -> dict[str, Any]:
        """Ask for /health. Raises Unreachable, Refused."""
        health: dict[str, Any] = json.loads(self._granted("GET", "/health").body)
        return health

    def execute(self, torch: Any, names: list[str], tensor: Any) -> tuple[Any, float, float]:
        """Let the server work on a tensor; return the result, and milliseconds in all and there.

        Raises Unreachable, Refused.
        """
        start_s = time.perf_counter()
        body = protocol.encode(protocol.to_frame(tensor, names))
        answer = self._granted("POST", "/execute", body)
        result = protocol.from_frame(torch, protocol.decode(answer.body))
        total_ms = (time.perf_counter() - start_s) * 1e3
        self.times.append((len(body), total_ms))
        return result, total_ms, answer.compute_ms

    def wait(self, patience_s: float) -> dict[str, Any]:
        """Wait until the server answers; return its health. Raises Unreachable, Refused."""
        deadline_s = time.monotonic() + patience_s
        while True:
            try:
                return self.health()
            except Unreachable:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.1)

    def _granted(self, method: str, path: str, body: bytes = b"") -> Answer:
        answer = self.ask(method, path, body)
        if answer.status != 200:
            raise Refused(answer.status, answer.error)
        return answer
