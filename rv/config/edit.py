"""Change one value in the text of a YAML file: comments, order and every other character stay.

A library that loads a file and writes it again gives a comment to the key before it, and drops it
with that key; here only the text of the one entry changes. What comes out is read again: where it
does not say what was meant, the file is left for its owner to edit.
"""

from collections.abc import Sequence
from typing import Any, Final

import yaml

from rv.config.documents import parse_document
from rv.errors import ErrorKind, RvError

_INDENT: Final = 2

_LINE_BREAKS: Final = frozenset("\x85\u2028\u2029")


def set_value(text: str, keys: Sequence[str], value: Any, name: str) -> str:
    """Return the text with the value at these keys, and mappings above it that were not there.

    `name` is the file's, for messages. Raises `RvError(CONFIG)` where the text is no YAML, or is
    written so that the value cannot be changed alone.
    """
    data = parse_document(text, name).data
    wanted = _with(data, keys, value, name)
    changed = text if wanted == data else _set(text, keys, value)
    return _proven(changed, wanted, name)


def unset_value(text: str, keys: Sequence[str], name: str) -> str:
    """Return the text without the value at these keys, and without mappings that it leaves empty.

    Raises `RvError(CONFIG)` where it is not there, or cannot be removed alone.
    """
    data = parse_document(text, name).data
    if not _has(data, keys):
        raise RvError(
            ErrorKind.CONFIG,
            f"{'.'.join(keys)} is not set in {name}",
            hint="rv config shows what is set where",
        )
    return _proven(_unset(text, keys), _without(data, keys), name)


def _set(text: str, keys: Sequence[str], value: Any) -> str:
    text = text if not text or text.endswith("\n") else f"{text}\n"
    node = yaml.compose(text, yaml.SafeLoader)
    if node is None:
        return text + _block(keys, value, 0)
    for depth, key in enumerate(keys):
        entry = _entry(node, key)
        if entry is None:
            return _inserted(text, node, keys[depth:], value)
        node = entry[1]
    return text[: node.start_mark.index] + _flow(value) + text[_end(node) :]


def _inserted(text: str, node: yaml.Node, keys: Sequence[str], value: Any) -> str:
    """Add an entry at the end of a mapping, or in the place of one that is empty."""
    if isinstance(node, yaml.MappingNode) and node.flow_style:
        inner = {keys[-1]: value}
        for key in reversed(keys[:-1]):
            inner = {key: inner}
        at = _end(node.value[-1][1]) if node.value else node.start_mark.index + 1
        words = _flow(inner)[1:-1]
        return f"{text[:at]}{', ' if node.value else ''}{words}{text[at:]}"
    if isinstance(node, yaml.MappingNode):
        at = _line_end(text, _end(node.value[-1][1]))
        return text[:at] + _block(keys, value, node.start_mark.column) + text[at:]
    # A key without a value: its line goes on below.
    start = text.rfind("\n", 0, node.start_mark.index) + 1
    indent = len(text[start:]) - len(text[start:].lstrip(" "))
    at = _line_end(text, node.start_mark.index)
    kept = text[: node.start_mark.index] + text[_end(node) : at]
    return kept + _block(keys, value, indent + _INDENT) + text[at:]


def _unset(text: str, keys: Sequence[str]) -> str:
    node = yaml.compose(text, yaml.SafeLoader)
    mappings = [node]
    for key in keys[:-1]:
        mappings.append((_entry(mappings[-1], key) or (None, None))[1])
    depth = len(keys) - 1
    while depth > 0 and len(getattr(mappings[depth], "value", ())) == 1:
        depth -= 1
    mapping = mappings[depth]
    entry = _entry(mapping, keys[depth])
    if entry is None or not isinstance(mapping, yaml.MappingNode):
        return text
    start, end = entry[0].start_mark.index, _end(entry[1])
    if not mapping.flow_style:
        return text[: text.rfind("\n", 0, start) + 1] + text[_line_end(text, end) :]
    at = mapping.value.index(entry)
    if at + 1 < len(mapping.value):
        end = mapping.value[at + 1][0].start_mark.index
    elif at:
        start = _end(mapping.value[at - 1][1])
    return text[:start] + text[end:]


def _entry(node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((pair for pair in pairs if pair[0].value == key), None)


def _end(node: yaml.Node) -> int:
    """Return where a node's own text ends: a block's last mark lies behind blanks and comments."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _line_end(text: str, at: int) -> int:
    """Return where the next line begins; a block scalar ends at its beginning already."""
    if at and text[at - 1] == "\n":
        return at
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _flow(value: Any) -> str:
    """Write a value on one line, as it stands in a flow collection: there a comma ends it."""
    text = _dumped([value], allow_unicode=True)
    if _LINE_BREAKS & set(text):  # of Unicode: PyYAML reads them back as blanks
        text = _dumped([value], allow_unicode=False)
    return text.removesuffix("\n").removeprefix("[").removesuffix("]")


def _dumped(value: Any, *, allow_unicode: bool) -> str:
    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=10**9, allow_unicode=allow_unicode, sort_keys=False
    )
    return text


def _block(keys: Sequence[str], value: Any, indent: int) -> str:
    """Write an entry with those above it, a line each."""
    lines = [f"{' ' * (indent + _INDENT * depth)}{_flow(key)}:" for depth, key in enumerate(keys)]
    return "\n".join(lines) + f" {_flow(value)}\n"


def _with(data: Any, keys: Sequence[str], value: Any, name: str) -> Any:
    """Return the data with the value, as the text is to be read when it is changed.

    What an alias repeats is changed at one place only.
    """
    if not keys:
        return value
    if data is not None and not isinstance(data, dict):
        raise RvError(
            ErrorKind.CONFIG,
            f"{name}: what {keys[0]} is to be set in is no mapping of names",
            hint="mend it in an editor",
        )
    below = data or {}
    return {**below, keys[0]: _with(below.get(keys[0]), keys[1:], value, name)}


def _has(data: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return True


def _without(data: Any, keys: Sequence[str]) -> Any:
    """Return the data without the value; None where nothing is left."""
    below = _without(data[keys[0]], keys[1:]) if len(keys) > 1 else None
    rest = {key: value for key, value in data.items() if key != keys[0]}
    return ({**data, keys[0]: below} if below is not None else rest) or None


def _proven(text: str, wanted: Any, name: str) -> str:
    """Return the text where it says what is wanted, and that alone."""
    try:
        is_right = (parse_document(text, name).data or None) == (wanted or None)
    except RvError:
        is_right = False
    if not is_right:
        raise RvError(
            ErrorKind.CONFIG,
            f"{name} is written so that this cannot be changed alone",
            hint="change it in an editor; rv config shows whether it is right",
        )
    return text
