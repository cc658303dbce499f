"""What `strategies/*.yaml` declares: GPU models, how to recognise them, and strategy families."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final

from rv.dataclass import dataclass
from rv.models.plan import Mode

TOLERANCE: Final = 0.93
"""nvidia-smi shows up to 7 % less than the card's name says: a 48 GB A40 reports 46068 MiB."""

_SEPARATORS: Final = re.compile(r"[_.\s]+")
_MIG: Final = re.compile(r"(?:^|[-_.: ])(\d+)g[._](\d+)gb(?:\+[a-z0-9.+]*)?$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuModel:
    """One GPU model. `vram_mib` is None for a type that no table knows.

    `pattern` is an extended regular expression for nvidia-smi's product name; `least_mib` the
    least memory a card of this name may have; `rank` is higher for a better model.
    """

    name: str
    words: tuple[str, ...] = ()
    pattern: str = ""
    vram_mib: int | None = None
    least_mib: int = 0
    rank: int = 0
    refines: str = ""

    def has_vram(self, wanted_mib: int) -> bool:
        """Whether its memory is what a person means by `wanted_mib` (`40G` takes 40 GB cards)."""
        return self.vram_mib is not None and self.vram_mib >= int(wanted_mib * TOLERANCE)


@dataclass(frozen=True, kw_only=True, slots=True)
class MigProfile:
    """A MIG slice: so many compute slices and so much memory, named as NVIDIA does (`1g.10gb`)."""

    slices: int
    memory_gb: int

    @property
    def name(self) -> str:
        """NVIDIA's name of it."""
        return f"{self.slices}g.{self.memory_gb}gb"

    @property
    def vram_mib(self) -> int:
        """Its nominal memory."""
        return self.memory_gb * 1024


def mig_profile(text: str) -> MigProfile | None:
    """Read a GRES type such as `1g.10gb` or `nvidia_a100_3g.40gb`; None where it is no slice."""
    match = _MIG.search(text)
    return MigProfile(slices=int(match[1]), memory_gb=int(match[2])) if match else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Catalogue:
    """Models by name, what users' words mean (in order of preference), and words that mean none.

    Compared by identity, so that what it recognised can be cached.
    """

    models: Mapping[str, GpuModel]
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    vague: frozenset[str] = frozenset()

    def recognise(self, texts: Iterable[str]) -> GpuModel | None:
        """Return the one model that the texts speak of; None where they name none, or several.

        A broad model (a100) gives way to one that refines it (a100-80); a word that only refines
        (hbm80g) says nothing where another model is named (h100).
        """
        named = {name for text in texts for name in _recognised(self, normal(text))}
        narrowest = named - {self.models[name].refines for name in named}
        confirmed = {name for name in narrowest if self.models[name].refines in {"", *named}}
        models = confirmed or narrowest
        return self.models[models.pop()] if len(models) == 1 else None

    def is_vague(self, text: str) -> bool:
        """Whether a GRES type names no model at all ("" and words such as `nvidia`)."""
        return normal(text) in self.vague or not text

    def meanings(self, word: str) -> tuple[str, ...]:
        """Return the models a user's word may mean, best first; empty where it means none."""
        text = normal(word)
        if text in self.aliases:
            return self.aliases[text]
        if text in self.models:
            return (text,)
        model = self.recognise((text,))
        return (model.name,) if model else ()


def normal(text: str) -> str:
    """Write a word of a site in the catalogue's way: lower case, with dashes."""
    return _SEPARATORS.sub("-", text.strip().lower())


@lru_cache(maxsize=4096)
def _recognised(catalogue: Catalogue, text: str) -> frozenset[str]:
    patterns = _patterns(catalogue)
    return frozenset(name for name, pattern in patterns if pattern.search(text))


@lru_cache(maxsize=8)
def _patterns(catalogue: Catalogue) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple(
        (name, re.compile(rf"(?<![a-z0-9])(?:{'|'.join(model.words)})(?![a-z0-9])"))
        for name, model in catalogue.models.items()
        if model.words
    )


class Serves(StrEnum):
    """The kind of layout that a family turns into jobs; CHECKPOINT any kind, in segments."""

    SINGLE_NODE = "single-node"
    MULTI_NODE = "multi-node"
    MIG = "mig"
    CHECKPOINT = "checkpoint"


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
