"""This process's standard input and output, carried by a tunnel to a program on a node."""

import os
import socket
import sys
import threading
from contextlib import suppress
from typing import Final

from rv.transport.tunnel import Tunnel

_PIECE_BYTES: Final = 1 << 16
_PROGRAM: Final = "run"


def take_standard_input() -> int:
    """Return a descriptor of what standard input is; the terminal, if any, takes its place there.

    So whatever asks a question may ask it there.
    """
    descriptor = os.dup(sys.stdin.fileno())
    with suppress(OSError):  # there is none
        terminal = os.open("/dev/tty", os.O_RDWR)
        os.dup2(terminal, sys.stdin.fileno())
        os.close(terminal)
    return descriptor


def carry(tunnel: Tunnel, keys: int) -> bool:
    """Carry `keys` and standard output to the relay's program; return whether it said anything.

    Raises `LinkError`, and what the stream raises.
    """
    near, far = socket.socketpair()
    said: list[bool] = []

    def send() -> None:
        with suppress(OSError):
            while data := os.read(keys, _PIECE_BYTES):
                far.sendall(data)
        with suppress(OSError):
            far.shutdown(socket.SHUT_WR)

    def show() -> None:
        with suppress(OSError):
            while data := far.recv(_PIECE_BYTES):
                said.append(True)
                while data:
                    data = data[os.write(sys.stdout.fileno(), data) :]
        with suppress(OSError):
            far.shutdown(socket.SHUT_RD)

    channel = tunnel.ask(near, _PROGRAM)
    threading.Thread(target=send, daemon=True).start()
    showing = threading.Thread(target=show, daemon=True)
    showing.start()
    while channel.number in tunnel.channels and not channel.has_written_all:
        tunnel.turn()
    showing.join()
    return bool(said)
