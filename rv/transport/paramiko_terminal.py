"""A program on another machine, on this terminal, over a session of paramiko's."""

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

import paramiko

_PIECE_BYTES: Final = 1 << 16
_USUAL_SIZE: Final = (80, 24)
_LOST: Final = 255
_ENDING: Final = (signal.SIGHUP, signal.SIGTERM)


def run_on_terminal(channel: paramiko.Channel, command: str) -> int:
    """Run it and return its exit code, 255 where the connection was lost, as ssh has it.

    Keys go there as they are typed, Ctrl-C too. Where there is no terminal it gets plain pipes.
    """
    with channel:
        with _signals() as (wake, ended_by):  # before its size is read: it may change at any time
            if os.isatty(sys.stdin.fileno()):
                size = _size()
                channel.get_pty(os.environ.get("TERM", "dumb"), size.columns, size.lines)
            channel.exec_command(command)
            with _raw():
                _pass_on(channel, wake, ended_by)
        if ended_by:
            if callable(signal.getsignal(ended_by[0])):  # who called this has more to do then
                signal.raise_signal(ended_by[0])
            return 128 + ended_by[0]
        code = channel.recv_exit_status()
        return code if code >= 0 else _LOST


@contextmanager
def _signals() -> Iterator[tuple[int, list[int]]]:
    """Turn a new size into a byte, and SIGHUP or SIGTERM into one and a number of the list.

    A handler that took a lock could wait for the thread that it interrupted.
    """
    wake, woken = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    ended_by: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if number in _ENDING:
            ended_by.append(number)
        with suppress(BlockingIOError):
            os.write(woken, b".")

    numbers = [n for n in _ENDING if signal.getsignal(n) is not signal.SIG_IGN]  # as under nohup
    before = {number: signal.signal(number, note) for number in (*numbers, signal.SIGWINCH)}
    try:
        yield wake, ended_by
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(wake)
        os.close(woken)


def _size() -> os.terminal_size:
    """Return what the terminal itself says, whatever COLUMNS and LINES are."""
    size = os.get_terminal_size(sys.stdin.fileno())
    return size if all(size) else os.terminal_size(_USUAL_SIZE)


@contextmanager
def _raw() -> Iterator[None]:
    """Let the program there see each key, and leave the terminal, if any, as it was."""
    terminal = sys.stdin.fileno()
    if not os.isatty(terminal):
        yield
        return
    before = termios.tcgetattr(terminal)
    try:
        tty.setraw(terminal, termios.TCSADRAIN)  # keeps what was typed ahead, as ssh does
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _pass_on(channel: paramiko.Channel, wake: int, ended_by: list[int]) -> None:
    """Copy keys there and output here, until the program or the connection ends."""
    keys = sys.stdin.fileno()
    sources = [channel, wake, keys]
    while not ended_by:
        ready = select.select(sources, [], [])[0]
        if wake in ready:
            os.read(wake, _PIECE_BYTES)
            size = _size()
            channel.resize_pty(size.columns, size.lines)
        if channel in ready and not _show(channel):
            return
        if keys in ready:
            typed = os.read(keys, _PIECE_BYTES)
            if typed:
                channel.sendall(typed)
            else:
                channel.shutdown_write()
                sources.remove(keys)


def _show(channel: paramiko.Channel) -> bool:
    """Write what came to both outputs; False at the end of them."""
    is_over = channel.closed or channel.eof_received
    shown = False
    while channel.recv_stderr_ready():
        shown = _write(sys.stderr.fileno(), channel.recv_stderr(_PIECE_BYTES))
    while channel.recv_ready():
        shown = _write(sys.stdout.fileno(), channel.recv(_PIECE_BYTES))
    return shown or not is_over


def _write(descriptor: int, data: bytes) -> bool:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    return True
