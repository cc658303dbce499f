"""`rv accept drain`: take a node that failed out of use, for those who may."""

from typing import Annotated

import typer

from rv.cli import caller
from rv.cli.parameters import ClusterOption, JsonOption
from rv.errors import ErrorKind, RvError
from rv.ui import console


def drain_node(
    node: Annotated[str, typer.Argument(metavar="NODE", help="One node that failed.")],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the line for scontrol, and run nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Drain a node in Slurm, with its newest failing result as the reason."""
    from rv.accept.failures import newest_failure
    from rv.slurm.probe import take_snapshot
    from rv.workflow.drain import drain, drain_line, node_to_drain

    here = caller.current_caller(cluster)
    # Not from the answers that commands share for some seconds: who drained it just now counts.
    nodes = take_snapshot(here.cluster.transport, patience=here.cluster.patience).nodes
    found = node_to_drain(node, nodes)
    failure = newest_failure(found.name, here.cluster.key, here.now_s)
    line = drain_line(found.name, failure.reason)
    for note in failure.notes:
        console.notice(f"note: {note}")
    is_drained = "DRAIN" in found.states
    if is_drained:
        console.notice(f"{found.name} is drained already: {found.reason or 'no reason is given'}")
    if not dry_run and not is_drained:
        console.say(line)
        _require_consent(found.name, here.cluster.label, is_given=yes)
        drain(line, here.cluster.transport)
        is_drained = True
        console.notice(f"{found.name} is drained: what runs there goes on, and nothing else starts")
    if json:
        console.emit_json(
            {"node": found.name, "run": failure.run, "reason": failure.reason, "command": line,
             "drained": is_drained}
        )  # fmt: skip
    elif dry_run:
        console.answer(line)


def _require_consent(node: str, cluster: str, *, is_given: bool) -> None:
    """Ask whether to go on. Raises `RvError(USAGE)` where nobody is there, `Abort` for no."""
    if is_given:
        return
    if not console.can_ask():
        message = f"nobody is here to say whether {node} is to be drained"
        raise RvError(ErrorKind.USAGE, message, hint="--yes says so; --dry-run shows the line")
    if not console.confirm(f"Drain {node} of {cluster}?"):
        raise typer.Exit(1)


def register(accept: typer.Typer) -> None:
    """Add this command to `rv accept`."""
    accept.command("drain")(drain_node)
