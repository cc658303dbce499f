"""`rv up`: race for GPUs, then run a command in them or open a shell."""

import sys
from typing import Annotated

import typer

from rv.cli.options import RequestOptions, command_app
from rv.cli.request import show_plan, with_request_options
from rv.errors import ErrorKind, RvError

app = command_app()


@app.command()
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
    command = None
    if run is not None:
        from rv.cli.run import read_line  # the reader of commands: most dry runs have none

        command = read_line(run)
    if dry_run:
        show_plan(options, command)
        return
    if command is None:
        _check_shell(options, detach=detach)
    from rv.cli import launching  # a dry run starts faster without it

    launching.launch(options, command, detach=detach, stops_unclaimed=True)


def _check_shell(options: RequestOptions, *, detach: bool) -> None:
    """Refuse a shell that could not be used. Raises `RvError(USAGE)`."""
    if options.checkpoint:
        raise RvError(
            ErrorKind.USAGE, "a shell cannot resume", hint='give --checkpoint a command: --run "…"'
        )
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if detach or options.json or not has_terminal:
        raise RvError(
            ErrorKind.USAGE,
            "a shell needs a terminal",
            hint='give a command: rv up --run "python train.py"; or --dry-run',
        )
