"""A TCP proxy before a server: it can be silent, close, go round several servers, or cut."""

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Queue
from typing import Final

_MOST_UNDER_WAY: Final = 64
"""Pieces in one direction of a connection; then its sender waits, as on a network."""


@dataclass
class Proxy:
    """Forwards each connection to the next of `ports`; with none it accepts and says nothing.

    `cuts(number, direction)` says whether to break everything at the so many'th piece of bytes
    that goes "to" or comes "from" the server, "before" it is passed on or "after" that; pieces are
    counted over all connections. Each piece is held back for `delay_s`. `trips` counts round trips
    one after the other: what the client sends comes after all that had reached it by then, and
    so does what the server sends.
    """

    ports: Sequence[int]
    cuts: Callable[[int, str], str] = lambda _number, _direction: ""
    closes: bool = False
    is_frozen: bool = False
    delay_s: float = 0.0
    accepted: int = 0
    pieces: Counter[str] = field(default_factory=Counter)
    broken: int = 0
    trips: int = 0
    """Those that have come back to the client."""
    _reached_server: int = 0
    """The number of the latest trip of which something has reached the server."""
    _open: list[socket.socket] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept nothing more, and break all connections."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.break_all()

    def break_all(self) -> None:
        """Break all connections, as a network does that went away."""
        with self._lock:
            broken, self._open = self._open, []
        for way in broken:
            with suppress(OSError):
                way.shutdown(socket.SHUT_RDWR)
            way.close()

    def _accept(self) -> None:
        while True:
            try:
                near = self._server.accept()[0]
            except OSError:
                return
            if self.closes:
                near.close()
                continue
            self._open.append(near)
            if self.ports:
                far = socket.create_connection(
                    ("127.0.0.1", self.ports[self.accepted % len(self.ports)])
                )
                self._open.append(far)
                for end in (near, far):  # a network holds no piece back until the last has arrived
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for source, target, direction in ((near, far, "to"), (far, near, "from")):
                    threading.Thread(
                        target=self._copy, args=(source, target, direction), daemon=True
                    ).start()
            self.accepted += 1

    def _copy(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        """Stamp each piece when it is sent; another thread passes it on when its time has come."""
        line: Queue[tuple[float, int, bytes]] = Queue(maxsize=_MOST_UNDER_WAY)
        threading.Thread(target=self._deliver, args=(line, target, direction), daemon=True).start()
        data = b"-"
        while data:
            data = b""
            with suppress(OSError):
                data = source.recv(65536)
            with self._lock:
                trip = self.trips + 1 if direction == "to" else self._reached_server
            line.put((time.monotonic() + self.delay_s, trip, data))

    def _deliver(
        self, line: "Queue[tuple[float, int, bytes]]", target: socket.socket, direction: str
    ) -> None:
        while True:
            due_s, trip, data = line.get()
            time.sleep(max(0.0, due_s - time.monotonic()))
            while self.is_frozen:
                time.sleep(0.05)
            with suppress(OSError):
                if not data:
                    target.shutdown(socket.SHUT_WR)
                elif cut := self._arrive(trip, direction):
                    if cut == "after":
                        target.sendall(data)
                    self.broken += 1
                    self.break_all()
                else:
                    target.sendall(data)
            if not data:
                return

    def _arrive(self, trip: int, direction: str) -> str:
        """Count before it is passed on: what answers it may be here before the next line.

        Return whether and how to break everything now.
        """
        with self._lock:
            self.pieces[direction] += 1
            if direction == "to":
                self._reached_server = max(self._reached_server, trip)
            else:
                self.trips = max(self.trips, trip)
            return self.cuts(self.pieces[direction], direction)
