"""The defaults of options that the configuration files set, under what was typed."""

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from rv import bundle
from rv.config.config_files import find_config_files
from rv.config.settings import chosen_cluster, load_clusters, load_config
from rv.errors import ErrorKind, RvError
from rv.models.site import ONE_OF, Config, Setting, override
from rv.workflow.options import RequestOptions
from rv.workflow.read_options import build_request

_NO_DEFAULTS: Final = frozenset(
    {
        "checkpoint", "cluster", "config", "json", "mig", "min_time", "multi_node", "name",
        "no_avoid", "objective", "send", "single_node", "snapshot", "switch", "typed", "work",
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
