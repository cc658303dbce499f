"""Choose a run's payloads, and write the one command that runs them. Pure.

The command runs each payload in turn on every node, with a time limit
(`rv/payloads/_acceptance/node.py`). Each has a folder of its own for results, of its name, in
RV_OUTPUT_DIR. In it a node writes `node<rank>.begun`, with its host's name and a random token
that the payload's result repeats, before each payload, and `node<rank>.exit`, the exit code in it,
after: where no result is found they say why.
The command itself always ends with 0: one node's failure would end the other nodes' payloads,
and a verdict comes from the results alone. Threads are capped at the CPUs available, to avoid
oversubscription.
"""

import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.request import Command, Launcher
from rv.payloads.contract import catalogue
from rv.payloads.contract.catalogue import FAULTS, PAYLOADS, RANKS, PayloadSpec
from rv.payloads.contract.dcgm import TIMES_S
from rv.workflow.command_line import require_fault

_OWN_END_S: Final = 10
_ACCEPTANCE: Final = "acceptance"
PAIR_FAULTS: Final = ("slow-host", "slow-link")
"""Faults of `--inject` that only the other pairs show."""

_NODES_OF_PAIRS: Final = ("host", "one", "other")
_SHOWN: Final = 8
_HEAD: Final = '"$RV_PYTHON" "$RV_PAYLOADS/_acceptance/node.py"'


class Profile(StrEnum):
    """How thorough: smoke takes minutes, accept a quarter of an hour, burnin hours."""

    SMOKE = catalogue.SMOKE
    ACCEPT = catalogue.ACCEPT
    BURNIN = catalogue.BURNIN


def find(name: str) -> PayloadSpec:
    """Find a payload by name, with or without `.py`. Raises `RvError(USAGE)` for none."""
    stem = name.removesuffix(".py")
    payloads = {payload.name: payload for payload in PAYLOADS}
    if stem in payloads:
        return payloads[stem]
    from rv.models.spelling import nearest

    near = nearest(stem, payloads)
    meant = f"did you mean {near}? " if near else ""
    hint = f"{meant}they are: {', '.join(payloads)}"
    raise RvError(ErrorKind.USAGE, f"there is no payload {name!r}", hint=hint)


def chosen(
    names: Sequence[str], profile: Profile, bundled: Collection[str]
) -> tuple[PayloadSpec, ...]:
    """Choose the payloads named, else all of the profile, in the catalogue's order.

    `bundled` has the names of the scripts that this rv carries; a payload without one is left out,
    and is an error where it was named.
    """
    named = {find(name).name for name in names}
    missing = sorted(named - set(bundled))
    if missing:
        message = f"this rv carries no payload {missing[0]}"
        raise RvError(ErrorKind.USAGE, message, hint="rv accept list shows them")
    every = [p for p in PAYLOADS if profile in p.steps and p.name in bundled]
    return tuple(p for p in every if not named or p.name in named)


def require_faults(faults: Sequence[str], payloads: Sequence[PayloadSpec]) -> tuple[str, ...]:
    """Return the faults; raises `RvError(USAGE)` for one that none of the payloads can make."""
    for fault in faults:
        require_fault(fault, {payload.name: FAULTS[payload.name] for payload in payloads})
    return tuple(faults)


def refuse_faults_of_pairs(faults: Sequence[str]) -> None:
    """Refuse faults that show only where pairs of nodes are compared. Raises `RvError(USAGE)`."""
    for fault in faults:
        if fault.partition(":")[0] in PAIR_FAULTS:
            problem = f"--inject {fault}: one run has no other pair of nodes to compare with"
            hint = f"rv accept sweep --pairs --inject {shlex.quote(fault)}"
            raise RvError(ErrorKind.USAGE, problem, hint=hint)


def require_nodes_of_faults(faults: Sequence[str], nodes: Collection[str]) -> None:
    """Refuse a fault of a node that takes no part. Raises `RvError(USAGE)`."""
    for fault in faults:
        name, _, where = fault.partition(":")
        pairs = (pair.partition("=") for pair in where.split(","))
        named = [value for key, _, value in pairs if key in _NODES_OF_PAIRS]
        strangers = [node for node in named if node not in nodes] if name in PAIR_FAULTS else []
        if strangers:
            problem = f"--inject {fault}: {strangers[0]} is none of the nodes of this sweep"
            hint = f"they are {', '.join(sorted(nodes)[:_SHOWN])}"
            raise RvError(ErrorKind.USAGE, problem, hint=hint)


def command(
    payloads: Sequence[PayloadSpec],
    profile: Profile,
    faults: Sequence[str] = (),
    flags: Sequence[str] = (),
    dcgm: int = 0,
) -> Command:
    """Write the command that runs these payloads.

    Each of `faults` is made in those that can detect it; `flags` go to all of them. `dcgm` is the
    level of DCGM's diagnosis before `check`, 0 for none.
    """
    turns = [
        _turn(payload, profile, [*flags, *_injected(payload, faults)], dcgm) for payload in payloads
    ]
    ranks = any(payload.starts == RANKS for payload in payloads)
    names = " ".join(payload.name for payload in payloads)
    return Command(
        line=" \\\n  ".join([_HEAD, *map(shlex.quote, turns)]) + "\nexit 0",
        launcher=Launcher.TORCHRUN if ranks else Launcher.PLAIN,
        payload=payloads[0].name,
        typed=f"{_ACCEPTANCE} {profile}: {names}",
    )


def read_typed(typed: str) -> tuple[Profile, tuple[PayloadSpec, ...]] | None:
    """Read the profile and the payloads from what `typed` of such a command says; None for others.

    Raises `RvError(USAGE)` for a payload that this rv does not know, as a newer one has: without
    it the verdict would vouch for more than was read.
    """
    head, _, names = typed.partition(": ")
    word, _, profile = head.partition(" ")
    if word != _ACCEPTANCE or profile not in set(Profile):
        return None
    known = {payload.name: payload for payload in PAYLOADS}
    if unknown := sorted(set(names.split()) - set(known)):
        problem = f"this rv does not know the payload {unknown[0]}, which the run has"
        raise RvError(ErrorKind.USAGE, problem, hint="judge it with the rv that began it")
    payloads = tuple(known[name] for name in known if name in names.split())
    return (Profile(profile), payloads) if payloads else None


def _injected(payload: PayloadSpec, faults: Sequence[str]) -> list[str]:
    own = [fault for fault in faults if fault.partition(":")[0] in FAULTS[payload.name]]
    return [word for fault in own for word in ("--inject", fault)]


def _turn(payload: PayloadSpec, profile: Profile, extra: Sequence[str], dcgm: int) -> str:
    """Write a payload as node.py takes it: start, name, time limit, arguments."""
    step = payload.steps[profile]
    if dcgm and payload.name == "check":
        arguments = (*step.arguments, "--dcgm", str(dcgm))
        step = replace(step, arguments=arguments, timeout_s=step.timeout_s + int(TIMES_S[dcgm]))
    # Its own limit comes first, so that it can say what it was at.
    # Here all references are known, there only those that came with rv.
    words = [*step.arguments, "--timeout", str(max(1, step.timeout_s - _OWN_END_S))]
    words += ["--no-reference", *extra]
    return shlex.join([payload.starts, payload.name, str(step.timeout_s), *words])
