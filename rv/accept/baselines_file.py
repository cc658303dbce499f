"""Read a file of baselines: it is not there, or it is a file in which no key stands twice."""

import stat
from pathlib import Path
from typing import NoReturn

import yaml

from rv.config.documents import SAFE_LOADER, Document, parse_document
from rv.errors import ErrorKind, RvError


def layer_document(path: Path) -> Document | None:
    """Read a file of baselines; None where there is none.

    Raises `RvError(CONFIG)` for a folder or a link to nothing in its place, and for a wrong file.
    """
    try:
        if not _is_there(path):
            return None
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RvError(ErrorKind.CONFIG, f"{path}: cannot be read: {error}") from error
    return parse_document(text, str(path), loader=_UniqueKeys)


def _is_there(path: Path) -> bool:
    """Whether there is a file. Raises `RvError(CONFIG)` for what is there and is no file."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            _refuse(path, f"is a link to {path.readlink()}, which is not there")
        return False
    if not stat.S_ISREG(mode):
        _refuse(path, "is a folder" if stat.S_ISDIR(mode) else "is no regular file")
    return True


def _refuse(path: Path, what: str) -> NoReturn:
    hint = "put a file of baselines there, or remove it"
    raise RvError(ErrorKind.CONFIG, f"{path}: {what}", hint=hint)


class _UniqueKeys(SAFE_LOADER):  # type: ignore[misc]
    """A loader that refuses a key that stands twice, where YAML's own takes the last."""

    def get_single_node(self) -> yaml.Node | None:
        """Give the document's nodes. Raises `ConstructorError` for a key that stands twice."""
        top: yaml.Node | None = super().get_single_node()
        # An alias is the very node that it stands for: each is looked at once.
        nodes, seen = [top], set[int]()
        while nodes:
            node = nodes.pop()
            if id(node) not in seen:
                seen.add(id(node))
                nodes += _parts(node)
        return top


def _parts(node: yaml.Node | None) -> list[yaml.Node]:
    """Give the nodes right below one, of a mapping after a look at its keys."""
    if isinstance(node, yaml.MappingNode):
        _check_keys(node)
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _check_keys(node: yaml.MappingNode) -> None:
    seen = set[tuple[str, str]]()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if (key.tag, key.value) in seen:
            why = f"the key {key.value!r} stands twice in one mapping: remove one of them"
            raise yaml.constructor.ConstructorError(None, None, why, key.start_mark)
        seen.add((key.tag, key.value))
