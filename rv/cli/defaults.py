"""The options that commands share, with the files' defaults under what was typed."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from types import UnionType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from rv import bundle
from rv.cli.options import RequestOptions
from rv.cli.parameters import Line
from rv.cli.request import build_request
from rv.config.config_files import find_config_files
from rv.config.settings import chosen_cluster, load_clusters, load_config
from rv.errors import ErrorKind, RvError
from rv.models.site import ONE_OF, Config, Setting, override

_NO_DEFAULTS: Final = frozenset(
    {
        "checkpoint", "cluster", "config", "json", "mig", "min_time", "multi_node", "name",
        "no_avoid", "objective", "send", "single_node", "snapshot", "typed", "work",
    }
)  # fmt: skip
"""What is said for one launch, not for all."""

_INSTEAD: Final[Mapping[str, frozenset[str]]] = {
    "type": frozenset({"mig"}),
    "vram": frozenset({"type"}),
    **{name: frozenset(ONE_OF) for name in ONE_OF},
}
"""Options that, typed, speak in place of another's default."""

_OF_GPUS: Final = frozenset({"type", "vram"})
"""What a typed --gpu 0 makes pointless."""


def with_request_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the shared options: its `options` parameter becomes one for each of them.

    Those that were not typed have their defaults from the configuration files.
    """
    own = dict(inspect.signature(command).parameters)
    del own["options"]
    wants_line = own.pop("line", None) is not None
    shared = _shared_parameters()

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


def read_config(cluster: str = "") -> Config:
    """Read the files, with what they set for the cluster. Raises `RvError(CONFIG)` for slips."""
    files = find_config_files(os.environ, bundle.user_config_dir())
    chosen = chosen_cluster(cluster, os.environ, load_clusters(files))
    config = load_config(files, option_kinds(), chosen)
    check_defaults(config)
    return config


def check_defaults(config: Config) -> None:
    """Refuse a default that its option would refuse. Raises `RvError(CONFIG)`."""
    for name, setting in config.defaults.items():
        try:
            build_request(replace(RequestOptions(), **{name: setting.value}), None)
        except RvError as error:
            text = f"{setting.origin}: {error.message}"
            raise RvError(ErrorKind.CONFIG, text, hint=error.hint) from error


def with_defaults(options: RequestOptions, typed: set[str], config: Config) -> RequestOptions:
    """Lay what was typed over the files' defaults."""
    no_gpu = _OF_GPUS if "gpu" in typed and not options.gpu else frozenset[str]()
    used = {
        name: setting
        for name, setting in config.defaults.items()
        if isinstance(setting.value, list)
        or not (typed & {name, *_INSTEAD.get(name, ())} or name in no_gpu)
    }
    # Of defaults that were laid over the options before, for another cluster, none stays.
    values: dict[str, Any] = dict.fromkeys(set(ONE_OF) - typed, "")
    values |= {
        name: _value(name, setting, getattr(options, name)) for name, setting in used.items()
    }
    return replace(options, config=replace(config, defaults=used), typed=frozenset(typed), **values)


def _value(name: str, setting: Setting, typed: Any) -> Any:
    """The file's value; of an option that may be repeated, both its words and those typed."""
    if not isinstance(setting.value, list):
        return setting.value
    if name == "env":  # between the two stands what `rv env` keeps
        return typed
    if name == "notify":  # several targets may have the same events
        mine = {word.partition("=")[0] for word in typed or ()}
        kept = [word for word in setting.value if word.partition("=")[0] not in mine]
        return [*kept, *(typed or ())]
    return override(setting.value, typed or ())


def option_kinds() -> dict[str, type]:
    """The options that a file may set, with the types of their values."""
    hints = get_type_hints(RequestOptions)
    names = (field.name for field in fields(RequestOptions) if field.name not in _NO_DEFAULTS)
    return {name: _kind(hints[name]) for name in names}


def _kind(hint: Any) -> type:
    """The type behind an annotation: `list` of `list[str] | None`."""
    only = get_args(hint)[0] if get_origin(hint) is UnionType else hint
    kind: type = get_origin(only) or only
    return kind
