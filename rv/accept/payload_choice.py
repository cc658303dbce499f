"""Which payloads of the catalogue a run has, by profile and by name. Pure."""

from collections.abc import Collection, Sequence
from enum import StrEnum

from rv.errors import ErrorKind, RvError
from rv.payloads.contract import catalogue
from rv.payloads.contract.catalogue import PAYLOADS, PayloadSpec


class Profile(StrEnum):
    """How thorough: smoke takes minutes, accept a quarter of an hour, burnin hours."""

    SMOKE = catalogue.SMOKE
    ACCEPT = catalogue.ACCEPT
    BURNIN = catalogue.BURNIN


def find(name: str) -> PayloadSpec:
    """Find a payload by name, with or without `.py`. Raises `RvError(USAGE)` for none."""
    wanted = name.removesuffix(".py")
    for payload in PAYLOADS:
        if payload.name == wanted:
            return payload
    names = [payload.name for payload in PAYLOADS]
    from rv.models.spelling import nearest

    near = nearest(wanted, names)
    meant = f"did you mean {near}? " if near else ""
    raise RvError(
        ErrorKind.USAGE,
        f"there is no payload {name!r}",
        hint=f"{meant}they are: {', '.join(names)}",
    )


def chosen(
    names: Sequence[str], profile: Profile, bundled: Collection[str]
) -> tuple[PayloadSpec, ...]:
    """Choose the payloads named, else all of the profile, in the catalogue's order.

    `bundled` has the names of the scripts that this rv carries; a payload without one is left out,
    and is an error where it was named.
    """
    wanted = {find(name).name for name in names}
    missing = sorted(wanted - set(bundled))
    if missing:
        raise RvError(
            ErrorKind.USAGE,
            f"this rv carries no payload {missing[0]}",
            hint="rv accept list shows them",
        )
    every = [p for p in PAYLOADS if profile in p.steps and p.name in bundled]
    return tuple(p for p in every if not wanted or p.name in wanted)
