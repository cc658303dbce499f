"""The defaults of the configuration files, below what was typed."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import typer

from rv import bundle
from rv.cli.options import RequestOptions, build_request
from rv.config.settings import SITE_FILE, load_config, override
from rv.errors import ErrorKind, RvError
from rv.models.site import Config, Setting

_NO_DEFAULTS: Final = frozenset(
    {
        "checkpoint", "cluster", "config", "json", "mig", "min_time", "multi_node", "name",
        "no_avoid", "single_node", "snapshot",
    }
)  # fmt: skip
"""What is said for one launch, not for all."""

_INSTEAD: Final[Mapping[str, frozenset[str]]] = {
    "type": frozenset({"mig"}),
    "vram": frozenset({"type"}),
}
"""Options that, typed, speak in place of another's default."""


_OF_GPUS: Final = frozenset({"type", "vram"})
"""What a typed --gpu 0 makes pointless."""


def with_request_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the shared options: its `options` parameter becomes one for each of them.

    Those that were not typed have their defaults from the configuration files.
    """
    signature = inspect.signature(command)
    hints = get_type_hints(command, include_extras=True)
    shared = {
        name: hint
        for name, hint in get_type_hints(RequestOptions, include_extras=True).items()
        if get_origin(hint) is Annotated
    }
    own = [p for name, p in signature.parameters.items() if name != "options"]
    wants_context = "context" in signature.parameters

    def wrapped(*, context: typer.Context, **values: Any) -> None:
        options = RequestOptions(**{name: values.pop(name) for name in shared})
        typed = {name for name in shared if _is_typed(context, name)}
        if wants_context:
            values["context"] = context
        command(options=with_defaults(options, typed, read_config()), **values)

    added = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default,
            annotation=shared[field.name],
        )
        for field in fields(RequestOptions) if field.name in shared
    ]  # fmt: skip
    asked = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    keyword = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[p.name])
        for p in own
        if p.name != "context"
    ]
    parameters = [asked, *keyword, *added]
    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    wrapped.__doc__ = command.__doc__
    wrapped.__name__ = command.__name__
    return wrapped


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def read_config() -> Config:
    """Read the site's and the user's files. Raises `RvError(CONFIG)` for what is wrong in them."""
    site_file = os.environ.get("RV_SITE_CONFIG")
    config = load_config(
        Path(site_file) if site_file else SITE_FILE, bundle.user_config_dir(), _kinds()
    )
    for name, setting in config.defaults.items():
        try:
            build_request(replace(RequestOptions(), **{name: setting.value}), None)
        except RvError as error:
            text = f"{setting.origin}: {error.message}"
            raise RvError(ErrorKind.CONFIG, text, hint=error.hint) from error
    return config


def with_defaults(options: RequestOptions, typed: set[str], config: Config) -> RequestOptions:
    """Lay what was typed over the files' defaults."""
    no_gpu = _OF_GPUS if "gpu" in typed and not options.gpu else frozenset[str]()
    used = {
        name: setting
        for name, setting in config.defaults.items()
        if isinstance(setting.value, list)
        or not (typed & {name, *_INSTEAD.get(name, ())} or name in no_gpu)
    }
    values = {name: _value(setting, getattr(options, name)) for name, setting in used.items()}
    return replace(options, config=replace(config, defaults=used), **values)


def _value(setting: Setting, typed: Any) -> Any:
    """The file's value; of an option that may be repeated, both its words and those typed."""
    if not isinstance(setting.value, list):
        return setting.value
    return override(setting.value, typed or ())


def _kinds() -> dict[str, type]:
    """The options that a file may set, with the types of their values."""
    hints = get_type_hints(RequestOptions)
    names = (field.name for field in fields(RequestOptions) if field.name not in _NO_DEFAULTS)
    return {name: _kind(hints[name]) for name in names}


def _kind(hint: Any) -> type:
    """The type behind an annotation: `list` of `list[str] | None`."""
    only = get_args(hint)[0] if get_origin(hint) is UnionType else hint
    kind: type = get_origin(only) or only
    return kind
