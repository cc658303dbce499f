"""What several commands share: options, and the answer of a group without a command."""

from typing import Annotated

import typer

from rv.errors import EXIT_USAGE
from rv.ui import console

ClusterOption = Annotated[
    str, typer.Option("--cluster", metavar="WHERE", help="local, or sandbox[:NAME].")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


def show_help_without_command(context: typer.Context) -> None:
    """Answer a command that only groups others with its help; a command is what is missing."""
    if context.invoked_subcommand is None:
        console.say(context.get_help())
        raise typer.Exit(EXIT_USAGE)
