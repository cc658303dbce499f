"""Many connections over one pair of pipes: ports of a node, carried to another machine.

This file has two uses. rv imports it for its own end; and it is sent to a node, where it runs by
itself, with whatever Python (3.6 or later) is there. So it knows nothing else of rv.

A frame is a letter, the connection's number and the length of what follows (8 hexadecimal digits
each), that, and a newline: Slurm passes on whole lines. Letters: O opens a connection to a target,
A says that it is open, D is data, E the end of one direction, C the end of both with a reason,
W how many bytes more may be sent, P that somebody is there.
"""

import errno
import os
import selectors
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

WINDOW_BYTES = 1 << 20
"""How much of one connection may be under way, so that a slow reader holds up nobody else."""

MOST_FRAME_BYTES = 1 << 16
_PIECE_BYTES = 1 << 15
_MOST_UNSENT_BYTES = 1 << 20
_HEAD_BYTES = 17
_BEAT_S = 10.0
_SILENCE_S = 90.0
_TICK_S = 1.0
_RETRY_S = 0.1
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_AT_ONCE = struct.pack("ii", 1, 0)


class LinkError(Exception):
    """The pipes ended, are silent, or carry what is no frame."""


class Channel:
    """One connection, of the same number at both ends."""

    def __init__(self, number: int, sock: socket.socket) -> None:
        self.number = number
        self.sock = sock
        self.is_open = True  # a socket that is not connected yet waits for its turn
        self.unwritten = bytearray()
        self.may_send = self.may_come = WINDOW_BYTES
        self.written = 0  # the other end was not told of these bytes yet
        self.has_read_all = False
        self.comes_no_more = False
        self.has_written_all = False
        self.events = 0

    @property
    def is_over(self) -> bool:
        """Whether both directions have ended."""
        return self.has_read_all and self.has_written_all


class Multiplexer:
    """Carries channels over the descriptors `reading` and `writing`."""

    def __init__(self, reading: int, writing: int) -> None:
        self.channels: dict[int, Channel] = {}
        self._selector = selectors.DefaultSelector()
        self._reading, self._writing = reading, writing
        self._received, self._unsent = bytearray(), bytearray()
        self._is_writing = False
        self.tick_s = _TICK_S
        self._heard_s = self._beat_s = time.monotonic()
        for descriptor in (reading, writing):
            os.set_blocking(descriptor, False)
        self._selector.register(reading, _READ, self._receive)

    def asked(self, number: int, target: str) -> None:
        """Open a channel for the other end. Raises `LinkError` where none is."""
        raise LinkError(f"channel {number} to {target} was not asked for")

    def opened(self, channel: Channel) -> None:
        """Note that the other end has opened a channel."""

    def refused(self, channel: Channel, reason: str) -> None:  # noqa: ARG002 - the client says it
        """Drop a channel that the other end has given up."""
        self.drop(channel)

    def turn(self) -> None:
        """Wait for something to do, a moment at most, and do it. Raises `LinkError`."""
        self._look_for_events()
        for key, events in self._selector.select(self.tick_s):
            key.data(events)
        now_s = time.monotonic()
        if now_s - self._heard_s > _SILENCE_S:
            raise LinkError(f"nothing was heard for {_SILENCE_S:.0f} s")
        if now_s - self._beat_s > _BEAT_S:
            self._beat_s = now_s
            self.send(b"P", 0)

    def send(self, kind: bytes, number: int, payload: bytes = b"") -> None:
        """Send a frame, as soon as there is room."""
        self._unsent += b"%c%08x%08x%b\n" % (kind, number, len(payload), payload)

    def close(self) -> None:
        """Reset what is still open: nobody must take a part for the whole."""
        for channel in list(self.channels.values()):
            self.drop(channel)
        self._selector.close()

    def drop(self, channel: Channel) -> None:
        """Forget a channel; an end that is not the usual one is a reset for who is connected."""
        self._unwatch(channel)
        if not channel.is_over:
            with suppress(OSError):  # it may be none of TCP's
                channel.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        channel.sock.close()
        self.channels.pop(channel.number, None)

    def give_up(self, channel: Channel, reason: str) -> None:
        """Drop a channel, and tell the other end why."""
        self.send(b"C", channel.number, reason.encode("utf-8", "replace"))
        self.drop(channel)

    def ready(self, channel: Channel, events: int) -> None:
        """Read and write what can be; an error of the socket ends the channel."""
        if not channel.events:  # an earlier event of this turn dropped it
            return
        try:
            if events & _WRITE:
                self._write(channel)
            if events & _READ:
                self._read(channel)
        except OSError as error:
            self.give_up(channel, os.strerror(error.errno or 0))
            return
        if channel.is_over:
            self.drop(channel)

    def _look_for_events(self) -> None:
        if bool(self._unsent) != self._is_writing:
            self._is_writing = not self._is_writing
            if self._is_writing:
                self._selector.register(self._writing, _WRITE, self._send_on)
            else:
                self._selector.unregister(self._writing)
        for channel in self.channels.values():
            self._watch(channel, self.events_of(channel))

    def events_of(self, channel: Channel) -> int:
        """Return what is waited for on a channel's socket."""
        if not channel.is_open:
            return 0
        has_room = channel.may_send > 0 and len(self._unsent) < _MOST_UNSENT_BYTES
        wants_data = has_room and not channel.has_read_all
        must_end = channel.comes_no_more and not channel.has_written_all
        return (_READ if wants_data else 0) | (_WRITE if channel.unwritten or must_end else 0)

    def _watch(self, channel: Channel, events: int) -> None:
        if events == channel.events:
            return
        if not events:
            self._unwatch(channel)
            return
        change = self._selector.modify if channel.events else self._selector.register
        change(channel.sock, events, lambda seen: self.ready(channel, seen))
        channel.events = events

    def _unwatch(self, channel: Channel) -> None:
        if channel.events:
            self._selector.unregister(channel.sock)
            channel.events = 0

    def _read(self, channel: Channel) -> None:
        """Send on what came, as far as the other end takes it."""
        try:
            data = channel.sock.recv(min(_PIECE_BYTES, channel.may_send))
        except BlockingIOError:
            return
        channel.may_send -= len(data)
        channel.has_read_all = not data
        self.send(b"D" if data else b"E", channel.number, data)

    def _write(self, channel: Channel) -> None:
        """Write what came from the other end, and its end after all of it."""
        try:
            while channel.unwritten:
                count = channel.sock.send(channel.unwritten[:_PIECE_BYTES])
                del channel.unwritten[:count]
                channel.written += count
        except BlockingIOError:
            pass
        if channel.written >= WINDOW_BYTES // 4:
            self.send(b"W", channel.number, b"%d" % channel.written)
            channel.may_come += channel.written
            channel.written = 0
        if channel.comes_no_more and not channel.unwritten and not channel.has_written_all:
            channel.has_written_all = True
            channel.sock.shutdown(socket.SHUT_WR)

    def _send_on(self, _events: int) -> None:
        try:
            count = os.write(self._writing, self._unsent[:MOST_FRAME_BYTES])
        except BlockingIOError:
            return
        except OSError as error:
            raise LinkError(os.strerror(error.errno or 0)) from None
        del self._unsent[:count]

    def _receive(self, _events: int) -> None:
        try:
            data = os.read(self._reading, MOST_FRAME_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise LinkError(os.strerror(error.errno or 0)) from None
        if not data:
            raise LinkError("it ended")
        self._heard_s = time.monotonic()
        self._received += data
        at, after = -1, 0
        while after != at:
            at, after = after, self.frame(self._received, after)
        del self._received[:at]

    def frame(self, received: bytearray, at: int) -> int:
        """Read a frame and do what it says; where it is not whole yet, do nothing.

        Returns where the next one begins.
        """
        if len(received) - at < _HEAD_BYTES:
            return at
        kind, head = bytes(received[at : at + 1]), received[at + 1 : at + _HEAD_BYTES]
        try:
            number, size = int(head[:8], 16), int(head[8:], 16)
        except ValueError:
            number, size = 0, -1
        if not 0 <= size <= MOST_FRAME_BYTES:
            raise LinkError("what came is no frame")
        end = at + _HEAD_BYTES + size
        if len(received) <= end:
            return at
        self._handle(kind, number, bytes(received[at + _HEAD_BYTES : end]))
        return end + 1

    def _handle(self, kind: bytes, number: int, payload: bytes) -> None:
        channel = self.channels.get(number)
        if kind == b"O":
            self.asked(number, payload.decode("ascii", "replace"))
        elif channel is None:
            return  # it was dropped at this end meanwhile
        elif kind == b"D":
            self._take(channel, payload)
        elif kind == b"E":
            channel.comes_no_more = True
        elif kind == b"W" and payload.isdigit():
            channel.may_send += int(payload)
        elif kind == b"A":
            self.opened(channel)
        elif kind == b"C":
            self.refused(channel, payload.decode("utf-8", "replace"))

    def _take(self, channel: Channel, payload: bytes) -> None:
        channel.may_come -= len(payload)
        if channel.may_come < 0 or channel.comes_no_more:
            raise LinkError("more came than was asked for")
        channel.unwritten += payload


class Attempt:
    """A channel that is being connected: to each address of its target, again and again."""

    def __init__(self, target: str, patience_s: float) -> None:
        self.target = target
        self.until_s = time.monotonic() + patience_s
        self.again_s = 0.0
        self.is_connecting = False
        self.addresses: list[tuple[int, tuple[object, ...]]] = []


class Relay(Multiplexer):
    """The end on the node: connects to its ports, or starts a program.

    A target is a port, `@NAME` for the port that a file in `folder` holds, or `run` for `program`.
    """

    def __init__(self, folder: str, program: str) -> None:
        Multiplexer.__init__(self, 0, 1)
        self._folder, self._program = folder, program
        self._attempts: dict[int, Attempt] = {}
        self._programs: list[subprocess.Popen[bytes]] = []

    def asked(self, number: int, target: str) -> None:
        """Begin to connect, or start the program; the target is followed by seconds of patience."""
        where, _, patience = target.partition(" ")
        if where == "run":
            ours, theirs = socket.socketpair()
            with theirs:
                line, pipe = ["/bin/bash", "-c", self._program], theirs.fileno()
                self._programs.append(subprocess.Popen(line, stdin=pipe, stdout=pipe))
            self._open(Channel(number, ours))
        else:
            channel = self.channels[number] = Channel(number, socket.socket())
            channel.is_open = False
            self._attempts[number] = Attempt(where, float(patience))

    def turn(self) -> None:
        """Connect what is due, and carry."""
        now_s = time.monotonic()
        for number, attempt in list(self._attempts.items()):
            channel = self.channels.get(number)
            if channel is None:
                del self._attempts[number]
            elif not attempt.is_connecting and now_s >= attempt.again_s:
                attempt.addresses = self._addresses(attempt.target)
                self._connect(channel)
        self.tick_s = _RETRY_S if self._attempts else _TICK_S
        Multiplexer.turn(self)

    def events_of(self, channel: Channel) -> int:
        """Return what is waited for: a socket that was connecting can be written to afterwards."""
        attempt = self._attempts.get(channel.number)
        if attempt is None:
            return Multiplexer.events_of(self, channel)
        return _WRITE if attempt.is_connecting else 0

    def ready(self, channel: Channel, events: int) -> None:
        """See what became of connecting, or carry."""
        if channel.number not in self._attempts or not channel.events:
            Multiplexer.ready(self, channel, events)
        elif channel.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._unwatch(channel)
            self._connect(channel)
        else:
            del self._attempts[channel.number]
            channel.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open(channel)

    def _open(self, channel: Channel) -> None:
        channel.sock.setblocking(False)
        channel.is_open = True
        self.channels[channel.number] = channel
        self.send(b"A", channel.number)

    def _connect(self, channel: Channel) -> None:
        """Connect to the next address; after the last wait a little, or give up."""
        attempt = self._attempts[channel.number]
        attempt.is_connecting = False
        while attempt.addresses and not attempt.is_connecting:
            family, address = attempt.addresses.pop(0)
            channel.sock.close()
            channel.sock = socket.socket(family, socket.SOCK_STREAM)
            channel.sock.setblocking(False)
            code = channel.sock.connect_ex(address)
            attempt.is_connecting = code in (0, errno.EINPROGRESS)
        if attempt.is_connecting:
            return
        attempt.again_s = time.monotonic() + _RETRY_S
        if attempt.again_s > attempt.until_s:
            del self._attempts[channel.number]
            self.give_up(channel, "nothing listens there")

    def _addresses(self, target: str) -> "list[tuple[int, tuple[object, ...]]]":
        """Return where a port of this node may be listened on: its loopback, and its own name."""
        if target.startswith("@"):
            target = _first_line(Path(self._folder, target[1:]))
        if not target.isdigit() or not 0 < int(target) < 1 << 16:
            return []
        port = int(target)
        loopback = [(socket.AF_INET, ("127.0.0.1", port)), (socket.AF_INET6, ("::1", port))]
        try:
            own = socket.getaddrinfo(socket.gethostname(), port, type=socket.SOCK_STREAM)
        except OSError:
            own = []
        return loopback + [(each[0], each[4]) for each in own]


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").partition("\n")[0]
    except (OSError, ValueError):
        return ""


def main(mark: str, folder: str, program: str) -> None:
    """Carry until the other end has gone."""
    os.write(1, f"\n{mark} ready\n".encode("ascii"))
    relay = Relay(folder, program)
    try:
        with suppress(LinkError):
            while True:
                relay.turn()
    finally:
        relay.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
