"""A server that gives back what it gets, and its clients: half-closed streams, many at once."""

import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subprocess import Popen

BACKLOG = 200
PATIENCE_S = 60.0


@contextmanager
def echo_server(port: int = 0) -> Iterator[int]:
    """Listen on loopback, which the nodes of a sandbox share, and give its port."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen(BACKLOG)
        threading.Thread(target=_accept, args=(server,), daemon=True).start()
        yield server.getsockname()[1]
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def free_port() -> int:
    """Name a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def echoed(port: int, size: int) -> bool:
    """Send so many bytes, end that direction, and see whether just they come back."""
    data = os.urandom(size)
    with socket.create_connection(("127.0.0.1", port)) as client:
        sender = threading.Thread(target=_send, args=(client, data))
        sender.start()
        got = bytearray()
        while piece := client.recv(1 << 16):
            got += piece
        sender.join()
    return got == data


def echoes(port: int, size: int = 100) -> bool:
    """The same, but False where the connection is refused or reset."""
    try:
        return echoed(port, size)
    except OSError:
        return False


def all_echoed(port: int, count: int, size: int) -> list[bool]:
    """The same over so many connections at once."""
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.append(echoes(port, size))) for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class Talk:
    """What a client says on stderr, as it comes."""

    def __init__(self, client: "Popen[str]") -> None:
        self.client = client
        self.text = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def shows(self, text: str) -> str:
        """Wait until it said so, and return all that it said."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.text:
            assert time.monotonic() < deadline, self.text
            assert self.client.poll() is None or text in self.text, self.text
            time.sleep(0.02)
        return self.text

    def port(self) -> int:
        """Wait for the port of this machine."""
        match = re.search(r"127\.0\.0\.1:(\d+) leads to", self.shows(" leads to "))
        assert match
        return int(match[1])

    def close(self) -> None:
        """Kill it, and read what it said last."""
        self.client.kill()
        self.client.wait()
        self._reader.join(PATIENCE_S)
        assert not self._reader.is_alive(), "a process that it left holds its stderr"
        with self.client:
            pass

    def _read(self) -> None:
        assert self.client.stderr
        for line in self.client.stderr:
            self.text += line


def _accept(server: socket.socket) -> None:
    while True:
        try:
            client = server.accept()[0]
        except OSError:
            return
        threading.Thread(target=_answer, args=(client,), daemon=True).start()


def _answer(client: socket.socket) -> None:
    """Give back what comes, and its end only after that: the other direction is still open."""
    with client, suppress(OSError):
        while piece := client.recv(1 << 16):
            client.sendall(piece)
        client.shutdown(socket.SHUT_WR)


def _send(client: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
