"""The client: a connection that is kept, the phases of a request's time, and plain errors."""

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
    """An answer of the server; `timing` has its own milliseconds by phase."""

    status: int
    body: bytes
    timing: dict[str, float]

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
        self.host, self.port, self.token, self.timeout_s = host, port, token, timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """Send one request. Raises Unreachable for anything but an answer."""
        if headers is None:
            headers = {"Authorization": f"Bearer {self.token}"}
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(
                    self.host, self.port, timeout=self.timeout_s
                )
            self._connection.request(method, path, body=body or None, headers=headers)
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            why = str(error) or type(error).__name__
            raise Unreachable(f"{self.host}:{self.port} {method} {path}: {why}") from error
        if response.headers.get("Connection") == "close":
            self.close()
        timing = json.loads(response.headers.get("X-RV-Timing", "{}"))
        return Answer(response.status, content, timing)

    def announce(self, length: int, sent: bytes = b"") -> http.client.HTTPConnection:
        """Open another connection and announce an upload, of which only `sent` is sent."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout_s)
        connection.putrequest("POST", "/execute")
        connection.putheader("Authorization", f"Bearer {self.token}")
        connection.putheader("Content-Length", str(length))
        connection.endheaders(sent or None)
        return connection

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def health(self) -> dict[str, Any]:
        """Ask for /health. Raises Unreachable, Refused."""
        health: dict[str, Any] = json.loads(self._granted("GET", "/health").body)
        return health

    def execute(self, torch: Any, names: list[str], tensor: Any) -> tuple[Any, dict[str, float]]:
        """Let the server work on a tensor; return the result and the milliseconds by phase.

        `network` is what remains of the request after the server's own phases.
        Raises Unreachable, Refused.
        """
        phases = protocol.Phases()
        body = protocol.encode(protocol.to_frame(tensor, names))
        phases.done("client_serialize")
        answer = self._granted("POST", "/execute", body)
        phases.done("request")
        result = protocol.from_frame(torch, protocol.decode(answer.body))
        phases.done("client_deserialize")
        network = max(0.0, phases.ms.pop("request") - sum(answer.timing.values()))
        split = {**phases.ms, **answer.timing, "network": network}
        return result, {**split, "total": sum(split.values())}

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
