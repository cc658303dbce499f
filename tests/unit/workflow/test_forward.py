"""What `rv forward` is told: ports, of a node and of this machine."""

import socket

import pytest

from rv.errors import ErrorKind, RvError
from rv.models.tunnel import Port
from rv.workflow.forward import close_all, is_port, listen_on, parse_port


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("8888", Port(remote=8888, local=8888)),
        ("8888:9999", Port(remote=8888, local=9999)),
        ("1:0", Port(remote=1, local=0)),
        ("65535:65535", Port(remote=65535, local=65535)),
    ],
)
def test_ports(text: str, port: Port) -> None:
    """The node's comes first; 0 here is any that is free."""
    assert is_port(text)
    assert parse_port(text) == port


@pytest.mark.parametrize(
    "text",
    ["0", "65536", "1:65536", "99999999999", ":", "80:", ":80", "80:80:80", "-1:2", "a:1", "٣:1"],
)
def test_what_is_no_port(text: str) -> None:
    """Is refused by name, with a hint."""
    with pytest.raises(RvError) as caught:
        parse_port(text)
    assert caught.value.kind is ErrorKind.USAGE
    assert text in caught.value.message
    assert caught.value.hint


def test_a_race_is_no_port() -> None:
    """Whatever its name."""
    assert not any(map(is_port, ("train", "ab12cd34", "run-8888", "8888x")))


def test_a_port_that_is_taken() -> None:
    """Those that were opened before it are closed again; with `auto` another takes its place."""
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        socket.create_server(("127.0.0.1", 0)) as free,
    ):
        taken, first = other.getsockname()[1], free.getsockname()[1]
        free.close()
        ports = [Port(remote=80, local=first), Port(remote=80, local=taken)]
        with pytest.raises(RvError, match=f"port {taken} of this machine: address already in use"):
            listen_on(ports, auto=False)
        listeners = listen_on(ports, auto=True)
        assert listeners[0].port == first
        assert listeners[1].port != taken
        assert {each.sock.getsockname()[0] for each in listeners} == {"127.0.0.1"}
        close_all(listeners)
