"""Read the YAML that people write, and name file, line and nearest key where it is wrong."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from importlib.resources.abc import Traversable
from typing import Any, Final, NoReturn

from rv.errors import ErrorKind, RvError

_SIMILARITY: Final = 0.4
_DEEPEST: Final = 5_000
_MOST: Final = 10**15
_LONGEST: Final = 80
_INDENTED: Final = re.compile(rf"^[ \t?:-]{{{_DEEPEST}}}", re.MULTILINE)
_UNFIT: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What PyYAML lets out for words that do not fit their kind: a 13th month, an empty `!!int`."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word most like `word`, or "" where none is."""
    names = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), names, n=1, cutoff=_SIMILARITY)
    return names[found[0]] if found else ""


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML file: its name for messages, its text, and the mapping at its top."""

    name: str
    text: str
    data: Mapping[str, Any]

    def fail(self, path: tuple[str, ...], problem: str, *, hint: str = "") -> NoReturn:
        """Raise `RvError(CONFIG)` that names the file and the line of the key at `path`."""
        raise RvError(ErrorKind.CONFIG, f"{self.origin(path)}: {problem}", hint=hint)

    def refuse(self, path: tuple[str, ...], wanted: str, *, hint: str = "") -> NoReturn:
        """Raise for the value at `path`, which is not what is wanted; a long one is cut."""
        value = _shown(self.get(path, None))
        self.fail(path, f"{path[-1]} must be {wanted}, not {value}", hint=hint)

    def origin(self, path: tuple[str, ...]) -> str:
        """Name the file and the line of the key at `path`: `gpus.yaml:12`."""
        return f"{self.name}:{self._line(path)}"

    def check_keys(self, path: tuple[str, ...], known: Iterable[str]) -> None:
        """Raise for the first key below `path` that is not known, naming the nearest that is."""
        names = tuple(known)
        for key in self.mapping(path):
            if key not in names:
                near = nearest(key, names)
                hint = f"did you mean {near}?" if near else f"keys: {', '.join(names)}"
                self.fail((*path, key), f"unknown key {key!r}", hint=hint)

    def mapping(self, path: tuple[str, ...]) -> Mapping[str, Any]:
        """Return the mapping at `path`, empty where there is none."""
        value = self.get(path, {})
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            self.fail(path, f"{path[-1] if path else 'the file'} must be a mapping of names")
        return value

    def text_at(self, path: tuple[str, ...], default: str = "") -> str:
        """Return the string at `path`."""
        value = self.get(path, default)
        if not isinstance(value, str):
            self.refuse(path, "text")
        return value

    def word_at(self, path: tuple[str, ...]) -> str:
        """Return the text, number or date at `path` as text, "" for nothing."""
        value = self.get(path, None)
        small = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST
        if not small and not isinstance(value, str | float | date | None):
            self.refuse(path, "text or a number")
        return "" if value is None else str(value)

    def whole(self, path: tuple[str, ...], default: int = 0) -> int:
        """Return the whole number at `path`; never below zero."""
        value = self.get(path, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
            self.refuse(path, "a whole number")
        return value

    def number(self, path: tuple[str, ...]) -> float:
        """Return the number at `path`, which must be there; never below zero, never infinite."""
        value = self.get(path, None)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _MOST:
            self.refuse(path, "a number")
        return float(value)

    def words(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return the list of strings at `path`."""
        value = self.get(path, [])
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            self.refuse(path, "a list of words")
        return tuple(value)

    def get(self, path: tuple[str, ...], default: object) -> Any:
        """Return whatever stands at `path`, else the default."""
        value: Any = self.data
        for key in path:
            if not isinstance(value, dict) or key not in value:
                return default
            value = value[key]
        return value

    def _line(self, path: tuple[str, ...]) -> int:
        import yaml

        node = _composed(self.text)
        line = 1
        for key in path:
            pairs = node.value if isinstance(node, yaml.MappingNode) else []
            match = [(name, value) for name, value in pairs if name.value == key]
            if not match:
                break
            name, node = match[0]
            line = name.start_mark.line + 1
        return line


def _shown(value: object) -> str:
    """Write a value for a message; by aliases, a short file can hold one without end."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple | set):
        return "a list"
    if isinstance(value, int) and abs(value) > _MOST:
        return "one of that size"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


@lru_cache(maxsize=4)
def _composed(text: str) -> Any:
    """Parse a file's text with its line numbers: once, for every value that tells where it is."""
    import yaml

    return yaml.compose(text, Loader=_loader())


def _loader() -> Any:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_document(file: Traversable) -> Document:
    """Read a YAML file whose top is a mapping. Raises `RvError(CONFIG)` with file and line."""
    import yaml

    name = str(file)
    try:
        text = file.read_text(encoding="utf-8")
        _check_depth(text)
        data = yaml.load(text, Loader=_loader())  # noqa: S506 - one of the two safe loaders
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise RvError(ErrorKind.CONFIG, f"{name}:{line}: {error.problem}") from error
    except (OSError, yaml.YAMLError, *_UNFIT) as error:
        raise RvError(ErrorKind.CONFIG, f"{name}: cannot be read: {error}") from error
    document = Document(name, text, {} if data is None else data)
    document.mapping(())
    return document


def _check_depth(text: str) -> None:
    """Raise `ValueError` for what is nested so deeply that libyaml would end the process."""
    if text.count("[") + text.count("{") > _DEEPEST or _INDENTED.search(text):
        raise ValueError(f"it may be nested more than {_DEEPEST} deep")
