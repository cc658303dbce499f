"""`rv logs`: the output of a race, now or as it comes."""

from typing import Annotated

import typer

from rv.cli import caller
from rv.cli.common import ClusterOption, JsonOption
from rv.errors import EXIT_INTERRUPTED
from rv.ui import console


def logs(
    *,
    race: Annotated[
        str | None, typer.Argument(metavar="RACE", help="Race or name; the latest.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
    err: Annotated[bool, typer.Option("--err", help="Only its errors.")] = False,
    node: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only this node, from 0.")
    ] = None,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show a race's output."""
    from rv.race.output import OutputReader
    from rv.workflow.races import find_races

    here = caller.current_caller(cluster)
    (found,) = find_races([race] if race else [], here.cluster)
    if follow:
        raise typer.Exit(_follow(here, found, node, json=json))
    reader = OutputReader(found, here.cluster.transport, node)
    rows = []
    while chunks := reader.read():
        for chunk in chunks:
            if err and not chunk.is_error:
                continue
            if json:
                text = chunk.data.decode("utf-8", errors="replace")
                stream = "err" if chunk.is_error else "out"
                rows.append({"node": chunk.node, "stream": stream, "text": text})
            else:
                console.raw(chunk.data, is_error=chunk.is_error and not err)
    if json:
        console.emit_json({"race": found.race_id, "output": rows})


def _follow(here: caller.Caller, race: "Race", node: int | None, *, json: bool) -> int:
    from rv.race.watch import Watch
    from rv.ui.follow import Follower
    from rv.ui.races import race_document
    from rv.workflow.outcome import exit_code

    sink = Follower(json_only=json)
    try:
        status = Watch(race=race, queue=here.cluster.queue, sink=sink, node=node).run()
    except KeyboardInterrupt:
        console.say(f"race {race.race_id} goes on")
        return EXIT_INTERRUPTED
    sink.finish(status)
    if json:
        console.emit_json(race_document(status))
    return exit_code(status, here.cluster.transport)


def register(app: typer.Typer) -> None:
    """Add `logs`."""
    app.command("logs")(logs)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from rv.models.race import Race
