"""Show a race as it happens: what was sent, who won, the command's output, and how it ended."""

import signal
from collections.abc import Sequence
from datetime import timedelta

from rv.models.quantities import short_duration
from rv.models.race import Claim, RaceState, RaceStatus
from rv.race.output import Chunk
from rv.race.submit import Outcome, Submitted
from rv.ui import console
from rv.ui.reasons import sentence


class Follower:
    """Says each thing once. With `json_only`, the command's output goes to stderr as well."""

    def __init__(self, *, json_only: bool, prefix_nodes: bool = False) -> None:
        self._json_only = json_only
        self._prefix = prefix_nodes
        self._said: set[str] = set()
        self._partial: dict[tuple[int, bool], bytes] = {}

    def submitted(self, fates: Sequence[Submitted]) -> None:
        """Say what Slurm took and what it refused."""
        taken = [fate for fate in fates if fate.outcome is Outcome.ACCEPTED]
        if taken:
            ids = ", ".join(map(str, sorted(fate.job_id for fate in taken)))
            console.notice(f"submitted {len(taken)} job{'s' if len(taken) > 1 else ''}: {ids}")
        for fate in fates:
            if fate.outcome is Outcome.REFUSED:
                console.notice(f"job {fate.number} was refused: {fate.text}")
            elif fate.outcome is Outcome.UNSENT:
                console.notice(f"job {fate.number} was not sent: {fate.text}")
            elif fate.outcome is Outcome.UNKNOWN:
                console.notice(f"job {fate.number} is in doubt: {fate.text}; rv ps will tell")

    def status(self, status: RaceStatus) -> None:
        """Say what is new: unfit nodes, the winner, the reason for waiting."""
        for warning in status.warnings:
            self._once(f"unfit or odd node {warning}")
        claim = status.claim
        if claim is not None:
            entry = status.race.entry(claim.submission)
            self._prefix = self._prefix or bool(entry and entry.nodes > 1)
            self._once(_started(status, claim))
        if status.state is RaceState.PENDING and status.why:
            self._once(f"waiting: {sentence(status.why)}")

    def output(self, chunk: Chunk) -> None:
        """Pass output on, each line with its node where there are several."""
        is_error = chunk.is_error or self._json_only
        if not self._prefix:
            console.raw(chunk.data, is_error=is_error)
            return
        key = (chunk.node, chunk.is_error)
        *lines, rest = (self._partial.pop(key, b"") + chunk.data).split(b"\n")
        self._partial[key] = rest
        label = f"[node{chunk.node}] ".encode()
        console.raw(b"".join(label + line + b"\n" for line in lines), is_error=is_error)

    def finish(self, status: RaceStatus) -> None:
        """Say how it ended, on the last line."""
        for (node, is_error), rest in sorted(self._partial.items()):
            if rest:
                line = f"[node{node}] ".encode() + rest + b"\n"
                console.raw(line, is_error=is_error or self._json_only)
        console.notice(ending(status))

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            console.notice(text)


def _started(status: RaceStatus, claim: Claim) -> str:
    where = f"on {claim.nodes} as job {claim.job_id}"
    if claim.segment > 1:
        return f"segment {claim.segment} started {where}"
    waited = max(0.0, claim.started_at - status.race.submitted_at)
    strategy = status.race.strategy_of(claim.submission, claim) or "?"
    return f"started {where} ({strategy}) after {_seconds(waited)}"


def ending(status: RaceStatus) -> str:
    """Put the end of a race into a sentence: state, code, wait, run, cost."""
    parts = [f"race {status.race.race_id} {status.state}"]
    if status.exit_code is not None:
        parts.append(f"exit code {status.exit_code}{_signal_name(status.exit_code)}")
    if status.started_at:
        parts.append(f"waited {_seconds(max(0.0, status.started_at - status.race.submitted_at))}")
    if status.started_at and status.ended_at:
        ran = status.elapsed or 0.0
        parts.append(f"ran {_seconds(ran)}{_in_segments(status)}")
        parts.extend(_cost(status, ran))
    told = status.state is RaceState.FAILED and status.exit_code is not None
    if status.why and not told:
        parts.append(status.why)
    return ", ".join(parts)


def _in_segments(status: RaceStatus) -> str:
    count = status.claim.segment if status.claim else 1
    return f" in {count} segments" if count > 1 else ""


def _signal_name(code: int) -> str:
    """Name the signal that 128 + n stands for, as in 137 (SIGKILL)."""
    try:
        return f" ({signal.Signals(code - 128).name})"
    except ValueError:
        return ""


def _cost(status: RaceStatus, ran: float) -> list[str]:
    entry = status.race.winner(status.claim) if status.claim else None
    if entry is None or entry.cost is None or not entry.walltime:
        return []
    cost = entry.cost * ran / entry.walltime.total_seconds()
    return [f"cost {cost:.2f} {entry.cost_unit}".rstrip()]


def _seconds(value: float) -> str:
    return short_duration(timedelta(seconds=round(value)))
