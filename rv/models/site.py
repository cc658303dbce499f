"""What the configuration files say, with the origin of values, FILE:LINE."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Final

from rv.dataclass import dataclass
from rv.models.performance import PastRace, Performance

ALL: Final = "all"
"""Every cluster that has a name."""

ONE_OF: Final = ("venv", "conda", "container")
"""Options of which a command has one: a file's stands in place of another of a file below."""

LOCAL: Final = "local"
SANDBOX: Final = "sandbox"


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """What one GPU costs for an hour, in the site's unit."""

    per_gpu_hour: float
    origin: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Ceiling:
    """How many jobs one race may have."""

    jobs: int
    origin: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Alias:
    """Which GPU models a word of `--type` means, best first. The user's win over the site's."""

    word: str
    models: tuple[str, ...]
    origin: str
    by_site: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Facts of the site that Slurm's commands do not show.

    `prices` are by canonical GPU model; `unit` names what they, and Slurm's billing weights, are
    counted in. `skipped` maps a partition to the origin of the setting that skips it. `avoided`
    maps a node to the reason why rv itself submits no job to it. `performance` is what GPUs were
    measured or published to do, `past` what became of earlier races on this cluster.
    """

    prices: Mapping[str, Price] = field(default_factory=dict)
    unit: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)
    max_fanout: Ceiling | None = None
    aliases: tuple[Alias, ...] = ()
    avoided: Mapping[str, str] = field(default_factory=dict)
    performance: Performance = field(default_factory=Performance)
    past: tuple[PastRace, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """The value of an option that a file sets, and where."""

    value: Any
    origin: str


class SshKind(StrEnum):
    """How rv connects: by the user's own ssh, by paramiko, or by the first of them that can."""

    AUTO = "auto"
    OPENSSH = "openssh"
    PARAMIKO = "paramiko"


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedCluster:
    """A cluster that a file gives a name.

    `host` is what locates it: a name of ssh's, USER@HOST, `local` or `sandbox[:NAME]`. `race_root`
    may hold variables of the login there, "" is the usual folder. `origin` is where it is named.
    """

    name: str
    host: str = ""
    ssh: SshKind | None = None
    race_root: str = ""
    origin: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clusters:
    """The clusters with a name, and which of them is taken where none is asked for."""

    named: Mapping[str, NamedCluster] = field(default_factory=dict)
    default: Setting | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """The files, read: options by their name in Python (`wait_timeout`), and the site's facts."""

    defaults: Mapping[str, Setting] = field(default_factory=dict)
    site: Site = field(default_factory=Site)


def is_built_in(word: str) -> bool:
    """Whether a word locates a cluster without a name: local, sandbox[:NAME], USER@HOST, ssh:…."""
    return word.partition(":")[0] in (LOCAL, SANDBOX, "ssh") or "@" in word


def overlaid(below: Mapping[str, Setting], above: Mapping[str, Setting]) -> dict[str, Setting]:
    """Lay settings over others; options that may be repeated come from both."""
    replaced = ONE_OF if above.keys() & set(ONE_OF) else ()
    kept = {name: setting for name, setting in below.items() if name not in replaced}
    return {**kept, **above, **_joined(below, above)}


def override(below: Iterable[str], above: Iterable[str]) -> list[str]:
    """Lay words `K=V` over others: of two with one key the later stays."""
    words = (word.removeprefix("--") for word in (*below, *above))
    return list({word.partition("=")[0]: word for word in words}.values())


def _joined(below: Mapping[str, Setting], above: Mapping[str, Setting]) -> dict[str, Setting]:
    """Options that may be repeated come from both files."""
    both = below.keys() & above.keys()
    pairs = {name: (below[name].value, above[name].value) for name in both}
    return {
        name: Setting(value=override(first, second), origin=above[name].origin)
        for name, (first, second) in pairs.items()
        if isinstance(first, list) and isinstance(second, list)
    }
