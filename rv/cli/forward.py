"""`rv forward`: ports of a race's node on this machine, until Ctrl-C or the race's end."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from rv.cli.caller import current_caller, now_s
from rv.cli.parameters import ClusterOption, JsonOption
from rv.cli.typer_commands import command_app
from rv.errors import ErrorKind, RvError
from rv.models.race import Race, RaceStatus
from rv.models.tunnel import Port, TunnelRecord
from rv.transport.background import Background, go_to_background
from rv.transport.tunnel import LOOPBACK, Listener
from rv.ui import console
from rv.ui.forward_views import tunnels_document, tunnels_table
from rv.workflow.attach import find_place
from rv.workflow.cluster import Early
from rv.workflow.forward import Forwarding, close_all, is_port, listen_on, parse_port
from rv.workflow.races import find_races
from rv.workflow.tunnels import OwnRecord, list_tunnels, stop_tunnels

app = command_app()


@app.command()
def forward(
    *,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RACE] PORT[:LOCAL]…", help="Race or name (the latest); ports."),
    ] = None,
    auto: Annotated[
        bool, typer.Option("--auto", help="Where the port here is taken, use a free one.")
    ] = False,
    node: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Of this node, from 0.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Go on in the background.")
    ] = False,
    shows_list: Annotated[
        bool, typer.Option("--list", "-l", help="List tunnels in the background.")
    ] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="End those to a RACE, from a port here, or all.")
    ] = False,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Let ports of this machine, on 127.0.0.1 alone, lead to ports of a race's node.

    It ends with the race, or with Ctrl-C.
    """
    typed = list(words or ())
    if shows_list and not stop:
        _show_list(json=json)
    elif stop:
        stopped = stop_tunnels(typed)
        console.say(f"stopped {len(stopped)} tunnel{'' if len(stopped) == 1 else 's'}")
    else:
        status = _forward(typed, node, cluster, auto=auto, detach=detach)
        console.notice(f"race {status.race.race_id} is over: {status.state}")


def _show_list(*, json: bool) -> None:
    tunnels = list_tunnels()
    if json:
        console.emit_json(tunnels_document(tunnels))
    else:
        console.answer(tunnels_table(tunnels) if tunnels else "no tunnels in the background")


def _forward(
    words: list[str], node: int | None, cluster: str, *, auto: bool, detach: bool
) -> RaceStatus:
    """Listen, connect, and carry until the race is over."""
    race_word = [] if not words or is_port(words[0]) else [words.pop(0)]
    ports = [parse_port(word) for word in words]
    if not ports:
        raise RvError(ErrorKind.USAGE, "which port?", hint="rv forward 8888, or RACE 8888:LOCAL")
    background = go_to_background() if detach else None
    if isinstance(background, int):  # here, the other process goes on
        raise typer.Exit(background)
    target = current_caller(cluster, early=Early.RACES).cluster
    (race,) = find_races(race_word, target)
    find_place(race, node, target, now_s())
    listeners = listen_on(ports, auto=auto)
    try:
        shown = _Shown(race=race, listeners=listeners, cluster=target.label, background=background)
        forwarding = Forwarding(
            race=race, node=node, listeners=listeners, cluster=target, events=shown
        )
        with shown.kept():
            return forwarding.run()
    finally:
        close_all(listeners)


@dataclass(kw_only=True)
class _Shown:
    """Says where the ports lead; in the background it keeps a record of that instead."""

    race: Race
    listeners: Sequence[Listener]
    cluster: str
    background: Background | None
    _record: OwnRecord | None = None
    _node: str = ""

    def is_there(self, node: str) -> None:
        """Say so, and let who typed the command go on."""
        again = " again" if node == self._node else ""
        for port in self._ports:
            console.notice(f"{LOOPBACK}:{port.local} leads to {node}:{port.remote}{again}")
        if self._record:
            self._record.write(self._as_record(node))
        if self.background and not self._node:
            self.background.is_ready()
        self._node = node

    def is_lost(self, text: str) -> None:
        """Say so."""
        console.notice(text)

    def say(self, text: str) -> None:
        """Say a sentence."""
        console.notice(text)

    @property
    def _ports(self) -> tuple[Port, ...]:
        return tuple(Port(remote=int(each.target), local=each.port) for each in self.listeners)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep a record while this goes on in the background; what it failed with stays in it."""
        if self.background is None:
            yield
            return
        self.background.leave_terminal()
        self._record = OwnRecord()
        try:
            yield
        except RvError as error:
            if self._node:
                failed = self._as_record(self._node)
                self._record.write(replace(failed, why=error.message))
            raise
        self._record.remove()

    def _as_record(self, node: str) -> TunnelRecord:
        return TunnelRecord(
            race=self.race.race_id,
            name=self.race.name,
            cluster=self.cluster,
            node=node,
            ports=self._ports,
            pid=os.getpid(),
        )
