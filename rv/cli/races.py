"""`rv ps` and `rv stop`: races that were launched."""

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

from rv.cli.caller import current_caller, now_s
from rv.cli.parameters import Argument, ClusterOption, CommandApp, JsonOption, Option
from rv.cli.watching import answers_once, looks, watch_notice
from rv.errors import EXIT_INTERRUPTED, EXIT_RV_FAILED, ErrorKind, RvError
from rv.models.race import Race, RaceStatus
from rv.ui import console
from rv.ui.race_views import races_document, stopped_document, stopped_lines
from rv.ui.races_table import race_lines, races_text, watched_races
from rv.ui.watched import Watched
from rv.workflow.cluster import Cluster, Early
from rv.workflow.races import (
    list_races,
    open_races,
    stop_races,
    stoppable_races,
)
from rv.workflow.watch_races import RacesWatch

_RECENT_S: Final = 86400.0

app = CommandApp()


@app.command()
def ps(
    *,
    show_all: Annotated[bool, Option("--all", "-a", help="Older races too.")] = False,
    watch: Annotated[
        bool, Option("--watch", "-w", help="Show them as they change, until Ctrl-C.")
    ] = False,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """List races: what waits, what runs, and how it ended; recover what a killed client left."""
    if watch and json:
        raise answers_once("--json")
    caller = current_caller(cluster, early=Early.RACES_AND_QUEUE)
    since_s = 0.0 if show_all else caller.now_s - _RECENT_S
    if watch:
        _watch(caller.cluster, since_s)
        return
    races = _since(since_s, list_races(caller.cluster, caller.now_s))
    if json:
        console.emit_json(races_document(races))
    else:
        console.say(f"on {caller.cluster.label}")
        console.answer(*races_text(races, caller.now_s, console.answer_width()))


def _since(since_s: float, races: Iterable[RaceStatus]) -> list[RaceStatus]:
    """Leave out the races that are over and were launched before a moment."""
    return [
        status for status in races if not status.state.is_over or status.race.submitted_at > since_s
    ]


def _watch(cluster: Cluster, since_s: float) -> None:
    """Show the races as they change."""
    watched, watch = Watched(), RacesWatch(cluster=cluster)
    if not watched.is_drawn:
        console.say(f"on {cluster.label}")
    for seen in looks(watch.look, 1.0):
        races = _since(since_s, seen)
        if not watched.is_drawn:
            watched.say_changes(race_lines(races))
            continue
        notice = watch_notice(cluster.label, watch.silent_since_s)
        size = watched.size
        watched.show(*watched_races(races, now_s(), size.columns, size.lines, notice))


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
