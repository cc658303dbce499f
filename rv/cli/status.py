"""`rv status`: free GPUs and queues at a glance."""

from typing import Annotated

import typer

from rv.cli import caller
from rv.cli.common import ClusterOption, JsonOption
from rv.ui import console


def status(
    *,
    cluster: ClusterOption = "",
    snapshot: Annotated[
        str, typer.Option(metavar="FILE", help="Look at a saved cluster (rv snapshot).")
    ] = "",
    json: JsonOption = False,
) -> None:
    """Show free and total GPUs of each model, who waits for them, and your limits."""
    from rv.ui.plans import overview_document, overview_text
    from rv.workflow.overview import look

    target = caller.planning_target(cluster, snapshot)
    console.say(f"on {target.label}")
    pools = look(target)
    if json:
        console.emit_json(overview_document(pools))
    else:
        console.answer(*overview_text(pools))


def register(app: typer.Typer) -> None:
    """Add `status`."""
    app.command("status")(status)
