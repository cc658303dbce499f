"""`rv up`: race for GPUs, then run a command in them or open a shell."""

import sys
from typing import Annotated, Final

from rv.cli.defaults import with_request_options
from rv.cli.dry_run import show_plan
from rv.cli.parameters import CommandApp
from rv.errors import ErrorKind, RvError
from rv.models.option import Option
from rv.models.request import Command
from rv.workflow.options import RequestOptions

_TOKEN_BYTES: Final = 24

app = CommandApp()


@app.command()
@with_request_options
def up(
    *,
    options: RequestOptions,
    run: Annotated[str | None, Option("--run", "-r", metavar="CMD", help="Command to run.")] = None,
    jupyter: Annotated[
        bool, Option("--jupyter", help="Run Jupyter there, for a browser here.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show the plan only.")] = False,
    detach: Annotated[bool, Option("--detach", "-d", help="Return at once.")] = False,
) -> None:
    """Race every way to get GPUs; run a command in the first that starts, or open a shell."""
    command = None
    if run is not None:
        from rv.cli.run import read_line  # the reader of commands: most dry runs have none

        command = read_line(run)
    if jupyter:
        _check_jupyter(options, run, detach=detach)
        from rv.workflow.jupyter import jupyter_command

        command = jupyter_command()
    if dry_run:
        show_plan(options, command)
        return
    if command is None:
        _check_shell(options, detach=detach)
    if jupyter:
        _launch_jupyter(options, command)
        return
    from rv.cli import launching  # a dry run starts faster without it

    launching.launch(options, command, detach=detach, stops_unclaimed=True)


def _launch_jupyter(options: RequestOptions, command: Command | None) -> None:
    """Race, with a port of this machine that will lead to Jupyter, and a token for it."""
    import secrets

    from rv.cli import launching
    from rv.transport.tunnel import listen
    from rv.workflow.jupyter import PORT, TARGET, Jupyter

    listener = listen(PORT, TARGET, auto=True)
    try:
        jupyter = Jupyter(token=secrets.token_urlsafe(_TOKEN_BYTES), listener=listener)
        launching.launch(options, command, detach=False, stops_unclaimed=True, jupyter=jupyter)
    finally:
        listener.sock.close()


def _check_jupyter(options: RequestOptions, run: str | None, *, detach: bool) -> None:
    """Refuse what makes no sense with Jupyter. Raises `RvError(USAGE)`."""
    if run is not None or options.checkpoint:
        other = "--checkpoint" if run is None else "--run"
        raise RvError(
            ErrorKind.USAGE, f"--jupyter and {other} exclude each other", hint="leave one out"
        )
    if detach:
        raise RvError(
            ErrorKind.USAGE,
            "--jupyter lasts as long as its client",
            hint="leave out --detach; rv run -d jupyter … and rv forward do it by hand",
        )


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
