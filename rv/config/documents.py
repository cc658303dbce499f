"""Read the YAML that people write, and name file, line and nearest key where it is wrong.

A schema is a class below `Schema`, whose fields have the types of this module or of pydantic.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources.abc import Traversable
from typing import Annotated, Any, ClassVar, Final, NoReturn, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from rv.errors import ErrorKind, RvError
from rv.models.spelling import suggestion

SAFE_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST: Final = 5_000
_MOST: Final = 10**15
_LONGEST: Final = 80
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


class Schema(BaseModel):
    """A mapping with known keys, none of whose values is converted unless its field says so."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, frozen=True, defer_build=True
    )

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                raise problem(
                    f"unknown key {key!r}",
                    hint=suggestion(str(key), cls.model_fields, _keys(cls.model_fields)),
                    key=key,
                )
        return data


Values = TypeVar("Values", bound=Schema)


def problem(message: str, *, hint: str = "", key: str = "") -> PydanticCustomError:
    """Make the error of a validator: a message, without file and line, and a hint.

    `key` names the key below the value that is wrong, where it is not the value itself.
    """
    return PydanticCustomError(
        "problem", "{message}", {"message": message, "hint": hint, "key": key}
    )


def refusal(what: str, hint: str = "") -> PydanticCustomError:
    """Make the error of a value that is not what it must be: `a whole number`."""
    return PydanticCustomError("wanted", "{what}", {"what": what, "hint": hint})


def wanted(what: str, hint: str = "") -> WrapValidator:
    """Answer whatever is wrong with a value by what it must be: `a whole number`."""

    def check(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError:
            raise refusal(what, hint) from None

    return WrapValidator(check)


def by_parser(parse: Callable[[str], Any]) -> BeforeValidator:
    """Read a value by one of rv's own parsers, with the message of its `RvError`."""

    def read(value: Any) -> Any:
        try:
            return None if value is None else parse(str(value))
        except RvError as error:
            raise problem(error.message, hint=error.hint) from error

    return BeforeValidator(read)


def one_of(kind: type[StrEnum], name: str) -> BeforeValidator:
    """Read a member of an enumeration by its value; `name` says what is chosen."""

    def read(value: Any) -> StrEnum:
        if not isinstance(value, str):
            raise refusal("text")
        if value not in list(kind):
            hint = suggestion(value, kind, f"one of: {', '.join(kind)}")
            raise problem(f"unknown {name} {value!r}", hint=hint)
        return kind(value)

    return BeforeValidator(read)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise problem(f"{text!r} is no regular expression: {error}") from error
    return text


Text = Annotated[str, wanted("text")]
Switch = Annotated[bool, wanted("true or false")]
Whole = Annotated[int, Field(ge=0, le=_MOST), wanted("a whole number")]
Number = Annotated[float, Field(ge=0, le=_MOST, allow_inf_nan=False), wanted("a number")]
Words = Annotated[list[str], wanted("a list of words")]
Patterns = Annotated[Words, AfterValidator(lambda words: [_pattern(word) for word in words])]


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML file: its name for messages, its values, and where each of them stands."""

    name: str
    data: Any
    node: yaml.Node | None
    kind: ErrorKind = ErrorKind.CONFIG

    def read(self, schema: type[Values]) -> Values:
        """Return the file's values. Raises `RvError` for the first that the schema refuses."""
        try:
            with _without_plugins():
                return schema.model_validate({} if self.data is None else self.data)
        except ValidationError as error:
            self._refuse(error.errors(include_url=False)[0])

    def fail(self, path: Path, message: str, *, hint: str = "") -> NoReturn:
        """Raise an `RvError` that names the file and the line of the key at `path`."""
        raise RvError(self.kind, f"{self.origin(path)}: {message}", hint=hint)

    def check_keys(self, path: Path, keys: Iterable[str], known: Iterable[str]) -> None:
        """Raise for the first of the keys below `path` that is not known."""
        names = tuple(known)
        for key in keys:
            if key not in names:
                hint = suggestion(key, names, _keys(names))
                self.fail((*path, key), f"unknown key {key!r}", hint=hint)

    def origin(self, path: Path) -> str:
        """Name the file and the line of the key at `path`: `gpus.yaml:12`."""
        return f"{self.name}:{self._line(path)}"

    def _refuse(self, error: ErrorDetails) -> NoReturn:
        """Raise for what pydantic found."""
        path, details = error["loc"], error.get("ctx", {})
        name = next((str(part) for part in reversed(path) if isinstance(part, str)), "the file")
        match error["type"]:
            case "problem":
                path = (*path, details["key"]) if details["key"] else path
                message = details["message"]
            case "wanted":
                message = f"{name} must be {details['what']}, not {_shown(error['input'])}"
            case "missing":
                message = f"{name!r} is missing here"
            case _ if path[-1:] == ("[key]",):
                path = path[:-2]
                message = f"{path[-1]} must be a mapping of names"
            case "model_type" | "dict_type":
                message = f"{name} must be a mapping of names"
            case _:
                message = f"{name}: {error['msg']}"
        self.fail(path, message, hint=details.get("hint", ""))

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


def _keys(names: Iterable[str]) -> str:
    return f"keys: {', '.join(names)}"


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


@contextmanager
def _without_plugins() -> Iterator[None]:
    """Keep pydantic from searching every installed package for its plugins, which is slow."""
    name = "PYDANTIC_DISABLE_PLUGINS"
    before: Mapping[str, str] = {name: os.environ[name]} if name in os.environ else {}
    os.environ[name] = "__all__"
    try:
        yield
    finally:
        del os.environ[name]
        os.environ.update(before)
