"""The standard library's `dataclass`, but for rv's usual frozen kind without its time to load.

The library compiles six methods of each class, and a launch loads 130 classes: a third of its time.
Here `__init__` is compiled when it is first called, and what all classes share is not compiled.
"""

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

_USUAL: Final = {"frozen": True, "kw_only": True, "slots": True}


def _dataclass(**options: bool) -> Callable[[type], Any]:
    """Return the decorator that `dataclasses.dataclass` would with these options."""
    if options != _USUAL:
        return dataclasses.dataclass(**options)
    return _frozen


def _frozen(cls: type) -> Any:
    """Make a frozen data class."""
    if cls.__bases__ != (object,):
        return dataclasses.dataclass(frozen=True, kw_only=True, slots=True)(cls)
    own = vars(cls).keys()
    cls.__doc__ = cls.__doc__ or cls.__name__  # the library would read the signature, which is slow
    with_fields = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True, slots=True)
    made: Any = with_fields(cls)
    made.__dataclass_params__.frozen = True  # for classes that inherit from it
    fields = dataclasses.fields(made)
    for method in (_init(made, fields), *_COMMON, *_comparing(fields)):
        if method.__name__ not in own:
            setattr(made, method.__name__, method)
    return made


def _init(made: Any, fields: Sequence["dataclasses.Field[Any]"]) -> Callable[..., None]:
    """Return what compiles the class's `__init__` and takes its place with it."""

    def __init__(self: Any, **values: Any) -> None:  # noqa: N807
        made.__init__ = _compiled(made, fields)
        made.__init__(self, **values)

    return __init__


def _compiled(made: Any, fields: Sequence["dataclasses.Field[Any]"]) -> Callable[..., None]:
    parameters, body, names = ["self", "*"], ["pass"], dict[str, Any]()
    for field in fields:
        name = field.name
        names[f"_set_{name}"] = made.__dict__[name].__set__  # of its slot: the class is frozen
        body.append(f"_set_{name}(self, {name})")
        if field.default_factory is not dataclasses.MISSING:
            names[f"_new_{name}"], names["_missing"] = field.default_factory, dataclasses.MISSING
            parameters.append(f"{name}=_missing")
            body[-1] = f"_set_{name}(self, _new_{name}() if {name} is _missing else {name})"
        elif field.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
    if hasattr(made, "__post_init__"):
        body.append("self.__post_init__()")
    if len(parameters) == len(("self", "*")):
        parameters.pop()
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body), names)  # noqa: S102
    method: Callable[..., None] = names["__init__"]
    method.__qualname__ = f"{made.__qualname__}.__init__"
    return method


def _comparing(fields: Sequence["dataclasses.Field[Any]"]) -> tuple[Callable[..., Any], ...]:
    """Return `__eq__` and `__hash__`, which compare the fields as one tuple."""
    names = [field.name for field in fields if field.compare]
    names *= 2 if len(names) == 1 else 1  # of one alone it would be no tuple
    values: Callable[[Any], Any] = attrgetter(*names) if names else type

    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807
        return (
            values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
        )

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return __eq__, __hash__


def __repr__(self: Any) -> str:  # noqa: N807
    shown = (
        f"{each.name}={getattr(self, each.name)!r}"
        for each in dataclasses.fields(self)
        if each.repr
    )
    return f"{type(self).__qualname__}({', '.join(shown)})"


def __setattr__(_self: Any, name: str, _value: Any) -> None:  # noqa: N807
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(_self: Any, name: str) -> None:  # noqa: N807
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def __getstate__(self: Any) -> list[Any]:  # noqa: N807
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def __setstate__(self: Any, state: list[Any]) -> None:  # noqa: N807
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


__all__ = ["dataclass"]

_COMMON: Final = (__repr__, __setattr__, __delattr__, __getstate__, __setstate__)

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass
