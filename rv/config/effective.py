"""Each value of the configuration with where it comes from, for `rv config`."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rv.config.config_files import ConfigFiles
from rv.config.documents import Document, Path, read_document
from rv.dataclass import dataclass

DEFAULT: Final = "default"
HIDDEN: Final = "***"
ENVIRONMENT: Final[Mapping[str, str]] = {"RV_CLUSTER": "cluster", "RV_RACE_ROOT": "race_root"}
"""Variables that say what a file could, and the key for which they do."""

_VARIABLE: Final = re.compile(r"(?:^|\.)defaults\.env(?:\.|$)")
"""The variables of jobs: any may hold a password, such as that in a URL."""

_SECRET: Final = re.compile(
    r"(?<![a-z])(pass|passwd|password|secrets?|tokens?|credentials?|key|apikey|auth)(?![a-z])",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Effective:
    """A value by its dotted key, and its source: a file with its line, a variable, or rv itself."""

    key: str
    value: Any
    source: str


def effective_values(
    files: ConfigFiles, defaults: Mapping[str, Any], environ: Mapping[str, str]
) -> list[Effective]:
    """Return every value that counts, those of `defaults` too; secret ones are hidden.

    Raises `RvError(CONFIG)` for a file that cannot be read.
    """
    settings = {
        f"defaults.{name}": Effective(key=f"defaults.{name}", value=value, source=DEFAULT)
        for name, value in defaults.items()
    }
    for source, path in files.existing():
        document = read_document(path)
        for each in _leaves(document, document.data, ()):
            _add(settings, each, f"{source} {document.origin(each)}", _at(document.data, each))
    for variable, key in ENVIRONMENT.items():
        if value := environ.get(variable):
            settings[key] = Effective(key=key, value=value, source=f"environment {variable}")
    return [
        Effective(key=each.key, value=shown(each.key, each.value), source=each.source)
        for each in sorted(settings.values(), key=lambda each: (each.source == DEFAULT, each.key))
    ]


def shown(key: str, value: Any) -> Any:
    """Return a value as it may be seen: what a secret's name promises is hidden."""
    if any(is_secret(part) for part in key.split(".")):
        return HIDDEN
    if _VARIABLE.search(key) and value is not None:
        return HIDDEN
    if isinstance(value, Mapping):
        return {name: shown(str(name), inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shown_word(word) for word in value]
    return value


def is_secret(name: str) -> bool:
    """Whether the name of a variable or a key says that its value is nobody else's business."""
    return bool(_SECRET.search(name.replace("-", "_").replace("_", " ")))


def _shown_word(word: Any) -> Any:
    name, equals, _ = str(word).partition("=")
    return f"{name}={HIDDEN}" if equals and is_secret(name) else word


def _leaves(document: Document, data: Any, path: Path) -> Iterator[Path]:
    """Name the values below a path; an empty mapping says nothing."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _leaves(document, value, (*path, key))
    elif path:
        yield path


def _at(data: Any, path: Iterable[str | int]) -> Any:
    for key in path:
        data = data[key]
    return data


def _add(settings: dict[str, Effective], path: Path, source: str, value: Any) -> None:
    """Lay a value over the one before: of ceilings the lowest counts, lists of partitions join."""
    key = ".".join(map(str, path))
    before = settings.get(key)
    if before and key == "max_fanout" and before.value <= value:
        return
    if before and key == "skip_partitions":
        value = list(dict.fromkeys([*before.value, *value]))
        source = f"{before.source}, {source}"
    below = f"{key}."
    for other in [
        name for name in settings if name.startswith(below) or key.startswith(f"{name}.")
    ]:
        del settings[other]
    settings[key] = Effective(key=key, value=value, source=source)
