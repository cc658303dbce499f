"""Read a profile: YAML into `profile.Profile`, with the line of whatever is wrong."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from rv.config.documents import SAFE_LOADER, Document, parse_document
from rv.config.schema import validate
from rv.errors import ErrorKind, RvError
from rv.models.spelling import suggestion
from rv.sandbox.profile import Profile

BUILTIN: Final = Path(__file__).parent / "profiles"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class _TextLoader(SAFE_LOADER):  # type: ignore[misc]  # C's loader where there is one
    """Leaves values as the text that is written, but null, and takes no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:  # noqa: FBT001, FBT002
        keys: set[Any] = set()
        for key, _ in node.value:
            if isinstance(key.value, str) and key.value in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} appears twice", key.start_mark
                )
            keys.add(key.value if isinstance(key.value, str) else None)
        return super().construct_mapping(node, deep=deep)


for _type in ("bool", "int", "float", "timestamp"):
    _TextLoader.add_constructor(f"tag:yaml.org,2002:{_type}", _TextLoader.construct_scalar)


def builtin_names() -> tuple[str, ...]:
    """The profiles that come with rv; `gpu` is made from this machine's devices."""
    return tuple(sorted(path.stem for path in BUILTIN.glob("*.yaml")))


def load_profile(name: str) -> Profile:
    """The profile of that name, or in the file of that name."""
    builtin = BUILTIN / f"{name}.yaml"
    try:
        path = builtin if NAME.fullmatch(name) and builtin.is_file() else Path(name).expanduser()
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError, RuntimeError) as error:  # `~nobody` is a RuntimeError
        names = (*builtin_names(), "gpu")
        hint = suggestion(name, names, f"profiles: {', '.join(names)}, or a file")
        raise RvError(
            ErrorKind.SANDBOX, f"no sandbox profile {name!r}, and no such file", hint=hint
        ) from error
    return parse(text, where=str(path))


def parse(text: str, *, where: str) -> Profile:
    """Turn the text of a profile into a Profile."""
    document = parse_document(text, f"profile {where}", ErrorKind.SANDBOX, _TextLoader)
    if not isinstance(document.data, dict):
        document.fail((), "a profile is a mapping, with `cluster`, `nodes` and `partitions`")
    profile = validate(document, Profile)
    _check_groups(document, profile)
    _check_partitions(document, profile)
    _check_accounts(document, profile)
    return profile


def _check_groups(document: Document, profile: Profile) -> None:
    _check_names(document, "nodes", [group.prefix for group in profile.nodes])
    _check_names(document, "partitions", [partition.name for partition in profile.partitions])
    if profile.qos:
        _check_names(document, "qos", [qos.name for qos in profile.qos])


def _check_partitions(document: Document, profile: Profile) -> None:
    groups = [group.prefix for group in profile.nodes]
    every_qos = ["normal", *(each.name for each in profile.qos)]
    for position, partition in enumerate(profile.partitions):
        path = ("partitions", position)
        for prefix in partition.nodes:
            _refer(document, path, prefix, groups, f"nodes of partition {partition.name}")
        for qos in filter(None, (partition.qos, *partition.allow_qos)):
            _refer(document, path, qos, every_qos, f"QOS of partition {partition.name}")
    if sum(partition.default for partition in profile.partitions) > 1:
        document.fail((), "more than one partition is the default")


def _check_accounts(document: Document, profile: Profile) -> None:
    names = [account.name for account in profile.accounts]
    _check_names(document, "accounts", names)
    for position, account in enumerate(profile.accounts):
        if account.parent:
            path = ("accounts", position)
            what = f"parent of account {account.name}"
            _refer(document, path, account.parent, names[:position], what)
    if not any(account.joined for account in profile.accounts):
        document.fail((), "nobody can submit: no account is joined")


def _check_names(document: Document, kind: str, names: list[str]) -> None:
    if not names:
        document.fail((), f"{kind!r} is empty")
    for position, name in enumerate(names):
        if not NAME.fullmatch(name):
            document.fail((kind, position), f"{name!r} is no name for Slurm")
        if name in names[:position]:
            document.fail((kind, position), f"the name {name!r} appears twice in {kind!r}")


def _refer(
    document: Document, path: tuple[str, int], name: str, defined: Iterable[str], what: str
) -> None:
    names = list(defined)
    if name not in names:
        hint = suggestion(name, names, f"known: {', '.join(names)}")
        document.fail(path, f"{what}: {name!r} is not defined in this profile", hint=hint)
