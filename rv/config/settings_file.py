"""Read one configuration file; each value knows its file and line."""

from collections.abc import Mapping
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, create_model

from rv.config.clusters_file import (
    ClusterEntry,
    ClusterName,
    ClustersFile,
    ProjectCluster,
    ProjectFile,
)
from rv.config.config_files import Source
from rv.config.documents import Document, read_document
from rv.config.schema import (
    Number,
    Schema,
    Switch,
    Text,
    Whole,
    Words,
    must_be,
    one_of,
    problem,
    validate,
)
from rv.models.performance import Performance
from rv.models.site import Alias, Ceiling, Config, Price, Setting, Site, overlaid
from rv.planner.catalogue import normal

_LARGEST: Final = 10**15


def read_settings(
    path: Path, options: Mapping[str, type], source: Source, cluster: str = ""
) -> Config:
    """Read a configuration file, with what it sets for a cluster of that name.

    Raises `RvError(CONFIG)` with file, line and the nearest key.
    """
    return settings_of(read_document(path), options, source, cluster)


def settings_of(
    document: Document, options: Mapping[str, type], source: Source, cluster: str = ""
) -> Config:
    """Read the settings of a file that was parsed; the errors are those of `read_settings`."""
    defaults = _defaults(options)
    if source is Source.PROJECT:
        project = validate(document, _project_schema(defaults))
        return Config(defaults=_settings(document, project, cluster))
    file = validate(document, _schema(defaults))
    return Config(
        defaults=_settings(document, file, cluster),
        site=Site(
            prices=_prices(document, file),
            unit=file.prices.unit,
            skipped=dict.fromkeys(file.skip_partitions, document.origin(("skip_partitions",))),
            max_fanout=_ceiling(document, file),
            aliases=_aliases(document, file, by_site=source is Source.SITE),
            performance=_performance(document, file),
        ),
    )


def _settings(document: Document, file: "_File | ProjectFile", cluster: str) -> dict[str, Setting]:
    """Return what the file sets for all clusters, and over it what it sets for this one."""
    general = _section(document, file.defaults, ("defaults",))
    entry = file.clusters.get(cluster)
    own = _section(document, entry.defaults, ("clusters", cluster, "defaults")) if entry else {}
    return overlaid(general, own)


def _section(document: Document, values: Schema, path: tuple[str, ...]) -> dict[str, Setting]:
    return {
        name: Setting(value=getattr(values, name), origin=document.origin((*path, name)))
        for name in type(values).model_fields
        if name in values.model_fields_set
    }


def _as_text(value: Any) -> str:
    """Write the text, number or date of an option; "" for nothing."""
    small = isinstance(value, int) and abs(value) <= _LARGEST
    if isinstance(value, bool) or not (small or isinstance(value, str | float | date | None)):
        raise ValueError(value)
    return "" if value is None else str(value)


def _joined(value: Any) -> Any:
    """Join a list of words by commas, as a command line has it."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return ",".join(value)
    return value


def _assigned(pairs: Mapping[str, str]) -> list[str]:
    """Write a mapping, such as sbatch options, as the words that repeat on a command line."""
    return [f"{key}={value}" for key, value in pairs.items()]


_Value = Annotated[str, BeforeValidator(_as_text), must_be("text or a number")]
_Line = Annotated[
    str,
    BeforeValidator(_joined),
    # YAML reads an unquoted 2:59:00 as the number 10740.
    must_be("text", hint="put it in quotes"),
]


def _pairs(values: Any) -> list[str]:
    """Write variables as the words of --env: one without a value is taken from the caller.

    A message quotes no value: it may be a secret.
    """
    if not isinstance(values, dict):
        raise problem("env must be a mapping of names", hint="write NAME: value below it")
    return [_pair(name, value) for name, value in values.items()]


def _pair(name: Any, value: Any) -> str:
    try:
        return str(name) if value is None else f"{name}={_as_text(value)}"
    except ValueError:
        hint = "put it in quotes"
        raise problem("its value must be text or a number", hint=hint, key=str(name)) from None


def _lines(value: Any) -> tuple[str, ...]:
    """Read shell lines: a list of them, or one text."""
    lines = [value] if isinstance(value, str) else value
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise ValueError(value)
    return tuple(line for line in lines if line.strip())


_BY_NAME: Final[Mapping[str, Any]] = {
    "env": Annotated[list[str], BeforeValidator(_pairs)],
    "setup": Annotated[tuple[str, ...], BeforeValidator(_lines), must_be("a list of shell lines")],
    "container_mounts": Annotated[
        tuple[str, ...], BeforeValidator(_lines), must_be("a list of mounts")
    ],
}
"""Options whose values in a file have a form of their own."""

_TYPES: Final[Mapping[type, Any]] = {
    list: Annotated[dict[str, _Value], AfterValidator(_assigned)],
    bool: Switch,
    int: Whole,
    float: Number,
    str: _Line,
}


class _Prices(Schema):
    unit: Text = ""
    per_gpu_hour: dict[str, Number] = {}


class _File(ClustersFile):
    defaults: Schema = Field(default_factory=Schema)
    max_fanout: Annotated[int, Field(ge=0), must_be("a whole number")] | None = None
    prices: _Prices = Field(default_factory=_Prices)
    aliases: dict[str, Words] = {}
    skip_partitions: Words = []
    reference_gpu: Text = ""


def _defaults(options: Mapping[str, type]) -> Any:
    """Make the schema of `defaults`, from these options of the command line."""
    types = {name: _annotation(name, kind) for name, kind in options.items()}
    fields: dict[str, Any] = {name: (annotation, None) for name, annotation in types.items()}
    return create_model("_Defaults", __base__=Schema, **fields)


def _schema(defaults: Any) -> type[_File]:
    """Make the schema of a file of the site or the user."""
    field = (defaults, Field(default_factory=defaults))
    entry: Any = create_model("_Cluster", __base__=ClusterEntry, defaults=field)
    clusters: Any = (dict[ClusterName, entry], {})
    return create_model("_Settings", __base__=_File, defaults=field, clusters=clusters)


def _project_schema(defaults: Any) -> type[ProjectFile]:
    """Make the schema of a project's file."""
    field = (defaults, Field(default_factory=defaults))
    entry: Any = create_model("_ProjectCluster", __base__=ProjectCluster, defaults=field)
    clusters: Any = (dict[ClusterName, entry], {})
    return create_model("_Project", __base__=ProjectFile, defaults=field, clusters=clusters)


def _annotation(name: str, kind: type) -> Any:
    if name in _BY_NAME:
        return _BY_NAME[name]
    if kind not in _TYPES and issubclass(kind, StrEnum):
        return Annotated[kind, one_of(kind, name)]
    return _TYPES.get(kind, _Line)


def _prices(document: Document, file: _File) -> dict[str, Price]:
    return {
        name: Price(per_gpu_hour=price, origin=document.origin(("prices", "per_gpu_hour", name)))
        for name, price in file.prices.per_gpu_hour.items()
    }


def _ceiling(document: Document, file: _File) -> Ceiling | None:
    path = ("max_fanout",)
    if file.max_fanout is None:
        return None
    if not file.max_fanout:
        document.fail(path, "max_fanout must be 1 or more")
    return Ceiling(jobs=file.max_fanout, origin=document.origin(path))


def _performance(document: Document, file: _File) -> Performance:
    """Return which GPU work is counted in, where the file says."""
    if not file.reference_gpu:
        return Performance()
    origin = document.origin(("reference_gpu",))
    return Performance(reference=file.reference_gpu, reference_origin=origin)


def _aliases(document: Document, file: _File, *, by_site: bool) -> tuple[Alias, ...]:
    return tuple(
        Alias(
            word=normal(word),
            models=tuple(models),
            origin=document.origin(("aliases", word)),
            by_site=by_site,
        )
        for word, models in file.aliases.items()
    )
