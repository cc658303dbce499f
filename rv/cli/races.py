"""`rv ps`, `rv logs` and `rv stop`: look after races, whoever started them from where."""

from typing import Annotated

import typer

from rv.cli import session
from rv.errors import EXIT_INTERRUPTED, EXIT_RV_FAILED, Kind, RvError
from rv.ui import console

_SHOWN_S = 86400.0

ClusterOption = Annotated[str, typer.Option(help="local, or sandbox[:NAME].")]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


def ps(
    *,
    show_all: Annotated[bool, typer.Option("--all", "-a", help="Older races too.")] = False,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """List races: what waits, what runs, and how it ended; put in order what a client left."""
    from rv.ui.documents import races_document
    from rv.ui.tables import races_text
    from rv.workflow.history import list_races

    here = session.open_session(cluster)
    races = list_races(here.target, here.now)
    recent = [
        status
        for status in races
        if show_all or not status.state.is_over or here.now - status.race.submitted_at < _SHOWN_S
    ]
    if json:
        console.emit_json(races_document(recent))
    else:
        console.say(f"on {here.target.label}")
        console.answer(races_text(recent, here.now))


def logs(
    *,
    race: Annotated[str | None, typer.Argument(help="Race or name; the latest.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
    err: Annotated[bool, typer.Option("--err", help="Only its errors.")] = False,
    node: Annotated[int | None, typer.Option(min=0, help="Only this node, from 0.")] = None,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show a race's output."""
    from rv.race.output import OutputReader
    from rv.workflow.history import find_races

    here = session.open_session(cluster)
    (found,) = find_races([race] if race else [], here.target)
    if follow:
        raise typer.Exit(_follow(here, found, node, json=json))
    chunks = [
        chunk
        for chunk in OutputReader(found, here.target.transport, node).read()
        if chunk.is_error or not err
    ]
    if json:
        texts = [(c.node, c.is_error, c.data.decode("utf-8", "replace")) for c in chunks]
        rows = [{"node": n, "stream": "err" if e else "out", "text": t} for n, e, t in texts]
        console.emit_json({"race": found.race_id, "output": rows})
        return
    for chunk in chunks:
        console.raw(chunk.data, is_error=chunk.is_error and not err)


def _follow(here: session.Session, race: "Race", node: int | None, *, json: bool) -> int:
    from rv.race.watch import Watch
    from rv.ui.documents import race_document
    from rv.ui.follow import Follower
    from rv.workflow.outcome import exit_code

    sink = Follower(json_only=json)
    try:
        status = Watch(race=race, queue=here.target.queue, sink=sink, node=node).run()
    except KeyboardInterrupt:
        console.say(f"race {race.race_id} goes on")
        return EXIT_INTERRUPTED
    sink.finish(status)
    if json:
        console.emit_json(race_document(status))
    return exit_code(status, here.target.transport)


def stop(
    *,
    races: Annotated[list[str] | None, typer.Argument(help="Races or names; the latest.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every race that is not over.")] = False,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Cancel races whole: every job of theirs, those never heard of again too."""
    from rv.workflow.history import find_races, open_races, stop_race

    if everything and races:
        raise RvError(Kind.USAGE, "--all and names exclude each other", hint="give one of them")
    here = session.open_session(cluster)
    chosen = open_races(here.target) if everything else find_races(races or [], here.target)
    rows = []
    for race in chosen:
        stopped = stop_race(race, here.target)
        rows.append(
            {
                "race": race.race_id,
                "cancelled": list(stopped.cancelled),
                "unconfirmed": stopped.unconfirmed,
            }
        )
        ids = ", ".join(map(str, stopped.cancelled)) or "none was left"
        console.say(f"race {race.race_id}: cancelled jobs: {ids}")
        if stopped.unconfirmed:
            console.say(f"race {race.race_id}: not confirmed: {stopped.unconfirmed}; see rv ps")
    if json:
        console.emit_json({"stopped": rows})
    if any(row["unconfirmed"] for row in rows):
        raise typer.Exit(EXIT_RV_FAILED)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from rv.models.race import Race
