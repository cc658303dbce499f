"""The commands as typer's: for their help, for slips, and for lines that are not plain."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.main import get_command

from rv import __version__
from rv.cli.app import COMMANDS, command_module
from rv.cli.help import HelpCommand, HelpGroup, show_all
from rv.cli.parameters import Argument, CommandApp, Line, Split
from rv.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_USAGE
from rv.models.option import Option
from rv.ui import console

HelpAllOption = Annotated[
    bool,
    typer.Option("--help-all", callback=show_all, is_eager=True, help="Show all options and exit."),
]
_IS_ARGV = "rv.is_argv"


def run(arguments: list[str]) -> int:
    """Run a command line, and return its exit code unless it exits itself."""
    try:
        code = build()(arguments, prog_name="rv", standalone_mode=False)
    except typer.Abort:
        return EXIT_INTERRUPTED
    except typer.Exit as end:
        return end.exit_code
    return code if isinstance(code, int) else EXIT_DONE


class LazyGroup(HelpGroup):
    """Loads the module of a command when that command is used: by a call, its help, completion."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command as usual, and put the real one in the place of its stand-in."""
        name, stand_in, rest = super().resolve_command(ctx, args)
        return name, load(name) if name else stand_in, rest


def load(name: str) -> Any:
    """Return a command of typer's, with its options."""
    app = command_module(name).app
    command = get_command(typer_app(app) if isinstance(app, CommandApp) else app)
    return getattr(command, "commands", {}).get(name, command)


def build() -> typer.Typer:
    """Build the command line with a stand-in for each command, which has its line of the help."""
    app = typer.Typer(
        name="rv",
        cls=LazyGroup,
        add_completion=False,  # rv.cli.complete is faster, and knows races and partitions
        help="Get GPUs on a busy Slurm cluster sooner: race every way to serve a request.",
        invoke_without_command=True,
        rich_markup_mode=None,  # importing rich for --help would double its time
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, (_, summary) in COMMANDS.items():
        app.command(name, help=summary)(_stand_in)
    return app


def _stand_in() -> None:
    """Stand for a command until `LazyGroup` has loaded it."""


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


def show_help_without_command(context: typer.Context) -> None:
    """Answer a command that only groups others with its help; a command is what is missing."""
    if context.invoked_subcommand is None:
        console.say(context.get_help())
        raise typer.Exit(EXIT_USAGE)


class TyperApp(typer.Typer):
    """An application whose commands have rv's help, and may declare parameters as rv does."""

    def command(self, name: str | None = None, **settings: Any) -> Any:
        """Add a command, as `typer.Typer.command` does."""
        add = super().command(name, **{"cls": HelpCommand, **settings})

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            add(typer_function(function))
            return function

        return declare


def command_app(**settings: Any) -> typer.Typer:
    """Return an application for the commands of one module, which `rv.cli.app` finds as `app`."""
    return TyperApp(cls=HelpGroup, add_completion=False, rich_markup_mode=None, **settings)


def group_app(summary: str) -> typer.Typer:
    """Return an application for a command that has commands of its own."""
    return command_app(
        help=summary, invoke_without_command=True, callback=show_help_without_command
    )


def typer_app(app: CommandApp) -> typer.Typer:
    """Make typer's application of commands that rv declares."""
    made = command_app()
    for name, declared in app.commands.items():
        made_by = program_command(declared.split) if declared.split else HelpCommand
        made.command(name, cls=made_by)(declared.function)
    return made


def program_command(split: Split) -> type[HelpCommand]:
    """Return the class of a command that reads rv's options before a program's words, or after."""

    class ProgramCommand(HelpCommand):
        """Reads rv's options before the command, or after a command of one word."""

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """Put rv's options first and the command behind `--`, then parse as usual."""
            parts = split(args, _takes_value(self, ctx))
            ctx.meta[_IS_ARGV] = parts.is_argv
            parsed: list[str] = super().parse_args(ctx, [*parts.options, "--", *parts.words])
            return parsed

    return ProgramCommand


def _takes_value(command: HelpCommand, context: Any) -> dict[str, bool]:
    """Tell of each spelling of an option whether a value follows."""
    takes_value = dict.fromkeys(context.help_option_names, False)
    for parameter in command.params:
        if parameter.param_type_name == "option":
            spellings = (*parameter.opts, *parameter.secondary_opts)
            takes_value |= dict.fromkeys(spellings, not getattr(parameter, "is_flag", False))
    return takes_value


def typer_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command's function with its parameters declared as typer wants them.

    One that asks about the line also has `--help-all`: it has more options than help shows.
    """
    parameters, line = [], ""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.annotation is Line:
            line = parameter.name
        else:
            parameters.append(parameter.replace(annotation=_for_typer(parameter.annotation)))
    if line:
        parameters = [_keyword("context", typer.Context), *parameters]
        parameters.append(_keyword("help_all", HelpAllOption, default=False))

    @wraps(function)
    def called(**values: Any) -> Any:
        if line:
            context = values.pop("context")
            values.pop("help_all")
            values[line] = _line(context, values)
        return function(**values)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    del called.__wrapped__  # typer would look through it
    return called


def _keyword(name: str, annotation: Any, **settings: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, **settings)


def _for_typer(annotation: Any) -> Any:
    """Return an annotation with typer's declarations in the place of rv's."""
    if get_origin(annotation) is not Annotated:
        return annotation
    hint, declared, *_ = get_args(annotation)
    if isinstance(declared, Option):
        return Annotated[hint, typer.Option(*declared.names, **declared.settings)]
    if isinstance(declared, Argument):
        return Annotated[hint, typer.Argument(**declared.settings)]
    return annotation


def _line(context: typer.Context, values: Mapping[str, Any]) -> Line:
    typed = frozenset(name for name in values if _is_typed(context, name))
    return Line(typed=typed, is_argv=context.meta.get(_IS_ARGV, False))


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
