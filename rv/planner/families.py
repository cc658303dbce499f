"""The strategy families of `strategies/*.yaml`: what is enumerated, and with which defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from rv import bundle
from rv.errors import RvError
from rv.models.plan import Mode
from rv.models.quantities import parse_duration, parse_memory_mib
from rv.planner.catalogue import FILE as CATALOGUE_FILE
from rv.planner.documents import Document, nearest, read_document

_KEYS: Final = ("name", "serves", "template", "mode", "enabled", "defaults")


class Serves(StrEnum):
    """The kind of layout that a family turns into jobs; CHECKPOINT any kind, in segments."""

    SINGLE_NODE = "single-node"
    MULTI_NODE = "multi-node"
    MIG = "mig"
    CHECKPOINT = "checkpoint"


_DEFAULTS: Final[Mapping[Serves, tuple[str, ...]]] = {
    Serves.SINGLE_NODE: ("cpus_per_gpu", "max_cpus"),
    Serves.MULTI_NODE: ("cpus_per_gpu", "max_cpus", "min_gpus_per_node"),
    Serves.MIG: ("cpus", "memory"),
    Serves.CHECKPOINT: ("buffer", "min_usable"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """One family. CPUs and memory are a node's; `memory_mib` caps what MIG asks for.

    `buffer` is how long before a segment's end its command is told to save its work, `min_usable`
    what a segment must leave to the command.

    `cpus` is fixed where it is not 0; otherwise a node asks `cpus_per_gpu` a GPU up to `max_cpus`.
    """

    name: str
    serves: Serves
    template: str
    mode: Mode = Mode.DIRECT
    enabled: bool = True
    cpus: int = 0
    cpus_per_gpu: int = 4
    max_cpus: int = 32
    memory_mib: int | None = None
    min_gpus_per_node: int = 1
    buffer: timedelta = timedelta(seconds=120)
    min_usable: timedelta = timedelta(seconds=60)


def load_families(user_config: Path | None = None) -> tuple[Family, ...]:
    """Load every family, bundled and the user's, by file name. Raises `RvError(CONFIG)`."""
    files = bundle.entries(bundle.Kind.STRATEGIES, ".yaml", user_config)
    return tuple(_family(read_document(file)) for file in files if file.name != CATALOGUE_FILE)


def _family(document: Document) -> Family:
    document.check_keys((), _KEYS)
    serves = Serves(_choice(document, "serves", tuple(Serves)))
    document.check_keys(("defaults",), _DEFAULTS[serves])
    name = document.text_at(("name",))
    enabled = document.get(("enabled",), default=True)
    if not name:
        document.fail(("name",), "a family needs a name")
    if not isinstance(enabled, bool):
        document.fail(("enabled",), f"enabled must be true or false, not {enabled!r}")
    return Family(
        name=name,
        serves=serves,
        template=document.text_at(("template",), name),
        mode=Mode(_choice(document, "mode", tuple(Mode))),
        enabled=enabled,
        cpus=document.whole(("defaults", "cpus")),
        cpus_per_gpu=document.whole(("defaults", "cpus_per_gpu"), 4),
        max_cpus=document.whole(("defaults", "max_cpus"), 32),
        memory_mib=_memory(document),
        min_gpus_per_node=document.whole(("defaults", "min_gpus_per_node"), 1),
        buffer=_duration(document, "buffer", timedelta(seconds=120)),
        min_usable=_duration(document, "min_usable", timedelta(seconds=60)),
    )


def _choice(document: Document, key: str, known: tuple[str, ...]) -> str:
    word = document.text_at((key,), known[0])
    if word not in known:
        near = nearest(word, known)
        hint = f"did you mean {near}?" if near else f"one of: {', '.join(known)}"
        document.fail((key,), f"unknown {key} {word!r}", hint=hint)
    return word


def _duration(document: Document, key: str, default: timedelta) -> timedelta:
    path = ("defaults", key)
    value = document.get(path, default=None)
    if value is None:
        return default
    try:
        return parse_duration(str(value))
    except RvError as error:
        document.fail(path, error.message, hint=error.hint)


def _memory(document: Document) -> int | None:
    path = ("defaults", "memory")
    value = document.get(path, default=None)
    if value is None:
        return None
    try:
        return parse_memory_mib(str(value))
    except RvError as error:
        document.fail(path, error.message, hint=error.hint)
