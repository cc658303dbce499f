"""`rv attach` and `rv exec`: a shell or a command beside a race's, or on the login node."""

import os
import shlex
import sys
from typing import Annotated, Any

import typer

from rv.cli.caller import current_caller, now_s
from rv.cli.help import HelpCommand
from rv.cli.parameters import ClusterOption
from rv.cli.typer_commands import command_app
from rv.errors import EXIT_GAVE_UP, ErrorKind, RvError
from rv.models.quantities import parse_duration
from rv.transport import ScriptResult, require_answer
from rv.ui import console
from rv.workflow.attach import (
    COMMAND_S,
    Place,
    attach_lasting,
    find_place,
    has_tmux,
    run_beside,
)  # fmt: skip
from rv.workflow.attach import (
    attach as attach_to,
)
from rv.workflow.cluster import Cluster, Early
from rv.workflow.races import find_races

app = command_app()


class AttachCommand(HelpCommand):
    """Takes what follows `--` for a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the command apart, and parse the rest as usual."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["rv.command"] = args[at + 1 :]
        parsed: list[str] = super().parse_args(ctx, args[:at])
        return parsed


@app.command(cls=AttachCommand)
def attach(
    *,
    context: typer.Context,
    race: Annotated[
        str | None, typer.Argument(metavar="RACE", help="Race or name; the latest.")
    ] = None,
    node: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="On this node, from 0.")
    ] = None,
    cluster: ClusterOption = "",
) -> None:
    """Open a shell beside the command of a race; `-- CMD` runs that there instead.

    It shares the race's GPUs, and ends with the race at the latest.
    """
    words: list[str] = context.meta["rv.command"]
    target = current_caller(cluster, early=Early.RACES).cluster
    (record,) = find_races([race] if race else [], target)
    place = find_place(record, node, target, now_s())
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if words and not has_terminal:
        raise typer.Exit(_show(run_beside(place, words, target), COMMAND_S, target))
    if not has_terminal:
        raise RvError(
            ErrorKind.USAGE,
            "a shell needs a terminal",
            hint=f"give a command: rv attach {record.race_id} -- nvidia-smi",
        )
    raise typer.Exit(_open(place, words, target))


def _open(place: Place, words: list[str], cluster: Cluster) -> int:
    """Say where this is, and hand the terminal over; a shell lasts where tmux is there."""
    if words:
        return attach_to(place, words, cluster)
    ends = "exit frees the GPUs" if place.race.is_shell else "exit leaves the race running"
    console.notice(f"{place.banner}; {ends}" if not place.race.is_shell else place.banner)
    if cluster.login is None or os.environ.get("TMUX"):
        return attach_to(place, (), cluster)
    if has_tmux(cluster):
        console.notice("the same command comes back to this shell after a lost connection")
        return attach_lasting(place, cluster)
    console.notice("there is no tmux on the login node: a lost connection ends this shell")
    return attach_to(place, (), cluster)


@app.command("exec")
def execute(
    *,
    words: Annotated[list[str], typer.Argument(metavar="-- CMD", help="What to run there.")],
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="End it after so long.")
    ] = "2m",
    cluster: ClusterOption = "",
) -> None:
    """Run a command on the login node, as a login shell there finds it."""
    limit_s = parse_duration(timeout).total_seconds()
    target = current_caller(cluster).cluster
    line = words[0] if len(words) == 1 else shlex.join(words)
    if sys.stdin.isatty() and sys.stdout.isatty():
        raise typer.Exit(target.transport.interactive(["/bin/bash", "-c", line]))
    raise typer.Exit(_show(target.transport.run(line, timeout_s=limit_s), limit_s, target))


def _show(done: ScriptResult, limit_s: float, cluster: Cluster) -> int:
    """Pass outputs on, and return the exit code. Raises `RvError` where nothing is known."""
    if cluster.login is not None:
        require_answer(done)
    out, err = done.raw
    console.raw(out, is_error=False)
    console.raw(err, is_error=True)
    if done.timed_out:
        console.notice(f"it was ended after {limit_s:.0f} s: --timeout gives it more")
        return EXIT_GAVE_UP
    return done.returncode
