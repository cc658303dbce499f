"""The client: a connection that is kept, the parts of a request's time, and plain errors."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass
from typing import Any

from . import tensors, wire

PATIENCE = 30.0  # seconds for any answer


class Unreachable(Exception):  # noqa: N818 - told to the user as it is
    """The server does not answer: why, in one line."""


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    status: int
    body: bytes
    timing: dict[str, float]  # its own milliseconds by phase
    ms: float  # the whole, seen from here

    @property
    def error(self) -> str:
        """Why it was refused."""
        try:
            return str(json.loads(self.body)["error"])
        except (ValueError, KeyError, TypeError):
            return ""


class Client:
    """A connection to one server; not for several threads."""

    def __init__(self, host: str, port: int, token: str, timeout: float = PATIENCE) -> None:
        self.host, self.port, self.token, self.timeout = host, port, token, timeout
        self._connection: http.client.HTTPConnection | None = None

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """Ask once. Raises Unreachable for anything but an answer."""
        start = time.perf_counter()
        try:
            if self._connection is None:
                self._connection = self.connection()
            own = {"Authorization": f"Bearer {self.token}"} if headers is None else headers
            self._connection.request(method, path, body=body or None, headers=own)
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            where = f"{self.host}:{self.port}"
            raise Unreachable(f"{where} {method} {path}: {_said(error)}") from error
        timing = json.loads(response.headers.get("X-RV-Timing", "{}"))
        if response.headers.get("Connection") == "close":
            self.close()
        return Answer(response.status, content, timing, (time.perf_counter() - start) * 1e3)

    def connection(self) -> http.client.HTTPConnection:
        """Make a connection of its own."""
        return http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)

    def close(self) -> None:
        """Close the connection; the next question opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def health(self) -> dict[str, Any]:
        """Ask for /health. Raises Unreachable, wire.Refused."""
        answer = self.ask("GET", "/health")
        if answer.status != 200:
            raise wire.Refused(answer.status, answer.error)
        health: dict[str, Any] = json.loads(answer.body)
        return health

    def execute(self, torch: Any, names: list[str], tensor: Any) -> tuple[Any, dict[str, float]]:
        """Let the server work on a tensor; give the result and milliseconds by phase.

        `network` is what remains of the request after the server's own phases.
        Raises Unreachable, wire.Refused.
        """
        phases = tensors.Phases()
        body = wire.encode(tensors.to_frame(tensor, names))
        phases.done("client_serialize")
        answer = self.ask("POST", "/execute", body)
        if answer.status != 200:
            raise wire.Refused(answer.status, answer.error)
        phases.done("request")
        result = tensors.from_frame(torch, wire.decode(answer.body))
        phases.done("client_deserialize")
        network = max(0.0, phases.ms.pop("request") - sum(answer.timing.values()))
        split = {**phases.ms, **answer.timing, "network": network}
        return result, {**split, "total": sum(split.values())}

    def wait(self, patience: float) -> dict[str, Any]:
        """Wait until the server answers; give its health. Raises Unreachable, wire.Refused."""
        deadline = time.monotonic() + patience
        while True:
            try:
                return self.health()
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
