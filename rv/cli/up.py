"""`rv up`: race for GPUs, then run a command in them or open a shell."""

import sys
from typing import Annotated

import typer

from rv.cli import caller, launching
from rv.cli.defaults import with_request_options
from rv.cli.options import RequestOptions
from rv.errors import ErrorKind, RvError


@with_request_options
def up(
    *,
    options: RequestOptions,
    run: Annotated[
        str | None, typer.Option("--run", "-r", metavar="CMD", help="Command to run.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return at once.")] = False,
) -> None:
    """Race every way to get GPUs; run a command in the first that starts, or open a shell."""
    command = None if run is None else caller.read_line(run)
    if dry_run:
        launching.dry_run(options, command)
        return
    if command is None and options.checkpoint:
        raise RvError(
            ErrorKind.USAGE, "a shell cannot resume", hint='give --checkpoint a command: --run "…"'
        )
    if command is None and (
        detach or options.json or not (sys.stdin.isatty() and sys.stdout.isatty())
    ):
        raise RvError(
            ErrorKind.USAGE,
            "a shell needs a terminal",
            hint='give a command: rv up --run "python train.py"; or --dry-run',
        )
    launching.launch(options, command, detach=detach, stops_unclaimed=True)


def register(app: typer.Typer) -> None:
    """Add `up`."""
    app.command("up")(up)
