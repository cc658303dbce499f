"""Whether stated quantiles hold: each start is foretold from those before it. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from rv.models.performance import PastRace, Source
from rv.models.plan import Estimate
from rv.planner.quantiles import StartSpreads
from tests.bench.trials import Trial


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """How many of the starts of one source came by the p50, and the p90, that was stated.

    `learned` says whether they were stated from earlier starts, or by the prior.
    """

    source: Source
    learned: bool
    starts: int
    by_p50: int
    by_p90: int


def held(past: Sequence[PastRace]) -> list[Held]:
    """Go through races in their order, and state of each what those before it say."""
    found: dict[tuple[Source, bool], Held] = {}
    for number, race in enumerate(past):
        known = race.predicted_s is not None
        estimate = Estimate(
            source=race.source,
            start_in=timedelta(seconds=race.predicted_s or 0.0) if known else None,
        )
        spread = StartSpreads(past[:number]).of(estimate, race.gpus)
        if spread is None:
            continue
        learned = spread.source.endswith(" here")
        key = (race.source, learned)
        before = found.get(
            key, Held(source=race.source, learned=learned, starts=0, by_p50=0, by_p90=0)
        )
        found[key] = replace(
            before,
            starts=before.starts + 1,
            by_p50=before.by_p50 + (race.waited_s <= spread.p50.total_seconds() + 0.5),
            by_p90=before.by_p90 + (race.waited_s <= spread.p90.total_seconds() + 0.5),
        )
    return [found[key] for key in sorted(found)]


def as_past(trials: Iterable[Trial]) -> list[PastRace]:
    """Make records of the trials that were decided; one that had not started by the end is left."""
    return [
        PastRace(
            race_id=str(number),
            submitted_at=float(number),
            source=trial.source,
            waited_s=trial.waited,
            gpus=1,
            predicted_s=trial.predicted,
        )
        for number, trial in enumerate(trials)
        if trial.waited is not None
    ]


def table(rows: Iterable[Held]) -> str:
    """Lay the shares out, one line a source."""
    lines = [f"{'SOURCE':10}{'STATED BY':12}{'STARTS':>7}{'BY P50':>9}{'BY P90':>9}"]
    lines += [
        f"{row.source:10}{'past starts' if row.learned else 'prior':12}{row.starts:7}"
        f"{row.by_p50 / row.starts:9.0%}{row.by_p90 / row.starts:9.0%}"
        for row in rows
    ]
    return "\n".join(lines)
