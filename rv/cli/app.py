"""The command line, and the one place that turns a failure into a message and an exit code."""

import sys
from typing import Annotated, NoReturn

import typer

from rv import __version__
from rv.cli import races
from rv.cli.run import RunCommand, run
from rv.cli.up import up
from rv.errors import EXIT_DONE, EXIT_INTERRUPTED, Kind, RvError
from rv.ui import console

app = typer.Typer(
    name="rv",
    help="Get GPUs on a busy Slurm cluster sooner: race every way to serve a request.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,  # importing rich for --help would double its time
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up)
app.command("run", cls=RunCommand)(run)
app.command("ps")(races.ps)
app.command("logs")(races.logs)
app.command("stop")(races.stop)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback form
    if wanted:
        console.answer(f"rv {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Get GPUs on a busy Slurm cluster sooner: race every way to serve a request."""


def _add_sandbox() -> None:
    from rv.cli.sandbox import app as sandbox_app

    app.add_typer(sandbox_app, name="sandbox")


_add_sandbox()


def main() -> NoReturn:
    """Run the command line and exit."""
    arguments = sys.argv[1:]
    sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    try:
        code = app(arguments, standalone_mode=False)
    except RvError as failure:
        return _fail(failure, arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except typer.Abort:
        return EXIT_INTERRUPTED
    except typer.Exit as end:
        return end.exit_code
    except Exception as failure:  # noqa: BLE001 - a traceback is no answer for a user
        return _fail(_translate(failure), arguments)
    return code if isinstance(code, int) else EXIT_DONE


def _fail(failure: RvError, arguments: list[str]) -> int:
    (console.error_json if "--json" in arguments else console.error)(failure)
    return failure.exit_code


def _translate(failure: Exception) -> RvError:
    """Usage errors are typer's own exceptions; anything else is a fault of rv's."""
    show = getattr(failure, "format_message", None)
    if show is not None:
        return RvError(Kind.USAGE, str(show()), hint="rv --help, rv COMMAND --help")
    import os
    import traceback

    if os.environ.get("RV_DEBUG"):
        traceback.print_exception(failure)
    where = traceback.extract_tb(failure.__traceback__)[-1]
    what = f"{type(failure).__name__}: {failure} (in {where.name}, line {where.lineno})"
    return RvError(Kind.INTERNAL, what, hint="RV_DEBUG=1 shows where; nothing was lost: see rv ps")


