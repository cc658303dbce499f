"""Show a race as it happens: what was sent, who won, the command's output, and how it ended."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rv.models.race import Claim, Race, RaceState, RaceStatus
from rv.race.submit import SubmitOutcome, SubmitResult
from rv.ui import console
from rv.ui.gpu_views import gpu_use_sentence
from rv.ui.output import OutputLines
from rv.ui.race_views import ending, seconds_text
from rv.ui.reasons import sentence

if TYPE_CHECKING:
    from rv.race.output import Chunk


class Progress:
    """Says each thing once. With `json_only`, the command's output goes to stderr as well."""

    def __init__(self, *, json_only: bool, shows_one_node: bool = False) -> None:
        self._shows_one_node = shows_one_node
        self._output = OutputLines(names_nodes=False, into="err" if json_only else "")
        self._said: set[str] = set()

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
                # It is sent again, and may be heard of no sooner.
                self._once(f"job {result.number} is unconfirmed: {result.text}; see rv ps")

    def status(self, status: RaceStatus) -> None:
        """Say what is new: rejected nodes, the winner, the reason for waiting."""
        self.warnings(status)
        claim = status.claim
        if claim is not None:
            if has_several_nodes(status.race, claim) and not self._shows_one_node:
                self._output.names_nodes = True
            self._once(_started(status, claim))
        if status.state is RaceState.PENDING and status.why:
            self._once(f"waiting: {sentence(status.why)}")

    def warnings(self, status: RaceStatus) -> None:
        """Say what the node checks found, each thing once."""
        for text in _warnings(status):
            self._once(text)

    def has_news(self, status: RaceStatus) -> bool:
        """Whether a node check found something that was not said yet."""
        return not self._said.issuperset(_warnings(status))

    def output(self, chunk: "Chunk") -> None:
        """Pass output on, each line with its node where there are several."""
        self._output.show(chunk)

    def finish(self, status: RaceStatus) -> None:
        """Say how it used its GPUs, and on the last line how it ended."""
        self._output.finish()
        if use := gpu_use_sentence(status):
            console.notice(use)
        console.notice(ending(status))

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            console.notice(text)


def _warnings(status: RaceStatus) -> list[str]:
    return [f"node check: {warning}" for warning in status.warnings]


def has_several_nodes(race: Race, claim: Claim | None) -> bool:
    """Whether the job that won has several nodes, whose lines have to be told apart."""
    entry = race.entry(claim.submission) if claim else None
    return bool(entry and entry.nodes > 1)


def _started(status: RaceStatus, claim: Claim) -> str:
    where = f"on {claim.nodes} as job {claim.job_id}"
    if claim.segment > 1:
        return f"segment {claim.segment} started {where}"
    waited = max(0.0, claim.started_at - status.race.submitted_at)
    strategy = status.race.strategy_of(claim.submission, claim) or "?"
    return f"started {where} ({strategy}) after {seconds_text(waited)}"
