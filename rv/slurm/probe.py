"""One round trip that asks a cluster everything a plan needs."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.snapshot import Snapshot
from rv.slurm.accounting import ACCOUNTS
from rv.slurm.assemble import build_snapshot
from rv.slurm.cache import Answer, SnapshotCache
from rv.slurm.frames import Frame, framing_script, parse_frames, write_frames
from rv.slurm.queued import squeue_line
from rv.slurm.text import last_line
from rv.transport import Transport
from rv.transport.patience import ask_again

SHARED_FOR: Final = timedelta(seconds=30)
"""How long one snapshot serves all of a user's rv processes."""

_ACCOUNTS_FOR: Final = timedelta(minutes=10)
_NO_ACCOUNTS_FOR: Final = timedelta(minutes=1)
# A dead controller is reported after 9 s, a silent one after its MessageTimeout, 10 s by default.
_CONTROLLER_SECONDS: Final = 12
_DATABASE_SECONDS: Final = 5


def new_sentinel() -> str:
    """Draw a sentinel for one script. It begins with a letter: squeue reads digits as a width."""
    return f"rv{secrets.token_hex(8)}"


def probe_script(sentinel: str, *, with_accounts: bool = True) -> str:
    """Return the bash text of one probe; its rows and frames carry `sentinel`."""
    commands = {
        "config": "scontrol show config",
        # Without -a what is hidden, or for other groups, is not shown and could not be explained.
        "nodes": "scontrol -a show node -d -o",
        "partitions": "scontrol -a show partition -o",
        "reservations": "scontrol show reservation -o",
        "queue": squeue_line(sentinel),
        "clock": "date +%Y-%m-%dT%H:%M:%S",
        "user": "id -un",
        "groups": "id -Gnz",
    }
    # The slow ones first: they wait for the database while the others start.
    asked = ACCOUNTS if with_accounts else {}
    timed = {name: (_DATABASE_SECONDS, line) for name, line in asked.items()}
    timed |= {name: (_CONTROLLER_SECONDS, line) for name, line in commands.items()}
    return framing_script(timed, sentinel)


def take_snapshot(
    transport: Transport,
    cache: SnapshotCache | None = None,
    *,
    max_age: timedelta = SHARED_FOR,
    timeout: float = 30.0,
) -> Snapshot:
    """Return the cluster as it is, or as it was at most `max_age` ago; `timeout` is in seconds.

    Raises `RvError(UNREACHABLE)` where there is no Slurm or its controller does not answer. What
    else could not be read is a note of the snapshot.
    """
    accounts = _stored_accounts(cache)
    stored = _stored_probe(cache, max_age)
    if stored is not None and accounts is not None:
        return build_snapshot(stored.frames | accounts, stored.sentinel)
    answer, snapshot = _ask_again(transport, timeout, accounts)
    if cache is not None:
        cache.store("probe", answer.text, answer.sentinel)
        if accounts is None:
            kept = write_frames(_only_accounts(answer.frames), answer.sentinel)
            cache.store("accounts", kept, answer.sentinel)
    return snapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class _Framed:
    text: str
    sentinel: str
    frames: dict[str, Frame]


def _ask_again(
    transport: Transport, timeout: float, accounts: dict[str, Frame] | None
) -> tuple["_Framed", Snapshot]:
    """Ask, and again for some seconds where Slurm does not answer: a probe changes nothing."""
    errors: list[RvError] = []

    def ask() -> tuple[_Framed, Snapshot] | None:
        try:
            answer = _ask(transport, timeout, with_accounts=accounts is None)
            return answer, build_snapshot(answer.frames | (accounts or {}), answer.sentinel)
        except RvError as error:
            errors.append(error)
            return None

    if (found := ask_again(ask)) is None:
        raise errors[-1]
    return found


def _ask(transport: Transport, timeout: float, *, with_accounts: bool) -> _Framed:
    sentinel = new_sentinel()
    completed = transport.run(probe_script(sentinel, with_accounts=with_accounts), timeout=timeout)
    frames = parse_frames(completed.stdout, sentinel)
    if frames is None:
        why = last_line(completed.stderr) or f"exit code {completed.returncode}"
        if completed.timed_out:
            why = f"no answer within {timeout:g} s"
        raise RvError(
            ErrorKind.UNREACHABLE,
            f"the cluster could not be asked: {why}",
            hint="try again in a minute; scontrol ping says whether it is there",
        )
    return _Framed(text=completed.stdout, sentinel=sentinel, frames=frames)


def _framed(answer: Answer | None) -> _Framed | None:
    frames = parse_frames(answer.text, answer.sentinel) if answer else None
    if answer is None or frames is None:
        return None
    return _Framed(text=answer.text, sentinel=answer.sentinel, frames=frames)


def _stored_probe(cache: SnapshotCache | None, max_age: timedelta) -> _Framed | None:
    return _framed(cache.load("probe", max_age)) if cache else None


def _stored_accounts(cache: SnapshotCache | None) -> dict[str, Frame] | None:
    """Return fresh accounting frames; those of a database that did not answer age sooner."""
    if cache is None:
        return None
    for max_age in (_NO_ACCOUNTS_FOR, _ACCOUNTS_FOR):
        framed = _framed(cache.load("accounts", max_age))
        frames = _only_accounts(framed.frames) if framed else {}
        if len(frames) == len(ACCOUNTS) and (
            max_age is _NO_ACCOUNTS_FOR or all(frame.is_good for frame in frames.values())
        ):
            return frames
    return None


def _only_accounts(frames: Mapping[str, Frame]) -> dict[str, Frame]:
    return {name: frame for name, frame in frames.items() if name in ACCOUNTS}
