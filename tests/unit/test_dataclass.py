"""rv's data classes are those of the standard library, but for when their methods are made."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from rv.dataclass import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """With all that a field of rv's may have."""

    x: int
    y: int = 2
    tags: list[str] = dataclasses.field(default_factory=list)
    note: str = dataclasses.field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError(self.x)


Theirs: Any = dataclasses.dataclass(frozen=True, kw_only=True, slots=True)(
    type("Point", (), {**{name: vars(Point)[name] for name in ("__annotations__", "__post_init__", "__doc__")},
                       "y": 2, "tags": dataclasses.field(default_factory=list),
                       "note": dataclasses.field(default="", compare=False, repr=False)})
)  # fmt: skip
"""The same class by the standard library."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Nothing:
    """Without a field."""


@dataclass(frozen=True, kw_only=True, slots=True)
class One:
    """With one field."""

    value: object


@dataclass(frozen=True, kw_only=True, slots=True)
class Inheriting(Point):
    """Of another one."""

    z: int = 3


def outcome(act: Callable[[Any], object], kind: Any) -> object:
    """What comes of it, also where that is an error."""
    try:
        return act(kind)
    except (TypeError, ValueError, AttributeError, dataclasses.FrozenInstanceError) as error:
        return type(error), str(error)


ACTS: dict[str, Callable[[Any], object]] = {
    "defaults": lambda kind: dataclasses.asdict(kind(x=1)),
    "a default of its own": lambda kind: kind(x=1).tags is kind(x=1).tags,
    "printed": lambda kind: repr(kind(x=1, tags=["a"], note="n")),
    "equal but for what is not compared": lambda kind: kind(x=1, note="a") == kind(x=1, note="b"),
    "not equal": lambda kind: kind(x=1) == kind(x=2),
    "equal to nothing else": lambda kind: kind(x=1) == (1, 2, [], ""),
    "hash": lambda kind: hash(kind(x=1, tags=())) == hash((1, 2, ())),
    "no hash of a list": lambda kind: hash(kind(x=1)),
    "replaced": lambda kind: dataclasses.replace(kind(x=1), y=5).y,
    "copied": lambda kind: copy.deepcopy(kind(x=1)) == kind(x=1),
    "one is missing": lambda kind: kind(),
    "one too many": lambda kind: kind(x=1, w=2),
    "by position": lambda kind: kind(1),
    "refused by itself": lambda kind: kind(x=-1),
    "assigned": lambda kind: setattr(kind(x=1), "x", 2),
    "deleted": lambda kind: delattr(kind(x=1), "x"),
    "another attribute": lambda kind: hasattr(kind(x=1), "__dict__"),
    "fields": lambda kind: [(f.name, f.type, f.kw_only) for f in dataclasses.fields(kind)],
    "matched": lambda kind: kind.__match_args__,
    "frozen": lambda kind: kind.__dataclass_params__.frozen,
}


@pytest.mark.parametrize("name", ACTS)
def test_it_does_as_that_of_the_standard_library(name: str) -> None:
    """What it says of a mistake too."""
    assert outcome(ACTS[name], Point) == outcome(ACTS[name], Theirs)


def test_one_of_them_travels_as_any_value() -> None:
    """Between processes."""
    assert pickle.loads(pickle.dumps(Point(x=1, note="n"))) == Point(x=1)
    assert pickle.loads(pickle.dumps(Point(x=1, note="n"))).note == "n"


def test_none_or_one_field_are_compared_as_tuples() -> None:
    """Of which a NaN is equal to itself."""
    nan = float("nan")
    assert Nothing() == Nothing()
    assert len({Nothing(), Nothing()}) == 1
    assert One(value=nan) == One(value=nan)
    assert One(value=1) != Nothing()


def test_a_class_may_inherit_from_one() -> None:
    """It is the standard library's whole."""
    made = Inheriting(x=1)
    assert (made.x, made.y, made.z) == (1, 2, 3)
    assert made != Point(x=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.z = 4  # type: ignore[misc]


def test_methods_are_compiled_when_one_is_made() -> None:
    """Not when the class is loaded, which every command would wait for."""

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Late:
        """One that is made once."""

        x: int

    before = Late.__init__
    Late(x=1)
    assert Late.__init__ is not before
    assert Late.__init__.__code__.co_filename == "<string>"
