"""Jupyter on the winner's node, and its port on this machine: it lasts as long as its client."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.race import Race, RaceStatus
from rv.models.request import Command
from rv.race.watch import Sink
from rv.transport.tunnel import LOOPBACK, Listener
from rv.workflow.cluster import Cluster
from rv.workflow.forward import Forwarding, close_all
from rv.workflow.interactive_shell import lease_renewed
from rv.workflow.launch import Launch
from rv.workflow.start import watch

PORT: Final = 8888
TARGET: Final = "@jupyter"
"""The port that the file `jupyter` of the race directory holds."""

LEASE_S: Final = 3600.0
"""For how long Jupyter goes on without its client, as scripts/jupyter.sh has it."""

_ENDING_S: Final = 10.0
_PAGES: Final = {"notebook": "tree"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Jupyter:
    """A Jupyter that is to be started; who has the token may do in it what its user may."""

    token: str
    listener: Listener

    @property
    def variables(self) -> Mapping[str, str]:
        """What its job gets: through the file of its environment, which is the user's alone."""
        return {"JUPYTER_TOKEN": self.token}

    def url(self, page: str) -> str:
        """Return where it is on this machine."""
        return f"http://{LOOPBACK}:{self.listener.port}/{page}?token={self.token}"


def jupyter_command() -> Command:
    """Return the command that runs it."""
    script = (files("rv.workflow") / "scripts" / "jupyter.sh").read_text(encoding="utf-8")
    return Command(line=script, typed="jupyter lab")


def hold_jupyter(
    race: Race, launch: Launch, cluster: Cluster, sink: Sink, jupyter: Jupyter
) -> RaceStatus:
    """Wait for a winner, carry Jupyter's port here, and watch to the end.

    The job is told that the client is there; scripts/jupyter.sh says when it ends without one.
    """
    way = _Way(race=race, cluster=cluster, sink=sink, jupyter=jupyter)
    with lease_renewed(race, cluster.transport), _given_up(way):
        status = watch(race, launch, cluster, sink, until_claim=True, patience_s=LEASE_S)
        if status.claim is None:
            return status
        return _watch_forwarding(launch, way)


@contextmanager
def _given_up(way: "_Way") -> Iterator[None]:
    """Say what to type next where a loss outlasted the lease."""
    try:
        yield
    except RvError as error:
        if error.kind is not ErrorKind.UNREACHABLE:
            raise
        raise RvError(
            error.kind,
            f"no connection for an hour: {error.message}",
            hint=f"rv ps says whether race {way.race.race_id} still runs; {way.back}",
        ) from error


def _watch_forwarding(launch: Launch, way: "_Way") -> RaceStatus:
    race, cluster, sink = way.race, way.cluster, way.sink
    forwarding = Forwarding(
        race=race,
        node=None,
        listeners=[way.jupyter.listener],
        cluster=cluster,
        events=_Events(sink),
        awaited=TARGET,
        on_listening=way.tell,
    )
    thread = threading.Thread(target=_forward, args=(forwarding, way), daemon=True)
    thread.start()
    try:
        return watch(race, launch, cluster, sink, until_claim=False, patience_s=LEASE_S)
    finally:
        forwarding.stop()
        thread.join(_ENDING_S)


@dataclass(frozen=True, slots=True)
class _Events:
    """Passes on what is said; that the tunnel is there shows when Jupyter listens."""

    sink: Sink

    def is_there(self, node: str) -> None:
        """Say nothing."""

    def is_lost(self, text: str) -> None:
        """Say nothing: the race's watch says so."""

    def say(self, text: str) -> None:
        """Say a sentence."""
        self.sink.say(text)


@dataclass(kw_only=True, slots=True)
class _Way:
    """How the user gets to a Jupyter; `ports` is what rv forward takes, "" while not known."""

    race: Race
    cluster: Cluster
    sink: Sink
    jupyter: Jupyter
    ports: str = ""

    def tell(self) -> None:
        """Say where it is."""
        file = self.cluster.transport.read(f"{self.race.directory}/jupyter") or b""
        words = file.decode().split()
        self.ports = f"{words[0]}:{self.jupyter.listener.port}" if words else ""
        page = _PAGES.get(words[-1] if words else "", "lab")
        self.sink.say(f"Jupyter: {self.jupyter.url(page)}")
        self.sink.say("Ctrl-C ends it, and frees the GPUs")

    @property
    def back(self) -> str:
        """Say how to get there by the same address; one that was never said is of no use."""
        race_id = self.race.race_id
        if not self.ports:
            return f"rv stop {race_id} ends it"
        return f"rv forward {race_id} {self.ports} leads to it again"


def _forward(forwarding: Forwarding, way: _Way) -> None:
    try:
        forwarding.run()
    except RvError as error:
        if not forwarding.is_stopped:
            close_all(forwarding.listeners)  # who tries by hand needs the port
            way.sink.say(f"{error.message}; {way.back}")
