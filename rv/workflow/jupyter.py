"""Jupyter on the winner's node, and its port on this machine: it lasts as long as its client."""

import threading
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from rv.dataclass import dataclass
from rv.errors import RvError
from rv.models.race import Race, RaceStatus
from rv.models.request import Command
from rv.race.watch import Sink
from rv.transport.tunnel import LOOPBACK, Listener
from rv.workflow.cluster import Cluster
from rv.workflow.forward import Forwarding
from rv.workflow.interactive_shell import lease_renewed
from rv.workflow.launch import Launch
from rv.workflow.start import watch

PORT: Final = 8888
TARGET: Final = "@jupyter"
"""The port that the file `jupyter` of the race directory holds."""

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
    with lease_renewed(race, cluster.transport):
        status = watch(race, launch, cluster, sink, until_claim=True)
        if status.claim is None:
            return status
        return _watch_forwarding(race, launch, cluster, sink, jupyter)


def _watch_forwarding(
    race: Race, launch: Launch, cluster: Cluster, sink: Sink, jupyter: Jupyter
) -> RaceStatus:
    forwarding = Forwarding(
        race=race,
        node=None,
        listeners=[jupyter.listener],
        cluster=cluster,
        events=_Events(sink),
        awaited=TARGET,
        on_listening=lambda: _tell(race, cluster, sink, jupyter),
    )
    thread = threading.Thread(target=_forward, args=(forwarding, sink), daemon=True)
    thread.start()
    try:
        return watch(race, launch, cluster, sink, until_claim=False)
    finally:
        forwarding.stop()
        thread.join(_ENDING_S)


@dataclass(frozen=True, slots=True)
class _Events:
    """Passes on what is said; that the tunnel is there shows when Jupyter listens."""

    sink: Sink

    def is_there(self, node: str) -> None:
        """Say nothing."""

    def say(self, text: str) -> None:
        """Say a sentence."""
        self.sink.say(text)


def _tell(race: Race, cluster: Cluster, sink: Sink, jupyter: Jupyter) -> None:
    words = (cluster.transport.read(f"{race.directory}/jupyter") or b"").decode().split()
    page = _PAGES.get(words[-1] if words else "", "lab")
    sink.say(f"Jupyter: {jupyter.url(page)}")
    sink.say("Ctrl-C ends it, and frees the GPUs")


def _forward(forwarding: Forwarding, sink: Sink) -> None:
    try:
        forwarding.run()
    except RvError as error:
        sink.say(f"{error.message}; rv forward {forwarding.race.race_id} tries again")
