"""The command line, and the one place that turns a failure into a message and an exit code."""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, NoReturn

import typer

from rv import __version__
from rv.cli.common import show_help_without_command
from rv.errors import EXIT_DONE, EXIT_INTERRUPTED, ErrorKind, RvError
from rv.ui import console

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "up": ("rv.cli.up", "Race for GPUs, then run a command in them or open a shell."),
    "run": ("rv.cli.run", "Race for GPUs, run a command in the first that start, stream it."),
    "ps": ("rv.cli.ps", "List races, and put in order what a client left."),
    "logs": ("rv.cli.logs", "Show the output of a race."),
    "stop": ("rv.cli.stop", "Cancel races whole."),
    "status": ("rv.cli.status", "Show free GPUs and who waits for them."),
    "cost": ("rv.cli.cost", "Compare GPU models: what a request would cost on each."),
    "explain": ("rv.cli.explain", "Tell why a race still waits, and what would start now."),
    "snapshot": ("rv.cli.snapshot", "Print the cluster as JSON, to plan with elsewhere."),
    "accept": ("rv.cli.accept", "Acceptance: test GPUs and nodes, judge and keep the results."),
    "sandbox": ("rv.cli.sandbox", "A real Slurm cluster on this machine."),
}
"""Each command's module, which has a `register(app)`, and its line in `rv --help`."""


def build(arguments: Sequence[str]) -> typer.Typer:
    """Build the command line for these arguments; only the command they name is imported.

    Completion asks for any command, so it gets them all.
    """
    app = typer.Typer(
        name="rv",
        help="Get GPUs on a busy Slurm cluster sooner: race every way to serve a request.",
        invoke_without_command=True,
        rich_markup_mode=None,  # importing rich for --help would double its time
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    named = next((word for word in arguments if not word.startswith("-")), "")
    for name, (module, summary) in COMMANDS.items():
        if name == named or "_RV_COMPLETE" in os.environ:
            importlib.import_module(module).register(app)
        else:
            app.command(name, help=summary)(_not_named)
    return app


def _not_named() -> None:
    """Stand for a command in `rv --help`; the one that is called is always imported."""


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback form
    if wanted:
        console.answer(f"rv {__version__}")
        raise typer.Exit


def _root(
    *,
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback has done it all
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Get GPUs on a busy Slurm cluster sooner: race every way to serve a request."""
    show_help_without_command(context)


def main(arguments: list[str]) -> NoReturn:
    """Run the command line and exit."""
    sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    try:
        code = build(arguments)(arguments, prog_name="rv", standalone_mode=False)
    except RvError as failure:
        return _fail(failure, arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except typer.Abort:
        return EXIT_INTERRUPTED
    except typer.Exit as end:
        return end.exit_code
    except Exception as failure:  # noqa: BLE001 - a traceback is no answer for a user
        return _fail(_translate(failure, arguments), arguments)
    return code if isinstance(code, int) else EXIT_DONE


def _fail(failure: RvError, arguments: list[str]) -> int:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    (console.error_json if "--json" in own else console.error)(failure)
    return failure.exit_code


def _translate(failure: Exception, arguments: Sequence[str]) -> RvError:
    """Usage errors are typer's own exceptions; anything else is a fault of rv's."""
    show = getattr(failure, "format_message", None)
    if show is not None:
        named = next((word for word in arguments if word in COMMANDS), "COMMAND")
        return RvError(ErrorKind.USAGE, str(show()), hint=f"rv {named} --help")
    import traceback

    if os.environ.get("RV_DEBUG"):
        traceback.print_exception(failure)
    where = traceback.extract_tb(failure.__traceback__)[-1]
    what = f"{type(failure).__name__}: {failure} (in {where.name}, line {where.lineno})"
    return RvError(
        ErrorKind.INTERNAL, what, hint="RV_DEBUG=1 shows where; nothing was lost: see rv ps"
    )
