"""Show a race as it happens: what was sent, who won, the command's output, and how it ended."""

from collections.abc import Sequence

from rv.models.race import Claim, RaceState, RaceStatus
from rv.race.directory import Chunk
from rv.race.submit import SubmitOutcome, SubmitResult
from rv.ui import console
from rv.ui.gpu_views import gpu_use_sentence
from rv.ui.race_views import ending, seconds_text
from rv.ui.reasons import sentence


class Progress:
    """Says each thing once. With `json_only`, the command's output goes to stderr as well."""

    def __init__(self, *, json_only: bool, prefix_nodes: bool = False) -> None:
        self._json_only = json_only
        self._prefix = prefix_nodes
        self._said: set[str] = set()
        self._partial: dict[tuple[int, bool], bytes] = {}

    def say(self, text: str) -> None:
        """Say a sentence."""
        console.say(text)

    def submitted(self, results: Sequence[SubmitResult]) -> None:
        """Say what Slurm took and what it refused."""
        taken = [result for result in results if result.outcome is SubmitOutcome.ACCEPTED]
        if taken:
            ids = ", ".join(map(str, sorted(result.job_id for result in taken)))
            console.notice(f"submitted {len(taken)} job{'s' if len(taken) > 1 else ''}: {ids}")
        for result in results:
            if result.outcome is SubmitOutcome.REFUSED:
                console.notice(f"job {result.number} was refused: {result.text}")
            elif result.outcome is SubmitOutcome.UNSENT:
                console.notice(f"job {result.number} was not sent: {result.text}")
            elif result.outcome is SubmitOutcome.UNKNOWN:
                console.notice(f"job {result.number} is unconfirmed: {result.text}; see rv ps")

    def status(self, status: RaceStatus) -> None:
        """Say what is new: rejected nodes, the winner, the reason for waiting."""
        for warning in status.warnings:
            self._once(f"node check: {warning}")
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
        """Say how it used its GPUs, and on the last line how it ended."""
        for (node, is_error), rest in sorted(self._partial.items()):
            if rest:
                line = f"[node{node}] ".encode() + rest + b"\n"
                console.raw(line, is_error=is_error or self._json_only)
        if use := gpu_use_sentence(status):
            console.notice(use)
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
    return f"started {where} ({strategy}) after {seconds_text(waited)}"
