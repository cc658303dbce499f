"""A tunnel and its relay, which run here as they do on a node: by bash and a python3 of their own."""

import ast
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rv.transport import relay
from rv.transport.local import LocalTransport
from rv.transport.relay import WINDOW_BYTES, Channel, LinkError, Multiplexer
from rv.transport.tunnel import EndedError, RelayPlace, Tunnel, open_relay
from tests.ssh.echo import echo_server

HERE = LocalTransport({"PATH": os.environ["PATH"], "SLURMD_NODENAME": "a1"})


@pytest.fixture
def tunnel(tmp_path: Path) -> Iterator[Tunnel]:
    """A tunnel to a relay that runs on this machine, after a profile that prints."""
    place = RelayPlace(start=("env",), folder=str(tmp_path), program="echo $((6 * 7)); cat")
    made = open_relay(place, lambda line: HERE.open_stream(f"echo noise; {line}"))
    yield made
    made.close()


def carry(tunnel: Tunnel, channel: Channel) -> None:
    """Carry until a channel is over."""
    while channel.number in tunnel.channels:
        tunnel.turn()


def exchange(tunnel: Tunnel, target: str, sent: bytes) -> bytes:
    """Send to a target, end that direction, and return all that comes back."""
    near, far = socket.socketpair()
    got = bytearray()

    def talk() -> None:
        with far:
            threading.Thread(target=lambda: (far.sendall(sent), far.shutdown(1))).start()
            while data := far.recv(1 << 16):
                got.extend(data)

    thread = threading.Thread(target=talk)
    thread.start()
    carry(tunnel, tunnel.ask(near, target))
    thread.join()
    return bytes(got)


def test_the_relay_is_python_of_3_6() -> None:
    """A node may have no newer one."""
    source = Path(relay.__file__).read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 6))
    with pytest.raises(SyntaxError):
        ast.parse("(x := 1)", feature_version=(3, 6))


def test_bytes_come_whole(tunnel: Tunnel) -> None:
    """More than a window of them, of a port and of a program."""
    data = os.urandom(3 * WINDOW_BYTES + 17)
    with echo_server() as port:
        assert exchange(tunnel, str(port), data) == data
    assert exchange(tunnel, "run", b"\x00\n\xff") == b"42\n\x00\n\xff"


def test_what_was_said_of_errors(tmp_path: Path) -> None:
    """On the node, by the relay's program: it is known after the end, whatever it is."""
    place = RelayPlace(
        start=("env",), folder=str(tmp_path), program="printf '%s\\n' 'ended 1' oh >&2"
    )
    tunnel = open_relay(place, HERE.open_stream)
    assert exchange(tunnel, "run", b"") == b""
    assert tunnel.finish() == "ended 1\noh"
    tunnel.close()


def test_a_port_that_a_file_names(tunnel: Tunnel, tmp_path: Path) -> None:
    """It is waited for, until it is there and listens."""
    seen: list[bool] = []
    tunnel.wait_for("@jupyter", lambda: seen.append(True))
    while not tunnel.is_ready:
        tunnel.turn()
    assert not seen
    with echo_server() as port:
        (tmp_path / "jupyter").write_text(f"{port}\nlab\n")
        while not seen:
            tunnel.turn()


@pytest.mark.parametrize("pythons", [(), ("no-such-python", "false")])
def test_a_node_without_python(pythons: tuple[str, ...], tmp_path: Path) -> None:
    """It is named."""
    place = RelayPlace(start=("env",), folder=str(tmp_path), pythons=pythons)
    tunnel = open_relay(place, HERE.open_stream)
    try:
        with pytest.raises(EndedError) as caught:
            tunnel.run()
    finally:
        tunnel.close()
    assert (caught.value.code, caught.value.text) == (
        127,
        "there is no python3 (3.6 or later) on node a1",
    )


@pytest.mark.parametrize(
    ("came", "why"),
    [
        (b"nothing of the kind\n", "no frame"),
        (b"D0000000100ffffff", "no frame"),
        (b"D00000001-0000001x\n", "no frame"),
        (b"D0000000100000002xx\n" * 2, "more came than was asked for"),
        (b"O000000090000000442 3\n", "was not asked for"),
    ],
)
def test_what_breaks_the_rules_ends_the_link(came: bytes, why: str) -> None:
    """What comes from a node is untrusted: it fills no memory, and opens nothing here."""
    near, far = socket.socketpair()
    writing = os.dup(near.fileno())
    client, other = socket.socketpair()
    with near, far, client, other:
        link = Multiplexer(near.fileno(), writing)
        link.channels[1] = Channel(1, client)
        link.channels[1].may_come = 3
        far.sendall(came)
        with pytest.raises(LinkError, match=why):
            link.turn()
        link.close()
    os.close(writing)
