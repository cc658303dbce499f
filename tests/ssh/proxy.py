"""A TCP proxy before a server: it can be silent, close, go round several servers, or cut."""

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass
class Proxy:
    """Forwards each connection to the next of `ports`; with none it accepts and says nothing.

    `cuts(number, direction)` says whether to break everything at the so many'th piece of bytes
    that goes "to" or comes "from" the server, "before" it is passed on or "after" that; pieces are
    counted over all connections. Each piece is held back for `delay_s`. `trips` counts round trips:
    how often the client sent something after it had received something.
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
    _has_received: bool = True
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
                for source, target, direction in ((near, far, "to"), (far, near, "from")):
                    threading.Thread(
                        target=self._copy, args=(source, target, direction), daemon=True
                    ).start()
            self.accepted += 1

    def _copy(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                while self.is_frozen:
                    threading.Event().wait(0.05)
                with self._lock:
                    self.pieces[direction] += 1
                    cut = self.cuts(self.pieces[direction], direction)
                    if direction == "to" and self._has_received:
                        self.trips += 1
                        self._has_received = False
                time.sleep(self.delay_s)
                if cut != "before":
                    target.sendall(data)
                if direction == "from":
                    self._has_received = True
                if cut:
                    self.broken += 1
                    self.break_all()
                    return
            target.shutdown(socket.SHUT_WR)
