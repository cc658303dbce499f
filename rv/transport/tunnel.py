"""The near end of a tunnel: ports of this machine, carried by a stream to a relay on a node.

The relay is `rv/transport/relay.py`, which is sent there when the stream begins.
"""

import os
import secrets
import shlex
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.resources import files
from selectors import EVENT_READ
from typing import Final, NoReturn

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.transport.relay import MOST_FRAME_BYTES, Channel, LinkError, Multiplexer
from rv.transport.remote_shell import Stream

LOOPBACK: Final = "127.0.0.1"
PATIENCE_S: Final = 3.0
"""How long a connection waits for a server that does not listen yet."""

_MARK_BYTES: Final = 6  # with "rv" it is shorter than the head of a frame
_MOST_NOISE_BYTES: Final = 1 << 20
_MOST_TEXT_BYTES: Final = 2000
_BACKLOG: Final = 512
_ENDING_S: Final = 10.0
_FOREVER_S: Final = 1e9
_PYTHONS: Final = ("python3", "/usr/bin/python3", "/usr/libexec/platform-python")

# Standard output is the relay's; what went wrong is said on it after the end.
_LINE: Final = """\
{{ text=$({start} 2>&1 >&3 3>&-); code=$?; }} 3>&1
text=$(tail -c {most} <<<"$text")
LC_ALL=C
printf '\\n%s ended %d %d\\n%s' {mark} "$code" "${{#text}}" "$text"
"""
_ON_NODE: Final = """\
source=$(head -c {size})
[ ! -e {folder}/environment ] || while IFS= read -r -d '' pair; do
  case $pair in PATH=*) PATH=$PATH:${{pair#PATH=}} ;; esac
done <{folder}/environment
for python in {pythons}; do
  if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 6))' 2>/dev/null; then
    exec "$python" -I -c "$source" {mark} {folder} {program}
  fi
done
echo "there is no python3 (3.6 or later) on node $SLURMD_NODENAME" >&2
exit 127
"""


def _nothing(*_: object) -> None:
    """Be told, and do nothing."""


class EndedError(LinkError):
    """What runs the relay ended with a code; `text` is what it said, untrusted."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass(frozen=True, kw_only=True, slots=True)
class Listener:
    """A port of this machine, and what its connections are carried to."""

    sock: socket.socket
    target: str

    @property
    def port(self) -> int:
        """The port of this machine."""
        return int(self.sock.getsockname()[1])


@dataclass(frozen=True, kw_only=True, slots=True)
class RelayPlace:
    """Where a relay runs: `start` are the words that run a program there.

    `folder` holds the files that targets name, `program` is what the target `run` starts.
    """

    start: Sequence[str]
    folder: str
    program: str = ""
    pythons: Sequence[str] = _PYTHONS

    def line(self, mark: str, size: int) -> str:
        """Return the bash line that runs a relay whose source comes first, in `size` bytes."""
        script = _ON_NODE.format(
            size=size,
            folder=shlex.quote(self.folder),
            pythons=shlex.join(self.pythons),
            mark=mark,
            program=shlex.quote(self.program),
        )
        return _LINE.format(
            start=shlex.join([*self.start, "/bin/bash", "-c", script]),
            mark=mark,
            most=_MOST_TEXT_BYTES,
        )


def listen(port: int, target: str, *, auto: bool) -> Listener:
    """Listen on a port of this machine, 0 for a free one; with `auto` on a free one if it is taken.

    Raises `RvError(REFUSED)`.
    """
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((LOOPBACK, port))
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        if auto and port:
            return listen(0, target, auto=False)
        raise RvError(
            ErrorKind.REFUSED,
            f"cannot listen on port {port} of this machine: {(error.strerror or '').lower()}",
            hint=f"--auto takes a free one, {target}:LOCAL names another",
        ) from error
    sock.setblocking(False)
    return Listener(sock=sock, target=target)


def open_relay(place: RelayPlace, open_stream: Callable[[str], Stream]) -> "Tunnel":
    """Start a relay. Raises `RvError(UNREACHABLE)` and `OSError`."""
    source = (files("rv.transport") / "relay.py").read_bytes()
    mark = f"rv{secrets.token_hex(_MARK_BYTES)}"
    stream = open_stream(place.line(mark, len(source)))
    try:
        stream.write(source)
    except BaseException:
        stream.close()
        raise
    return Tunnel(stream, mark)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    target: str
    on_open: Callable[[], None]


class Tunnel(Multiplexer):
    """This end: a stream's bytes go through a pair of sockets, which can be waited for with others.

    `on_ready` is called when the relay is there, `on_refused` with a target and a reason.
    """

    def __init__(self, stream: Stream, mark: str) -> None:
        self._stream = stream
        self._mark = mark.encode()
        self._near, self._far = socket.socketpair()
        self._near_again = os.dup(self._near.fileno())
        super().__init__(self._near.fileno(), self._near_again)
        self._failure: Exception | None = None
        self._asked: dict[int, _Asked] = {}
        self._count = 0
        self.is_ready = False
        self.on_ready: Callable[[], None] = _nothing
        self.on_refused: Callable[[str, str], None] = _nothing
        self._threads = [
            threading.Thread(target=copy, daemon=True) for copy in (self._fetch, self._pass_on)
        ]
        for thread in self._threads:
            thread.start()

    def accept_from(self, listener: Listener) -> None:
        """Carry what connects to a listener from now on."""
        self._selector.register(listener.sock, EVENT_READ, lambda _: self._accept(listener))

    def ask(
        self,
        sock: socket.socket,
        target: str,
        patience_s: float = PATIENCE_S,
        on_open: Callable[[], None] = _nothing,
    ) -> Channel:
        """Carry a socket to a target; `on_open` is called when it is connected there."""
        self._count += 1
        channel = self.channels[self._count] = Channel(self._count, sock)
        sock.setblocking(False)
        self._asked[channel.number] = _Asked(target=target, on_open=on_open)
        self.send(b"O", channel.number, f"{target} {patience_s:.0f}".encode())
        return channel

    def wait_for(self, target: str, then: Callable[[], None]) -> None:
        """Call a function once, as soon as a target listens."""
        sock, other = socket.socketpair()

        def seen() -> None:
            other.close()  # which ends the connection as usual
            then()

        self.ask(sock, target, _FOREVER_S, seen)

    def run(self) -> NoReturn:
        """Carry until the link ends. Raises `LinkError`, or what the stream raised.

        It is `EndedError` where what runs the relay says how it ended.
        """
        try:
            while True:
                self.turn()
        except LinkError:
            if self._failure:
                raise self._failure from None
            raise

    def finish(self) -> str:
        """End the relay, and return what it and what it ran said of errors."""
        self._stream.close_write()
        try:
            self.run()
        except EndedError as error:
            return error.text

    def stop(self) -> None:
        """Let `run` end, from another thread."""
        with suppress(OSError):  # it has ended
            self._far.shutdown(socket.SHUT_RDWR)

    def opened(self, channel: Channel) -> None:
        """Tell who asked for it."""
        self._asked[channel.number].on_open()

    def refused(self, channel: Channel, reason: str) -> None:
        """Drop it, and say why."""
        target = self._asked[channel.number].target
        super().refused(channel, reason)
        self.on_refused(target, reason)

    def drop(self, channel: Channel) -> None:
        """Forget it, and what it was for."""
        super().drop(channel)
        self._asked.pop(channel.number, None)

    def close(self) -> None:
        """End everything: connections are reset, the relay and its step end."""
        super().close()
        self._near.close()
        os.close(self._near_again)
        self._stream.close()
        for thread in self._threads:
            thread.join(_ENDING_S)
        self._far.close()

    def frame(self, received: bytearray, at: int) -> int:
        """Pass over what is printed before the relay begins, and see what is said after its end."""
        if self.is_ready and not received.startswith((b"\n", self._mark), at):
            return super().frame(received, at)
        end = received.find(b"\n", at)
        if end < 0:
            if len(received) > _MOST_NOISE_BYTES:
                raise LinkError("no relay answered")
            return at
        words = bytes(received[at:end]).split()
        if words == [self._mark, b"ready"]:
            self.is_ready = True
            self.on_ready()
        elif words[:2] == [self._mark, b"ended"]:
            return self._end(words[2:], received, at, end + 1)
        return end + 1

    def _end(self, words: Sequence[bytes], received: bytearray, at: int, begin: int) -> int:
        """Raise `EndedError` with the code and text that these words announce, once it is whole."""
        if len(words) != 2 or not all(word.isdigit() for word in words):
            raise LinkError("its end is no end")
        code, size = map(int, words)
        if size > _MOST_TEXT_BYTES:
            raise LinkError("its end is no end")
        if len(received) < begin + size:
            return at
        raise EndedError(code, received[begin : begin + size].decode("utf-8", "replace"))

    def _accept(self, listener: Listener) -> None:
        with suppress(OSError):  # who connected has gone already
            sock, _ = listener.sock.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.ask(sock, listener.target)

    def _fetch(self) -> None:
        """Take what the stream brings."""
        with suppress(OSError, ValueError):  # `close` has closed the stream
            try:
                while data := self._stream.read_some(MOST_FRAME_BYTES):
                    self._far.sendall(data)
            except (RvError, OSError) as error:
                self._failure = error
            self._far.shutdown(socket.SHUT_WR)

    def _pass_on(self) -> None:
        """Give the stream what is to be sent."""
        with suppress(OSError, ValueError):  # `close` has closed the stream
            try:
                while data := self._far.recv(MOST_FRAME_BYTES):
                    self._stream.write(data)
            except (RvError, OSError) as error:
                self._failure = self._failure or error
            self._far.shutdown(socket.SHUT_RD)
