"""Ports of a race's node, on this machine: a relay in a job step, started anew where it is lost."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rv.errors import ErrorKind, RvError
from rv.models.race import Race, RaceState, RaceStatus
from rv.models.tunnel import Port
from rv.slurm.printable import last_line, printable
from rv.transport.query_retry import outlast_loss
from rv.transport.relay import LinkError
from rv.transport.tunnel import EndedError, Listener, RelayPlace, Tunnel, listen, open_relay
from rv.workflow.attach import Place, place_of, step
from rv.workflow.cluster import Cluster
from rv.workflow.races import look_at

_PATIENCE_S: Final = 60.0
"""For how long a step that ran once is started anew before rv gives up."""

_FIRST_PATIENCE_S: Final = 10.0
_FIRST_WAIT_S: Final = 0.25
_MOST_WAIT_S: Final = 5.0
_SAID_AT: Final = 3
_NO_PROGRAM: Final = 127
_MOST_PORT: Final = 65535


def is_port(text: str) -> bool:
    """Whether a word is meant as a port, and not as a race."""
    return text.isdigit() or ":" in text


def parse_port(text: str) -> Port:
    """Read `8888` or `8888:9999`. Raises `RvError(USAGE)`."""
    remote, colon, local = text.partition(":")
    words = (remote, local if colon else remote)
    if not all(word.isascii() and word.isdigit() for word in words):
        raise RvError(
            ErrorKind.USAGE,
            f"{text!r} is no port",
            hint="write 8888, or 8888:LOCAL for another here",
        )
    numbers = [int(word[:6]) for word in words]
    if not 0 < numbers[0] <= _MOST_PORT or numbers[1] > _MOST_PORT:
        raise RvError(
            ErrorKind.USAGE,
            f"{text}: a port is a number from 1 to {_MOST_PORT}",
            hint="such as 8888",
        )
    return Port(remote=numbers[0], local=numbers[1])


def listen_on(ports: Sequence[Port], *, auto: bool) -> tuple[Listener, ...]:
    """Listen on ports of this machine. Raises `RvError(USAGE)` for one that is named twice,
    `RvError(REFUSED)` for one that is taken.
    """
    named = [port.local for port in ports if port.local]
    twice = next((local for local in named if named.count(local) > 1), None)
    if twice and not auto:
        raise RvError(
            ErrorKind.USAGE,
            f"port {twice} of this machine is named twice",
            hint="8888:LOCAL, or --auto",
        )
    listeners: list[Listener] = []
    try:
        listeners.extend(listen(port.local, str(port.remote), auto=auto) for port in ports)
    except RvError:
        close_all(listeners)  # those before it
        raise
    return tuple(listeners)


def close_all(listeners: Sequence[Listener]) -> None:
    """Listen no longer."""
    for listener in listeners:
        listener.sock.close()


def start_relay(place: Place, cluster: Cluster, program: str = "") -> Tunnel:
    """Start a relay in a step of the race's job. Raises `RvError(UNREACHABLE)` and `OSError`."""
    there = RelayPlace(
        start=step(place, "--quiet", "--chdir=/"), folder=place.race.directory, program=program
    )
    return open_relay(there, cluster.transport.open_stream)


class Events(Protocol):
    """Who is told how forwarding goes."""

    def is_there(self, node: str) -> None:
        """The tunnel to a node is there, or there again."""

    def is_lost(self, text: str) -> None:
        """The login node cannot be reached, and is waited for."""

    def say(self, text: str) -> None:
        """Say a sentence."""


@dataclass(kw_only=True)
class Forwarding:
    """Carries ports to a race's node until the race is over, however long a connection is lost.

    `on_listening` is called as soon as the target `awaited` listens.
    """

    race: Race
    node: int | None
    listeners: Sequence[Listener]
    cluster: Cluster
    events: Events
    awaited: str = ""
    on_listening: Callable[[], None] = lambda: None
    _was_ready: bool = False
    _failures: int = 0
    _failing_since_s: float = 0.0
    _said: set[str] = field(default_factory=set)
    _tunnel: Tunnel | None = None
    _is_stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> RaceStatus:
        """Carry, and start a relay again where it is lost. Returns how the race ended.

        Raises `RvError(REFUSED)` where no relay starts for long though the login node answers, and
        `RvError(UNREACHABLE)` where it was stopped while that did not.
        """
        while True:
            status = self._look()
            if status.state.is_over or self.is_stopped:
                return status
            if status.state is RaceState.RUNNING and status.claim:
                self._carry(place_of(status, self.node, time.time()))
                self._is_stopped.wait(min(_FIRST_WAIT_S * 2**self._failures, _MOST_WAIT_S))
            else:  # a chain's next segment may wait for hours
                self._failures = 0
                self._say_once(f"race {self.race.race_id} does not run just now: waiting for it")
                self._is_stopped.wait(_MOST_WAIT_S)

    @property
    def is_stopped(self) -> bool:
        """Whether it is to end."""
        return self._is_stopped.is_set()

    def stop(self) -> None:
        """End it, from another thread."""
        self._is_stopped.set()
        if self._tunnel:
            self._tunnel.stop()

    def _look(self) -> RaceStatus:
        """Look at the race, when the login node answers."""
        began_s = time.monotonic()
        status, _ = outlast_loss(
            lambda: look_at(self.race, self.cluster, time.time()),
            limit_s=math.inf,
            say=self.events.is_lost,
            wait=self._is_stopped.wait,
        )
        self._failing_since_s += time.monotonic() - began_s  # no relay failed meanwhile
        return status

    def _carry(self, place: Place) -> None:
        """Carry until the step or the connection ends."""
        try:
            self._tunnel = start_relay(place, self.cluster)
        except (RvError, OSError) as error:
            self._failed(place, str(error))
            return
        tunnel = self._tunnel
        tunnel.on_ready = lambda: self._begin(tunnel, place)
        tunnel.on_refused = lambda target, reason: self._say_once(
            f"port {target} of {place.node}: {printable(reason)}"
        )
        try:
            tunnel.run()
        except EndedError as error:
            why = last_line(error.text).removeprefix("srun: error: ")
            self._failed(place, why or "the job step ended", code=error.code)
        except (LinkError, RvError, OSError) as error:
            self._failed(place, str(error))
        finally:
            tunnel.close()

    def _begin(self, tunnel: Tunnel, place: Place) -> None:
        self._was_ready, self._failures = True, 0
        for listener in self.listeners:
            tunnel.accept_from(listener)
        if self.awaited:
            tunnel.wait_for(self.awaited, self._listens)
        self.events.is_there(place.node)

    def _listens(self) -> None:
        self.on_listening()
        self.awaited = ""  # not before: the next relay calls it again where it was cut off

    def _failed(self, place: Place, why: str, code: int = 0) -> None:
        """Note a failure; the third in a row is said. Raises `RvError(REFUSED)` after many."""
        now_s = time.monotonic()
        if not self._failures:
            self._failing_since_s = now_s
        self._failures += 1
        limit_s = _PATIENCE_S if self._was_ready else _FIRST_PATIENCE_S
        if code == _NO_PROGRAM or now_s - self._failing_since_s > limit_s:
            raise RvError(
                ErrorKind.REFUSED,
                f"no tunnel to {place.node}: {printable(why)}",
                hint="the race goes on; rv attach opens a shell there",
            )
        if self._failures == _SAID_AT:  # not for a race that is just ending
            self.events.say(f"the tunnel to {place.node} is lost: {printable(why)}; trying again")

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.events.say(text)
