"""Schemas of the files that people write, checked by pydantic.

A schema is a class below `Schema`, whose fields have the types of this module or of pydantic. This
module is imported where a user's file exists: what comes with rv is checked by its tests.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from threading import Lock
from typing import Annotated, Any, ClassVar, Final, NoReturn, TypeVar

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

from rv.config.documents import Document
from rv.errors import RvError
from rv.models.spelling import suggestion

_MOST: Final = 10**15
_LONGEST: Final = 80


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
    return PydanticCustomError("must_be", "{what}", {"what": what, "hint": hint})


def must_be(what: str, hint: str = "") -> WrapValidator:
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


Text = Annotated[str, must_be("text")]
Switch = Annotated[bool, must_be("true or false")]
Whole = Annotated[int, Field(ge=0, le=_MOST), must_be("a whole number")]
Number = Annotated[float, Field(ge=0, le=_MOST, allow_inf_nan=False), must_be("a number")]
Words = Annotated[list[str], must_be("a list of words")]
Patterns = Annotated[Words, AfterValidator(lambda words: [_pattern(word) for word in words])]


def validate(document: Document, schema: type[Values]) -> Values:
    """Return a file's values. Raises its `RvError` for the first that the schema refuses."""
    try:
        with _without_plugins():
            return schema.model_validate({} if document.data is None else document.data)
    except ValidationError as error:
        _refuse(document, error.errors(include_url=False)[0])


def _refuse(document: Document, error: ErrorDetails) -> NoReturn:
    """Raise for what pydantic found."""
    path, details = error["loc"], error.get("ctx", {})
    name = next((str(part) for part in reversed(path) if isinstance(part, str)), "the file")
    match error["type"]:
        case "problem":
            path = (*path, details["key"]) if details["key"] else path
            message = details["message"]
        case "must_be":
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
    document.fail(path, message, hint=details.get("hint", ""))


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


@contextmanager
def _without_plugins() -> Iterator[None]:
    """Keep pydantic from searching every installed package for its plugins, which is slow.

    One thread at a time: the environment is everybody's.
    """
    name = "PYDANTIC_DISABLE_PLUGINS"
    with _ENVIRONMENT:
        before: Mapping[str, str] = {name: os.environ[name]} if name in os.environ else {}
        os.environ[name] = "__all__"
        try:
            yield
        finally:
            del os.environ[name]
            os.environ.update(before)


_ENVIRONMENT: Final = Lock()
