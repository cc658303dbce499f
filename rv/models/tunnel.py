"""Ports of a node that lead here."""

from rv.dataclass import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Port:
    """A port of a node, and the one of this machine that leads there; 0 for any that is free."""

    remote: int
    local: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TunnelRecord:
    """A tunnel in the background; `why` is what it failed with, "" where it did not."""

    race: str
    name: str
    cluster: str
    node: str
    ports: tuple[Port, ...]
    pid: int
    is_live: bool = True
    why: str = ""
