"""`rv ps`: what waits, what runs, and how it ended."""

from typing import Annotated, Final

import typer

from rv.cli import caller
from rv.cli.common import ClusterOption, JsonOption
from rv.ui import console

_SHOWN_S: Final = 86400.0


def ps(
    *,
    show_all: Annotated[bool, typer.Option("--all", "-a", help="Older races too.")] = False,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """List races: what waits, what runs, and how it ended; put in order what a client left."""
    from rv.ui.races import races_document, races_text
    from rv.workflow.races import list_races

    here = caller.current_caller(cluster)
    races = list_races(here.cluster, here.now_s)
    recent = [
        status
        for status in races
        if show_all or not status.state.is_over or here.now_s - status.race.submitted_at < _SHOWN_S
    ]
    if json:
        console.emit_json(races_document(recent))
    else:
        console.say(f"on {here.cluster.label}")
        console.answer(*races_text(recent, here.now_s))


def register(app: typer.Typer) -> None:
    """Add `ps`."""
    app.command("ps")(ps)
