"""Every command of rv with all of its options, loaded: for manual pages and completion."""

from collections.abc import Iterator
from typing import Any

import typer

from rv.cli.app import COMMANDS
from rv.cli.typer_commands import build, load

Entry = tuple[str, Any, typer.Context]


def walk() -> Iterator[Entry]:
    """Give each command by its words after `rv`, "" being `rv` itself, with a context for it."""
    root: Any = typer.main.get_command(build())
    context = typer.Context(root, info_name="rv", **root.context_settings)
    yield "", root, context
    for name in COMMANDS:
        yield from _below(name, load(name), context)


def _below(
    words: str, command: Any, parent: typer.Context
) -> Iterator[tuple[str, Any, typer.Context]]:
    context = typer.Context(command, info_name=words.rpartition(" ")[2], parent=parent)
    yield words, command, context
    for name, each in getattr(command, "commands", {}).items():
        yield from _below(f"{words} {name}", each, context)
