"""The options of `rv up` as keyword arguments, with Python's types."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypedDict

from rv.errors import ErrorKind, RvError
from rv.models.spelling import suggestion
from rv.workflow.option_defaults import read_config, with_defaults
from rv.workflow.options import RequestOptions, gpu_count

Duration = str | timedelta
"""A time: "90m", "2h", "1d12h", "2:59:00", or a timedelta."""

Words = str | Sequence[str]
"""One name, several with commas between them, or a list."""


class Options(TypedDict, total=False):
    """What `rv up --help-all` says of the option of that name.

    `gpus` is its `--gpu`, a number or a range such as "1-8", `types` its `--type`, `objective` its
    `--for`. Memory has its unit: "40G".
    """

    gpus: int | str
    types: Words
    vram: str
    time: Duration
    work: str
    objective: str
    min_time: Duration
    checkpoint: bool
    checkpoint_buffer: Duration
    checkpoint_signal: str
    switch: bool
    mem: str
    cpus: int
    mig: bool
    partition: Words
    account: str
    qos: str
    constraint: str
    exclude: Words
    no_avoid: bool
    preemptible: bool
    power_up: bool
    single_node: bool
    multi_node: bool
    layouts: str
    strict_gpu: bool
    allow_busy_gpus: bool
    name: str
    fanout: str
    max_submissions: int
    widen_after: Duration
    patience: Duration
    max_cost: float
    notify: Mapping[str, str]
    modules: Words
    env: Mapping[str, str | None]
    setup: Sequence[str]
    venv: str
    conda: str
    container: str
    container_mounts: Sequence[str]
    output: Sequence[str]
    send: Sequence[str]
    no_sync: bool
    sbatch: Mapping[str, object]
    cluster: str


NOT_HERE: Final = frozenset({"retry", "wait_timeout", "snapshot", "json", "config", "typed"})
"""Options that a client which stays watches over, or that only a terminal has use for."""

_RENAMED: Final = {"gpus": "gpu", "types": "type"}


def launch_options(given: Mapping[str, Any]) -> RequestOptions:
    """Read keyword arguments, over the defaults of the configuration files.

    Raises `RvError(USAGE)` for a name that is none, and for a value of another type.
    """
    values = {}
    for name, value in given.items():
        if name not in Options.__annotations__:
            hint = suggestion(name, Options.__annotations__, "rv up --help-all lists them")
            raise RvError(ErrorKind.USAGE, f"{name!r} is no option", hint=hint)
        if value is not None:
            values[_RENAMED.get(name, name)] = _as_typed(name, value)
    options = RequestOptions(**values)
    return with_defaults(options, set(values), read_config(options.cluster))


def _as_typed(name: str, value: Any) -> Any:
    """Return a value as it would be after the option's name on the command line."""
    read = _READERS.get(name)
    if read:
        return read(name, value)
    expected = type(_DEFAULTS[_RENAMED.get(name, name)])
    if expected in (bool, int) and type(value) is not expected:
        raise unfit(name, value, expected.__name__)
    if expected is str and not isinstance(value, str):
        raise unfit(name, value, "str")
    return value if expected in (bool, int, str) else expected(value)


def _gpus(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise unfit(name, value, "int, or a range such as '1-8'")
    return gpu_count(value) if isinstance(value, str) else value


def _duration(name: str, value: Any) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.0f}s"
    if not isinstance(value, str):
        raise unfit(name, value, "timedelta, or text such as '2h'")
    return value


def _names(name: str, value: Any) -> str:
    return value if isinstance(value, str) else ",".join(_lines(name, value))


def _lines(name: str, value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise unfit(name, value, "list of str")
    if not all(isinstance(each, str) for each in value):
        raise unfit(name, value, "list of str")
    return list(value)


def _pairs(name: str, value: Any) -> list[str]:
    if not isinstance(value, Mapping):
        raise unfit(name, value, "dict")
    alone = (None, True) if name == "sbatch" else (None,)  # an option without a value
    return [
        key if any(each is one for one in alone) else f"{key}={each}" for key, each in value.items()
    ]


def _cost(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise unfit(name, value, "number")
    return float(value)


def _enumerated(name: str, value: Any) -> Any:
    kind = type(_DEFAULTS[name])
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(repr(str(each)) for each in kind)
        raise unfit(name, value, f"one of {choices}") from None


def unfit(name: str, value: Any, expected: str) -> RvError:
    """Say what a value is, and what it has to be; the values of variables are not shown."""
    shown = type(value).__name__ if name == "env" else repr(value)
    return RvError(ErrorKind.USAGE, f"{name} is {shown}", hint=f"it takes: {expected}")


_READERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    **dict.fromkeys(
        ("time", "min_time", "checkpoint_buffer", "widen_after", "patience"), _duration
    ),
    **dict.fromkeys(("types", "partition", "exclude", "modules"), _names),
    **dict.fromkeys(("setup", "container_mounts", "output", "send"), _lines),
    **dict.fromkeys(("notify", "env", "sbatch"), _pairs),
    **dict.fromkeys(("checkpoint_signal", "layouts", "fanout", "objective"), _enumerated),
    "gpus": _gpus,
    "max_cost": _cost,
}
_DEFAULTS: Final = {
    name: getattr(RequestOptions(), name) for name in RequestOptions.__dataclass_fields__
}
