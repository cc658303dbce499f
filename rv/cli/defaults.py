"""The options that commands share, with the files' defaults under what was typed."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Annotated, Any, get_origin, get_type_hints

from rv.cli.parameters import Line
from rv.workflow.option_defaults import read_config, with_defaults
from rv.workflow.options import RequestOptions


def with_request_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the shared options: its `options` parameter becomes one for each of them.

    Those that were not typed have their defaults from the configuration files.
    """
    return _with_options(command, _shared_parameters())


def with_request_options_but(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the shared options without some that it has no use for, by field."""
    shared = _shared_parameters()
    for name in names:
        del shared[name]
    return lambda command: _with_options(command, shared)


def _with_options(
    command: Callable[..., None], shared: Mapping[str, inspect.Parameter]
) -> Callable[..., None]:
    own = dict(inspect.signature(command).parameters)
    del own["options"]
    wants_line = own.pop("line", None) is not None

    def wrapped(*, line: Line, **values: Any) -> None:
        options = RequestOptions(**{name: values.pop(name) for name in shared})
        typed = set(line.typed & shared.keys())
        if wants_line:
            values["line"] = line
        command(options=with_defaults(options, typed, read_config(options.cluster)), **values)

    line = inspect.Parameter("line", inspect.Parameter.KEYWORD_ONLY, annotation=Line)
    parameters = [line, *own.values(), *shared.values()]
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
            annotation=hints[field.name],
        )
        for field in fields(RequestOptions)
        if get_origin(hints[field.name]) is Annotated
    }
