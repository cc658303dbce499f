"""The payloads: what each tests, which profile runs it, with what arguments and how long. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rv.errors import ErrorKind, RvError


class Profile(StrEnum):
    """How thorough: smoke takes minutes, accept a quarter of an hour, burnin hours."""

    SMOKE = "smoke"
    ACCEPT = "accept"
    BURNIN = "burnin"


class Starts(StrEnum):
    """How a payload is started: once a node, by torchrun with one rank a GPU, or once in all."""

    NODE = "python"
    RANKS = "torchrun"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One payload as a profile runs it: its arguments, and the seconds it may take."""

    arguments: tuple[str, ...]
    timeout_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Payload:
    """A bundled payload. `steps` has the profiles that run it, in the order of the catalogue."""

    name: str
    tests: str
    starts: Starts
    steps: dict[Profile, Step]

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles that have it."""
        return tuple(profile for profile in Profile if profile in self.steps)


def _steps(
    smoke: str, smoke_s: int, accept: str, accept_s: int, burnin: str, burnin_s: int
) -> dict[Profile, Step]:
    told = {
        Profile.SMOKE: (smoke, smoke_s),
        Profile.ACCEPT: (accept, accept_s),
        Profile.BURNIN: (burnin, burnin_s),
    }
    return {
        profile: Step(arguments=tuple(words.split()), timeout_s=seconds)
        for profile, (words, seconds) in told.items()
        if seconds
    }


PAYLOADS: Final = (
    Payload(
        name="check",
        tests="environment, devices as promised, exact matmul and its rate",
        starts=Starts.NODE,
        steps=_steps("--quick", 120, "", 300, "", 600),
    ),
    Payload(
        name="membw",
        tests="memory pattern and bandwidth, host link, peer copies",
        starts=Starts.NODE,
        steps=_steps("--quick", 120, "", 300, "", 900),
    ),
    Payload(
        name="allreduce",
        tests="collectives exact at every size and rank, bus bandwidth, stragglers",
        starts=Starts.RANKS,
        steps=_steps("--quick", 120, "", 300, "", 900),
    ),
    Payload(
        name="train",
        tests="DDP training: loss falls, replicas equal, gradients right",
        starts=Starts.RANKS,
        steps=_steps("--quick", 120, "", 300, "", 900),
    ),
    Payload(
        name="train_fsdp",
        tests="sharded training: gradient parity, memory per rank, checkpoint",
        starts=Starts.RANKS,
        steps=_steps("--quick", 120, "", 300, "", 900),
    ),
    Payload(
        name="dataload",
        tests="every sample exactly once, worker sweep, CPUs and shared memory",
        starts=Starts.NODE,
        steps=_steps("--quick", 120, "", 300, "", 600),
    ),
    Payload(
        name="ckpt_cycle",
        tests="kill and resume bitwise, resharded load, damaged files",
        starts=Starts.NODE,
        steps=_steps("--quick", 120, "", 300, "", 900),
    ),
    Payload(
        name="alloc_stress",
        tests="parallel workers on the GPUs given and no others, balance, leaks",
        starts=Starts.NODE,
        steps=_steps("--quick", 120, "--duration 30", 300, "--duration 120", 900),
    ),
    Payload(
        name="stress",
        tests="continuous load with a bitwise check, temperature, throttling",
        starts=Starts.NODE,
        steps=_steps("--quick --duration 5", 120, "--duration 120", 400, "--duration 3600", 4500),
    ),
    Payload(
        name="tensor_service",
        tests="tensors to a server and back, exact, with timing split by phase",
        starts=Starts.NODE,
        steps=_steps("pair --here --quick", 120, "pair --here", 300, "pair --here", 600),
    ),
    Payload(
        name="storage_net",
        tests="scratch writes and reads, many small files, network",
        starts=Starts.NODE,
        steps=_steps("--quick", 120, "", 300, "", 900),
    ),
)
"""The order is that of a run: what is cheap and what others rest on comes first."""

DEFAULT_TIME: Final = {Profile.SMOKE: "20m", Profile.ACCEPT: "1h", Profile.BURNIN: "8h"}
"""The walltime of each profile's job, where none is given."""


def find(name: str) -> Payload:
    """Find a payload by name, with or without `.py`. Raises `RvError(USAGE)` for none."""
    wanted = name.removesuffix(".py")
    for payload in PAYLOADS:
        if payload.name == wanted:
            return payload
    names = [payload.name for payload in PAYLOADS]
    from rv.planner.documents import nearest

    near = nearest(wanted, names)
    meant = f"did you mean {near}? " if near else ""
    raise RvError(
        ErrorKind.USAGE,
        f"there is no payload {name!r}",
        hint=f"{meant}they are: {', '.join(names)}",
    )


def chosen(names: Sequence[str], profile: Profile, bundled: Collection[str]) -> tuple[Payload, ...]:
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
