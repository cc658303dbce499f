"""`rv completion`: the script by which a shell completes rv's command line."""

from enum import StrEnum
from typing import Annotated

import typer

from rv import bundle
from rv.cli.typer_commands import command_app
from rv.ui import console

app = command_app()


class Shell(StrEnum):
    """The shells that rv has a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command()
def completion(
    *,
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the script by which a shell completes rv's commands, options and their values.

    Races, partitions, GPU models, accounts and nodes are those that this machine knows of: no
    cluster is asked for them.
    """
    from rv.cli.completion_table import command_table

    console.answer(bundle.completion_script(shell).rstrip("\n"))
    command_table()  # so that the first Tab finds it made
