"""What the configuration files say, with the origin of values, FILE:LINE."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


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
    maps a node to the reason why rv itself submits no job to it.
    """

    prices: Mapping[str, Price] = field(default_factory=dict)
    unit: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)
    max_fanout: Ceiling | None = None
    aliases: tuple[Alias, ...] = ()
    avoided: Mapping[str, str] = field(default_factory=dict)


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
