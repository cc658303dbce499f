"""The options that commands share, with the files' defaults under what was typed."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from rv.cli.options import HelpAllOption
from rv.workflow.option_defaults import read_config, with_defaults
from rv.workflow.options import Option, RequestOptions


def with_request_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the shared options: its `options` parameter becomes one for each of them.

    Those that were not typed have their defaults from the configuration files.
    """
    own = dict(inspect.signature(command).parameters)
    del own["options"]
    wants_context = own.pop("context", None) is not None
    shared = _shared_parameters()

    def wrapped(*, context: typer.Context, help_all: bool, **values: Any) -> None:  # noqa: ARG001
        options = RequestOptions(**{name: values.pop(name) for name in shared})
        typed = {name for name in shared if _is_typed(context, name)}
        if wants_context:
            values["context"] = context
        command(options=with_defaults(options, typed, read_config(options.cluster)), **values)

    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    help_all = inspect.Parameter(
        "help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=HelpAllOption
    )
    parameters = [context, *own.values(), *shared.values(), help_all]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {each.name: each.annotation for each in parameters}
    wrapped.__doc__ = command.__doc__
    wrapped.__name__ = command.__name__
    return wrapped


def _shared_parameters() -> dict[str, inspect.Parameter]:
    """Return a parameter for each option of `RequestOptions`, by name."""
    hints = get_type_hints(RequestOptions, include_extras=True)
    return {
        field.name: inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=_for_typer(hints[field.name]),
        )
        for field in fields(RequestOptions)
        if get_origin(hints[field.name]) is Annotated
    }


def _for_typer(hint: Any) -> Any:
    """Return the annotation that typer reads."""
    kind, option = get_args(hint)
    declared: Option = option
    return Annotated[kind, typer.Option(*declared.spellings, **declared.settings)]


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
