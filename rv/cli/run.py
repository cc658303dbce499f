"""`rv run CMD…`: race, run the command, stream it."""

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from rv.cli import caller, launching
from rv.cli.arguments import split_arguments
from rv.cli.defaults import with_request_options
from rv.cli.options import RequestOptions


class RunCommand(TyperCommand):
    """Reads rv's options before the command, or after a command of one word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put rv's options first and the command behind `--`, then parse as usual."""
        takes_value = dict.fromkeys(ctx.help_option_names, False)
        for parameter in self.params:
            if parameter.param_type_name == "option":
                is_flag = getattr(parameter, "is_flag", False)
                takes_value |= dict.fromkeys(
                    (*parameter.opts, *parameter.secondary_opts), not is_flag
                )
        split = split_arguments(args, takes_value)
        ctx.meta["rv.is_argv"] = split.is_argv
        parsed: list[str] = super().parse_args(ctx, [*split.options, "--", *split.words])
        return parsed


@with_request_options
def run(
    *,
    options: RequestOptions,
    context: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(metavar="CMD", help="What to run.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return at once.")] = False,
) -> None:
    """Race for GPUs, run a command in the first that start, and stream its output.

    CMD is a program with its arguments, a quoted shell line, or a bundled payload such as check.py.
    """
    given = tuple(words or ())
    as_argv = context.meta["rv.is_argv"] or not given
    command = caller.read_words(given) if as_argv else caller.read_line(given[0])
    if dry_run:
        launching.dry_run(options, command)
    else:
        launching.launch(options, command, detach=detach, stops_unclaimed=False)


def register(app: typer.Typer) -> None:
    """Add `run`."""
    app.command("run", cls=RunCommand)(run)
