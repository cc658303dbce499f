"""What `rv forward` is told: ports, of a node and of this machine; and what it waits out."""

import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rv.errors import ErrorKind, RvError
from rv.models.race import RaceState, RaceStatus
from rv.models.tunnel import Port
from rv.workflow.forward import Forwarding, close_all, is_port, listen_on, parse_port
from tests.unit.race.test_status import CLAIM, RACE


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


class Told:
    """What forwarding says."""

    def __init__(self) -> None:
        self.losses: list[str] = []
        self.sentences: list[str] = []

    def is_there(self, node: str) -> None: ...

    def is_lost(self, text: str) -> None:
        self.losses.append(text)

    def say(self, text: str) -> None:
        self.sentences.append(text)


class Clock:
    """Time that passes only where it is waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        own = SimpleNamespace(monotonic=lambda: self.now_s, time=lambda: self.now_s)
        monkeypatch.setattr("rv.workflow.forward.time", own)
        monkeypatch.setattr("rv.transport.query_retry.time", own)

    def wait(self, seconds: float) -> bool:
        self.now_s += seconds
        return False


LOSS = RvError(ErrorKind.UNREACHABLE, "the connection was lost")
WAITS = RaceStatus(race=RACE, state=RaceState.PENDING)
RUNNING = RaceStatus(race=RACE, state=RaceState.RUNNING, claim=CLAIM)
OVER = RaceStatus(race=RACE, state=RaceState.CANCELLED)


@pytest.fixture
def forwarding(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Forwarding, Told]]:
    """Forwarding whose looks at the race go so, each after a minute."""
    clock = Clock(monkeypatch)

    def make(*looks: RvError | RaceStatus) -> tuple[Forwarding, Told]:
        coming = iter(looks)

        def look_at(*_: object) -> tuple[RaceStatus, tuple[()]]:
            clock.now_s += 60.0
            look = next(coming)
            if isinstance(look, RvError):
                raise look
            return look, ()

        monkeypatch.setattr("rv.workflow.forward.look_at", look_at)
        told = Told()
        cluster: Any = None
        made = Forwarding(race=RACE, node=None, listeners=[], cluster=cluster, events=told)
        monkeypatch.setattr(made._is_stopped, "wait", clock.wait)
        return made, told

    return make


def test_a_lost_connection_is_said_once_and_waited_for(
    forwarding: Callable[..., tuple[Forwarding, Told]],
) -> None:
    """For hours, and each anew."""
    made, told = forwarding(*[LOSS] * 200, WAITS, LOSS, OVER)
    assert made.run() is OVER
    assert len(told.losses) == 2, told.losses
    assert told.losses[0] == "the connection was lost; trying again until it is there"


def test_a_relay_has_its_time_after_an_outage(
    forwarding: Callable[..., tuple[Forwarding, Told]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the connection was waited for is none of it."""

    def no_relay(*_: object) -> None:
        raise RvError(ErrorKind.UNREACHABLE, "no relay")

    monkeypatch.setattr("rv.workflow.forward.start_relay", no_relay)
    made, _ = forwarding(RUNNING, LOSS, LOSS, RUNNING, RUNNING, OVER)
    assert made.run() is OVER


def test_another_failure_ends_it(forwarding: Callable[..., tuple[Forwarding, Told]]) -> None:
    """Only the connection comes back by itself; and who stops it waits for nothing."""
    made, told = forwarding(RvError(ErrorKind.CONFIG, "no"))
    with pytest.raises(RvError, match="no"):
        made.run()
    made, told = forwarding(LOSS)
    made._is_stopped.wait = lambda *_: True  # type: ignore[method-assign]
    with pytest.raises(RvError, match="connection was lost"):
        made.run()
    assert told.sentences == []
