"""Read a profile: YAML into `profile.Profile`, with the line of whatever is wrong.

The dataclasses are the schema: a field's type says what may stand there, a field without a default
is required, and an unknown key is answered with the nearest known one.
"""

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import yaml

from rv.errors import ErrorKind, RvError
from rv.sandbox import profile as model

BUILTIN: Final = Path(__file__).parent / "profiles"
SIZES: Final = {"": 1, "M": 1, "G": 1024, "T": 1024**2}
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def builtin_names() -> tuple[str, ...]:
    """The profiles that come with rv; `gpu` is made from this machine's devices."""
    return tuple(sorted(path.stem for path in BUILTIN.glob("*.yaml")))


def load_profile(name: str) -> model.Profile:
    """The profile of that name, or in the file of that name."""
    builtin = BUILTIN / f"{name}.yaml"
    try:
        path = builtin if NAME.fullmatch(name) and builtin.is_file() else Path(name).expanduser()
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError, RuntimeError) as error:  # `~nobody` is a RuntimeError
        known = (*builtin_names(), "gpu")
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"profiles: {', '.join(known)}, or a file"
        raise RvError(
            ErrorKind.SANDBOX, f"no sandbox profile {name!r}, and no such file", hint=hint
        ) from error
    return parse(text, where=str(path))


def parse(text: str, *, where: str) -> model.Profile:
    """Turn the text of a profile into a Profile."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise _fault(where, line, f"not YAML: {error.problem}") from error
    except yaml.YAMLError as error:  # a character that may not be in YAML
        raise _fault(where, 1, f"not YAML: {error}") from error
    except RecursionError as error:
        raise _fault(where, 1, "nested too deeply") from error
    if not isinstance(node, yaml.MappingNode):
        raise _fault(where, 1, "a profile is a mapping, with `cluster`, `nodes` and `partitions`")
    try:
        profile = _mapping(model.Profile, node, where)
    except RecursionError as error:  # an alias of what it stands in
        raise _fault(where, 1, "nested too deeply") from error
    _check(profile, node, where)
    return profile


def _fault(where: str, line: int, message: str, hint: str = "") -> RvError:
    return RvError(
        ErrorKind.SANDBOX,
        f"profile {where}, line {line}: {message}",
        hint=hint or "the keys are documented in rv/sandbox/profile.py",
    )


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


T = typing.TypeVar("T")


def _mapping(cls: type[T], node: yaml.Node, where: str) -> T:
    """Build a dataclass from a mapping node."""
    if not isinstance(node, yaml.MappingNode):
        raise _fault(where, _line(node), f"expected a mapping with {_known(cls)}")
    hints = typing.get_type_hints(cls)
    values: dict[str, object] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _fault(where, _line(key), "a key is one word")
        if key.value not in hints:
            near = difflib.get_close_matches(str(key.value), hints, n=1)
            hint = f"did you mean {near[0]}?" if near else f"keys here: {_known(cls)}"
            raise _fault(where, _line(key), f"unknown key {key.value!r}", hint)
        if key.value in values:
            raise _fault(where, _line(key), f"key {key.value!r} appears twice")
        values[key.value] = _value(hints[key.value], value, where, key.value)
    _require(cls, values, node, where)
    return cls(**values)


def _known(cls: type) -> str:
    return ", ".join(typing.get_type_hints(cls))


def _require(cls: type, values: Iterable[str], node: yaml.Node, where: str) -> None:
    for field in dataclasses.fields(cls):
        if field.default is dataclasses.MISSING and field.name not in values:
            raise _fault(where, _line(node), f"{field.name!r} is missing here")


def _value(kind: object, node: yaml.Node, where: str, key: str) -> object:
    """Convert one node to the type that its field wants."""
    if kind == model.Pairs:
        return _pairs(node, where, key)
    # A size or None is a typing.Union, because its type is a NewType; others are unions of types.
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        if _is_null(node):
            return None
        kind = next(part for part in typing.get_args(kind) if part is not types.NoneType)
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        return tuple(_value(item, part, where, key) for part in nodes)
    if kind is model.Account and isinstance(node, yaml.ScalarNode):
        return model.Account(name=str(_scalar(str, node, where, key)))
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _mapping(kind, node, where)
    return _scalar(kind, node, where, key)


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _pairs(node: yaml.Node, where: str, key: str) -> model.Pairs:
    if not isinstance(node, yaml.MappingNode):
        raise _fault(where, _line(node), f"{key!r} is a mapping of names to values")
    pairs = []
    for name, value in node.value:
        if not isinstance(value, yaml.ScalarNode) or "\n" in value.value:
            raise _fault(where, _line(value), f"{name.value!r} in {key!r} is one value")
        pairs.append((str(name.value), "" if _is_null(value) else str(value.value)))
    return tuple(pairs)


def _scalar(kind: object, node: yaml.Node, where: str, key: str) -> object:
    if not isinstance(node, yaml.ScalarNode) or _is_null(node) or "\n" in node.value:
        raise _fault(where, _line(node), f"{key!r} is one value")
    text = node.value.strip()
    if kind is model.Mebibytes:
        found = re.fullmatch(r"(\d+) *([MGT]?)(?:i?B)?", text, re.IGNORECASE)
        if found:
            return int(found[1]) * SIZES[found[2].upper()]
        raise _fault(where, _line(node), f"{key!r} is a size such as 384G or 8000, not {text!r}")
    if kind is bool:
        if text.lower() in ("true", "false", "yes", "no"):
            return text.lower() in ("true", "yes")
        raise _fault(where, _line(node), f"{key!r} is true or false, not {text!r}")
    if kind is int:
        if re.fullmatch(r"\d+", text):
            return int(text)
        raise _fault(where, _line(node), f"{key!r} is a whole number, not {text!r}")
    return text


def _check(profile: model.Profile, node: yaml.MappingNode, where: str) -> None:
    """What no field can know by itself: names that refer to other names."""
    groups = [group.prefix for group in profile.nodes]
    lines = _item_lines(node)
    for kind, names in (
        ("nodes", groups),
        ("partitions", [partition.name for partition in profile.partitions]),
        ("qos", [qos.name for qos in profile.qos]),
    ):
        _check_names(kind, names, lines, where)
    for position, partition in enumerate(profile.partitions):
        line = lines.get(("partitions", position), 1)
        for prefix in partition.nodes:
            _refer(prefix, groups, f"nodes of partition {partition.name}", where, line)
        for qos in filter(None, (partition.qos, *partition.allow_qos)):
            known = ["normal", *(each.name for each in profile.qos)]
            _refer(qos, known, f"QOS of partition {partition.name}", where, line)
    _check_accounts(profile, lines, where)
    if sum(partition.default for partition in profile.partitions) > 1:
        raise _fault(where, 1, "more than one partition is the default")


def _check_accounts(profile: model.Profile, lines: dict[tuple[str, int], int], where: str) -> None:
    names = [account.name for account in profile.accounts]
    _check_names("accounts", names, lines, where)
    for position, account in enumerate(profile.accounts):
        if account.parent:
            line = lines.get(("accounts", position), 1)
            above = names[:position]
            _refer(account.parent, above, f"parent of account {account.name}", where, line)
    if not any(account.joined for account in profile.accounts):
        raise _fault(where, 1, "nobody can submit: no account is joined")


def _item_lines(node: yaml.MappingNode) -> dict[tuple[str, int], int]:
    return {
        (str(key.value), position): _line(item)
        for key, value in node.value
        if isinstance(value, yaml.SequenceNode)
        for position, item in enumerate(value.value)
    }


def _check_names(
    kind: str, names: list[str], lines: dict[tuple[str, int], int], where: str
) -> None:
    if not names and kind != "qos":
        raise _fault(where, 1, f"{kind!r} is empty")
    for position, name in enumerate(names):
        line = lines.get((kind, position), 1)
        if not NAME.fullmatch(name):
            raise _fault(where, line, f"{name!r} is no name for Slurm")
        if name in names[:position]:
            raise _fault(where, line, f"the name {name!r} appears twice in {kind!r}")


def _refer(name: str, known: list[str], what: str, where: str, line: int) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        raise _fault(where, line, f"{what}: {name!r} is not defined in this profile", hint)
