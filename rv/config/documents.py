"""Read a YAML file that somebody wrote, and name file and line of what is wrong in it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from typing import Any, Final, NoReturn

import yaml

from rv.errors import ErrorKind, RvError

SAFE_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST: Final = 5_000
_INDENTED: Final = re.compile(rf"^[ \t?:-]{{{_DEEPEST}}}", re.MULTILINE)
_UNREADABLE: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    yaml.YAMLError,
)
"""What PyYAML raises for words that do not fit their type, too: a 13th month, an empty `!!int`."""

Path = tuple[str | int, ...]
"""The keys and positions that lead to a value, from the top of its file."""


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML file: its name for messages, its values, and where each of them stands."""

    name: str
    data: Any
    node: yaml.Node | None
    kind: ErrorKind = ErrorKind.CONFIG

    def fail(self, path: Path, message: str, *, hint: str = "") -> NoReturn:
        """Raise an `RvError` that names the file and the line of the key at `path`."""
        raise RvError(self.kind, f"{self.origin(path)}: {message}", hint=hint)

    def check_keys(self, path: Path, keys: Iterable[str], known: Iterable[str]) -> None:
        """Raise for the first of the keys below `path` that is not known."""
        names = tuple(known)
        for key in keys:
            if key not in names:
                from rv.models.spelling import suggestion

                hint = suggestion(key, names, f"keys: {', '.join(names)}")
                self.fail((*path, key), f"unknown key {key!r}", hint=hint)

    def origin(self, path: Path) -> str:
        """Name the file and the line of the key at `path`: `gpus.yaml:12`."""
        return f"{self.name}:{self._line(path)}"

    def _line(self, path: Path) -> int:
        line, node = 1, self.node
        for key in path:
            step = _step(node, key)
            if step is None:
                break
            line, node = step
        return line


def _step(node: yaml.Node | None, key: str | int) -> tuple[int, yaml.Node] | None:
    """Return the line of a key, or of an item, and the node of its value; None where not there."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == key:
                return name.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int):
        item = node.value[key]
        return item.start_mark.line + 1, item
    return None


def read_document(file: Traversable) -> Document:
    """Read a YAML file. Raises `RvError(CONFIG)` with file and line."""
    name = str(file)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RvError(ErrorKind.CONFIG, f"{name}: cannot be read: {error}") from error
    return parse_document(text, name)


def parse_document(
    text: str, name: str, kind: ErrorKind = ErrorKind.CONFIG, loader: Any = SAFE_LOADER
) -> Document:
    """Parse YAML. Raises `RvError` of `kind` with `name` and the line."""
    try:
        _check_depth(text)
        node, data = _load(text, loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        prefix = "" if isinstance(error, yaml.constructor.ConstructorError) else "not YAML: "
        raise RvError(kind, f"{name}:{line}: {prefix}{error.problem}") from error
    except _UNREADABLE as error:
        raise RvError(kind, f"{name}: cannot be read: {error}") from error
    return Document(name=name, data=data, node=node, kind=kind)


def _load(text: str, loader_class: Any) -> tuple[yaml.Node | None, Any]:
    """Parse once for both the values and their lines."""
    loader = loader_class(text)
    try:
        node = loader.get_single_node()
        return node, None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _check_depth(text: str) -> None:
    """Raise `ValueError` for what is nested so deeply that libyaml would end the process."""
    if text.count("[") + text.count("{") > _DEEPEST or _INDENTED.search(text):
        raise ValueError(f"it may be nested more than {_DEEPEST} deep")
