"""`rv stop`: cancel races whole."""

from typing import Annotated

import typer

from rv.cli import caller
from rv.cli.common import ClusterOption, JsonOption
from rv.errors import EXIT_RV_FAILED, ErrorKind, RvError
from rv.ui import console


def stop(
    *,
    races: Annotated[
        list[str] | None, typer.Argument(metavar="RACE", help="Races or names; the latest.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every race that is not over.")] = False,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Cancel races whole: every job of theirs, those never heard of again too."""
    from rv.workflow.races import find_races, open_races, stop_races

    if everything and races:
        raise RvError(
            ErrorKind.USAGE, "--all and names exclude each other", hint="give one of them"
        )
    here = caller.current_caller(cluster)
    chosen = open_races(here.cluster) if everything else find_races(races or [], here.cluster)
    rows = []
    for stopped in stop_races(chosen, here.cluster):
        race = stopped.race
        rows.append(
            {
                "race": race.race_id,
                "cancelled": list(stopped.cancelled),
                "unconfirmed": stopped.unconfirmed,
            }
        )
        ids = ", ".join(map(str, stopped.cancelled))
        what = f"cancelled jobs: {ids}" if ids else "no job of it was left"
        console.say(f"race {race.race_id}: {what}")
        if stopped.unconfirmed:
            console.say(f"race {race.race_id}: not confirmed: {stopped.unconfirmed}; see rv ps")
    if json:
        console.emit_json({"stopped": rows})
    if any(row["unconfirmed"] for row in rows):
        raise typer.Exit(EXIT_RV_FAILED)


def register(app: typer.Typer) -> None:
    """Add `stop`."""
    app.command("stop")(stop)
