"""`rv gpu`: the GPUs of a race, how busy they are and what runs on them."""

from typing import Annotated, Final

import typer

from rv.cli.caller import Caller, current_caller, now_s
from rv.cli.parameters import ClusterOption, JsonOption
from rv.cli.typer_commands import command_app
from rv.cli.watching import answers_once, looks
from rv.models.race import Race
from rv.ui import console
from rv.ui.gpu_views import race_gpus_document, race_gpus_text
from rv.ui.watched import Watched
from rv.workflow.cluster import Early
from rv.workflow.gpus import look_at_gpus
from rv.workflow.races import find_races

_WATCH_S: Final = 5.0
"""Each look is a job step, which costs the controller something."""

app = command_app()


@app.command()
def gpu(
    *,
    race: Annotated[
        str | None, typer.Argument(metavar="RACE", help="Race or name; the latest.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again every 5 s.")] = False,
    node: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only this node, from 0.")
    ] = None,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show how a race uses its GPUs: now while it runs, on average once it is over."""
    if watch and json:
        raise answers_once("--json")
    caller = current_caller(cluster, early=Early.RACES)
    (record,) = find_races([race] if race else [], caller.cluster)
    if watch:
        _watch(record, caller, node)
        return
    looked = look_at_gpus(record, caller.cluster, node, now_s())
    if json:
        console.emit_json(race_gpus_document(looked))
    else:
        console.answer(*race_gpus_text(looked))


def _watch(race: Race, caller: Caller, node: int | None) -> None:
    """Look again and again, until the race is over: the last look is at what was measured."""
    watched = Watched()
    for looked in looks(lambda: look_at_gpus(race, caller.cluster, node, now_s()), _WATCH_S):
        watched.show(*race_gpus_text(looked))
        if looked.status.state.is_over:
            return
