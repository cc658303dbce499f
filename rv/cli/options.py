"""What the commands of rv are made with, and the options that they share beside a launch's."""

from typing import Annotated, Any

import typer

from rv.cli.app import show_help_without_command
from rv.cli.help import HelpCommand, HelpGroup, show_all

ClusterOption = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="WHERE",
        help="A name of rv config, local, sandbox[:NAME], or USER@HOST.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
HelpAllOption = Annotated[
    bool,
    typer.Option("--help-all", callback=show_all, is_eager=True, help="Show all options and exit."),
]


class CommandApp(typer.Typer):
    """An application whose commands have rv's help."""

    def command(self, name: str | None = None, **settings: Any) -> Any:
        """Add a command, as `typer.Typer.command` does."""
        return super().command(name, **{"cls": HelpCommand, **settings})


def command_app(**settings: Any) -> typer.Typer:
    """Return an application for the commands of one module, which `rv.cli.app` finds as `app`."""
    return CommandApp(cls=HelpGroup, add_completion=False, rich_markup_mode=None, **settings)


def group_app(summary: str) -> typer.Typer:
    """Return an application for a command that has commands of its own."""
    return command_app(
        help=summary, invoke_without_command=True, callback=show_help_without_command
    )
