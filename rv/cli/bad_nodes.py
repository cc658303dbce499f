"""`rv accept avoid` and `repaired`: the nodes that failed, and those that were mended since."""

from typing import Annotated

import typer

from rv.cli import caller
from rv.cli.parameters import ClusterOption, JsonOption
from rv.cli.read_nodes import node_names
from rv.ui import console


def avoid(
    *,
    forget: Annotated[
        str, typer.Option("--forget", metavar="NODES", help="Send jobs to these nodes again.")
    ] = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show the nodes that plans leave out because they failed, as a text for the admins."""
    from rv import avoided_nodes
    from rv.accept.bad_nodes import admin_text
    from rv.ui.acceptance import avoided_document

    here = caller.current_caller(cluster)
    key = here.cluster.key
    avoided_nodes.require_readable(key)
    if forget:
        names = node_names(forget)
        strangers = sorted(set(names) - set(avoided_nodes.reasons(key, here.now_s)))
        avoided_nodes.forget(key, names, here.now_s)
        if strangers:
            console.notice(f"not avoided before: {', '.join(strangers)}")
    entries = avoided_nodes.load(key, here.now_s)
    if broken := avoided_nodes.broken_copy(key):
        console.notice(f"{broken} could not be read when it was replaced: mend it, or remove it")
    if json:
        console.emit_json(avoided_document(entries))
    else:
        console.answer(admin_text(entries, here.cluster.label))


def repaired(
    nodes: Annotated[str, typer.Argument(metavar="NODES", help="What was repaired: a1,b[2-4].")],
    *,
    anew: Annotated[
        bool, typer.Option("--anew", help="Their speed is another now: forget the usual one too.")
    ] = False,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Say that nodes were repaired: what was judged bad there no longer counts."""
    from rv import avoided_nodes
    from rv.accept.history import history

    here = caller.current_caller(cluster)
    names = node_names(nodes)
    avoided_nodes.require_readable(here.cluster.key)
    values = history().repaired(here.cluster.key, names, anew=anew)
    was_avoided = sorted(set(names) & set(avoided_nodes.reasons(here.cluster.key, here.now_s)))
    avoided_nodes.forget(here.cluster.key, names, here.now_s)
    if json:
        console.emit_json({"nodes": list(names), "values": values, "avoided": was_avoided})
        return
    if not (values or was_avoided):
        console.notice(f"nothing bad was known of {', '.join(names)}: are these their names?")
    again = f"; no longer avoided: {', '.join(was_avoided)}" if was_avoided else ""
    console.answer(f"{values} values of {', '.join(names)} no longer count{again}")


def register(app: typer.Typer) -> None:
    """Add the commands to the group of `accept`."""
    app.command("avoid")(avoid)
    app.command("repaired")(repaired)
