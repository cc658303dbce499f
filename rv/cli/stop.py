"""`rv stop`: cancel races."""

import sys
from collections.abc import Sequence
from typing import Annotated

from rv.cli.caller import current_caller, now_s
from rv.cli.parameters import Argument, ClusterOption, CommandApp, JsonOption
from rv.errors import EXIT_INTERRUPTED, EXIT_RV_FAILED, ErrorKind, RvError
from rv.models.option import Option
from rv.models.race import Race
from rv.ui import console
from rv.ui.race_views import stopped_document, stopped_lines
from rv.workflow.cluster import Early
from rv.workflow.races import open_races, stop_races, stoppable_races

app = CommandApp()


def _ask_to_stop(races: Sequence[Race]) -> None:
    """Name several races and ask; raise `RvError(USAGE)` where there is nobody to answer."""
    names = ", ".join(f"{race.race_id} {race.name}".strip() for race in races)
    question = f"these are {len(races)} races: {names}"
    if not console.can_ask():
        hint = f"rv stop {races[0].race_id} stops one, --all stops all of them"
        raise RvError(ErrorKind.USAGE, question, hint=hint)
    console.say(question)
    if not console.confirm("Stop all of them?"):
        sys.exit(EXIT_INTERRUPTED)


@app.command()
def stop(
    *,
    races: Annotated[
        list[str] | None, Argument(metavar="RACE", help="Races or names; the only one.")
    ] = None,
    everything: Annotated[
        bool, Option("--all", help="Every race that is not over, or all of these names.")
    ] = False,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Cancel races whole: every job of theirs, those never heard of again too.

    Where a name, or none, could mean several races, they are named, and nothing is stopped unasked.
    """
    here = current_caller(cluster, early=Early.RACES).cluster
    if everything and not races:
        chosen = open_races(here)
    else:
        chosen, is_question = stoppable_races(races or [], here, now_s())
        if is_question and not everything:
            _ask_to_stop(chosen)
    results = stop_races(chosen, here)
    for line in stopped_lines(results):
        console.say(line)
    if json:
        console.emit_json(stopped_document(results))
    if any(result.unconfirmed for result in results):
        sys.exit(EXIT_RV_FAILED)
