"""`rv explain`: why a race still waits."""

from typing import Annotated

import typer

from rv.cli import caller
from rv.cli.common import ClusterOption, JsonOption
from rv.cli.defaults import read_config
from rv.ui import console


def explain(
    *,
    race: Annotated[
        str | None, typer.Argument(metavar="RACE", help="Race or name; the latest.")
    ] = None,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Tell why a race still waits: reasons, places in line, and what would start now."""
    from rv.ui.explanation import explanation_document, explanation_text
    from rv.workflow.explain import explain_race
    from rv.workflow.races import find_races

    here = caller.current_caller(cluster)
    (found,) = find_races([race] if race else [], here.cluster)
    told = explain_race(found, here.cluster, read_config().site, here.now_s)
    if json:
        console.emit_json(explanation_document(told))
    else:
        console.say(f"on {here.cluster.label}")
        console.answer(*explanation_text(told, here.now_s))


def register(app: typer.Typer) -> None:
    """Add `explain`."""
    app.command("explain")(explain)
