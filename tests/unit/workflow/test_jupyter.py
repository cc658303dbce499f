"""A Jupyter whose client loses its connection."""

import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rv.errors import ErrorKind, RvError
from rv.models.race import RaceState, RaceStatus
from rv.transport.tunnel import Listener
from rv.workflow.forward import Forwarding
from rv.workflow.jupyter import LEASE_S, TARGET, Jupyter, hold_jupyter, jupyter_command
from tests.unit.race.test_status import CLAIM, RACE
from tests.unit.race.test_watch import Recorder

RUNNING = RaceStatus(race=RACE, state=RaceState.RUNNING, claim=CLAIM)
LOSS = RvError(ErrorKind.UNREACHABLE, "the connection was lost")
Hold = Callable[..., tuple[RvError, list[str], int]]


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Hold:
    """Hold a Jupyter whose race's watch and whose forwarding go so; return how it failed, what was
    said, and the port here."""

    def run(forward: Callable[[Forwarding], None]) -> tuple[RvError, list[str], int]:
        def watch(*_: object, until_claim: bool, patience_s: float = 0.0) -> RaceStatus:
            assert patience_s == LEASE_S
            if until_claim:
                return RUNNING
            for thread in threading.enumerate():
                if "_forward" in thread.name:  # what it says is looked at
                    thread.join(10)
            raise LOSS

        def at_once(self: Forwarding) -> None:
            forward(self)

        monkeypatch.setattr("rv.workflow.jupyter.watch", watch)
        monkeypatch.setattr(Forwarding, "run", at_once)
        transport = SimpleNamespace(read=lambda _: b"40123\nlab\n", write=lambda *_: None)
        cluster: Any = SimpleNamespace(transport=transport)
        launch: Any = None
        sink = Recorder()
        with socket.create_server(("127.0.0.1", 0)) as sock:
            jupyter = Jupyter(token="t", listener=Listener(sock=sock, target=TARGET))
            port = jupyter.listener.port
            with pytest.raises(RvError) as caught:
                hold_jupyter(RACE, launch, cluster, sink, jupyter)
            return caught.value, sink.sentences, port

    return run


def test_the_lease_is_the_jobs() -> None:
    """The client waits for as long as Jupyter waits for it."""
    assert f"lease_s={LEASE_S:.0f} " in jupyter_command().line


def test_a_loss_that_outlasts_it_names_the_way_back(hold: Hold) -> None:
    """With the port of the node, and the port here that the address has."""
    error, said, port = hold(lambda forwarding: forwarding.on_listening())
    assert (error.kind, error.message) == (
        ErrorKind.UNREACHABLE, "no connection for an hour: the connection was lost",
    )  # fmt: skip
    assert error.hint == (
        "rv ps says whether race abcdefgh still runs; "
        f"rv forward abcdefgh 40123:{port} leads to it again"
    )
    assert said[0] == f"Jupyter: http://127.0.0.1:{port}/lab?token=t"


def test_one_that_nobody_saw(hold: Hold) -> None:
    """Its address was never said, so nobody can get there: it can only be stopped."""
    error, _, _ = hold(lambda _: None)
    assert error.hint == ("rv ps says whether race abcdefgh still runs; rv stop abcdefgh ends it")


def test_a_loss_is_said_by_the_watch_alone(hold: Hold) -> None:
    """And not by its forwarding too."""
    _, said, _ = hold(lambda forwarding: forwarding.events.is_lost("lost"))
    assert said == []


def test_forwarding_that_failed(hold: Hold) -> None:
    """It says what to type; one that was stopped says nothing."""

    def fail(forwarding: Forwarding) -> None:
        forwarding.on_listening()
        raise RvError(ErrorKind.REFUSED, "no tunnel")

    def stopped(forwarding: Forwarding) -> None:
        forwarding.stop()
        raise LOSS

    _, said, port = hold(fail)
    assert said[-1] == f"no tunnel; rv forward abcdefgh 40123:{port} leads to it again"
    _, said, _ = hold(stopped)
    assert said == []
