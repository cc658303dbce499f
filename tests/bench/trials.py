"""What was estimated and what then happened. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rv.models.performance import Source
from rv.models.plan import Strategy

PROMPT: Final = 30.0
"""Within so many seconds an idle strategy has to start."""
IDLE_WANTED: Final = 0.95
HOLE_WANTED: Final = 0.80


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """An estimate and the start of the job that tried it, in seconds from the snapshot.

    `window` is None where nothing ends the hole; `waited` where it had not started after `watched`.
    """

    strategy: str
    source: Source
    predicted: float
    window: float | None
    waited: float | None
    watched: float

    @property
    def kept(self) -> bool:
        """Whether it started when the estimate said; a planned one says no bound."""
        if self.waited is None:
            return False
        if self.source is Source.IDLE:
            return self.waited <= PROMPT
        return self.window is None or self.waited <= self.window

    @property
    def decided(self) -> bool:
        """Whether it was watched for long enough to say."""
        limit = PROMPT if self.source is Source.IDLE else self.window
        return self.waited is not None or (limit is not None and self.watched > limit)


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """How many of the decided trials of one source kept their word."""

    kept: int
    decided: int

    @property
    def share(self) -> float:
        """Between 0 and 1; 0 where nothing was tried, which shows nothing."""
        return self.kept / self.decided if self.decided else 0.0


def kept(trials: Sequence[Trial], source: Source) -> Kept:
    """Count one source."""
    decided = [trial for trial in trials if trial.source is source and trial.decided]
    return Kept(kept=sum(trial.kept for trial in decided), decided=len(decided))


def errors(trials: Sequence[Trial]) -> list[float]:
    """Real minus planned start of what was planned and started, in order; positive: it was late."""
    return sorted(
        trial.waited - trial.predicted
        for trial in trials
        if trial.source is Source.PLANNED and trial.waited is not None
    )


def pick(strategies: Sequence[Strategy], draw: float) -> Strategy | None:
    """Draw one of those with an estimate: first a source, evenly, then a strategy of that source.

    `draw` is between 0 and 1. None where nothing is estimated.
    """
    sources = sorted({s.estimate.source for s in strategies} - {Source.UNKNOWN})
    if not sources:
        return None
    place, rest = divmod(draw * len(sources), 1)
    of_source = [s for s in strategies if s.estimate.source is sources[int(place)]]
    return of_source[int(rest * len(of_source))]
