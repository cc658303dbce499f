"""`rv ps`: races that were launched."""

from collections.abc import Iterable
from typing import Annotated, Final

from rv.cli.caller import current_caller, now_s
from rv.cli.parameters import ClusterOption, CommandApp, JsonOption
from rv.models.option import Option
from rv.models.race import RaceStatus
from rv.ui import console
from rv.ui.race_views import races_document
from rv.ui.races_table import race_lines, races_text, watched_races
from rv.workflow.cluster import Cluster, Early
from rv.workflow.races import (
    list_races,
)

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
        from rv.cli.watching import answers_once

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
    from rv.cli.watching import looks, watch_notice  # one look needs none of this
    from rv.ui.watched import Watched
    from rv.workflow.watch_races import RacesWatch

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
