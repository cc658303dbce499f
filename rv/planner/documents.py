"""Read the YAML that people write, and name file, line and nearest key where it is wrong."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources.abc import Traversable
from math import inf
from typing import Any, Final, NoReturn

from rv.errors import Kind, RvError

_SIMILARITY: Final = 0.4


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
        raise RvError(Kind.CONFIG, f"{self.origin(path)}: {problem}", hint=hint)

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
            self.fail(path, f"{path[-1]} must be text, not {value!r}")
        return value

    def whole(self, path: tuple[str, ...], default: int = 0) -> int:
        """Return the whole number at `path`; never below zero."""
        value = self.get(path, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self.fail(path, f"{path[-1]} must be a whole number, not {value!r}")
        return value

    def number(self, path: tuple[str, ...]) -> float:
        """Return the number at `path`, which must be there; never below zero, never infinite."""
        value = self.get(path, None)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < inf:
            self.fail(path, f"{path[-1]} must be a number, not {value!r}")
        return float(value)

    def words(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return the list of strings at `path`."""
        value = self.get(path, [])
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            self.fail(path, f"{path[-1]} must be a list of words, not {value!r}")
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
        data = yaml.load(text, Loader=_loader())  # noqa: S506 - one of the two safe loaders
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise RvError(Kind.CONFIG, f"{name}:{line}: {error.problem}") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RvError(Kind.CONFIG, f"{name}: cannot be read: {error}") from error
    document = Document(name, text, {} if data is None else data)
    document.mapping(())
    return document
