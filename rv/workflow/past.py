"""What was expected of earlier races and what happened, kept on this machine for later estimates.

One record a race, in one file a cluster in the user's cache: the 500 latest. Two processes that
write at once may lose a record; the next command that looks at the race keeps it again.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rv.models.performance import PastRace
from rv.models.plain import build, plain
from rv.slurm.cache import SnapshotCache

if TYPE_CHECKING:
    from rv.models.race import Claim, RaceStatus

_FILE: Final = "past"
_KEPT: Final = timedelta(days=365)
_MOST: Final = 500


def load_past(cache: SnapshotCache) -> tuple[PastRace, ...]:
    """Return what is kept of a cluster, the latest race last; what cannot be read is left out."""
    answer = cache.load(_FILE, _KEPT)
    return read_past(answer.text) if answer else ()


def read_past(text: str) -> tuple[PastRace, ...]:
    """Read records as `keep_past` writes them; what is none is left out."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    return tuple(_read(rows if isinstance(rows, list) else []))


def _read(rows: Iterable[object]) -> Iterator[PastRace]:
    for row in rows:
        try:
            record = build(PastRace, row) if isinstance(row, dict) else None
        except (ValueError, TypeError):
            continue
        if record and record.is_sound:
            yield record


def keep_past(cache: SnapshotCache, statuses: Iterable["RaceStatus"]) -> None:
    """Keep what became of the races that have started, in place of what was kept of them."""
    every = map(past_race, statuses)
    seen = [record for record in every if record and record.is_sound]
    if not seen:
        return
    kept = {record.race_id: record for record in load_past(cache)}
    changed = kept | {record.race_id: record for record in seen}
    if changed == kept:
        return
    latest = sorted(changed.values(), key=lambda record: record.submitted_at)[-_MOST:]
    cache.store(_FILE, json.dumps([plain(record) for record in latest]), "")


def past_race(status: "RaceStatus") -> PastRace | None:
    """Return the record of a race; None for one that has not started, or had no estimate."""
    race, first = status.race, _first_claim(status)
    winner = race.winner(first) if first else None
    if first is None or winner is None or winner.source is None:
        return None
    return PastRace(
        race_id=race.race_id,
        submitted_at=race.submitted_at,
        source=winner.source,
        waited_s=max(0.0, first.started_at - race.submitted_at),
        gpus=winner.gpus,
        predicted_s=winner.predicted_s,
        name=race.name,
        gpu=winner.gpu,
        nodes=winner.nodes,
        partition=winner.partition,
        predicted_run_s=winner.predicted_run_s,
        run_s=status.elapsed_s if _did_all_there(status) else None,
        work=race.work.gpu_hours if race.work else 0.0,
        reference=race.work.reference if race.work else "",
    )


def _did_all_there(status: "RaceStatus") -> bool:
    """Whether the command did all of its work, and all of it on the layout that it began on.

    What goes on from a checkpoint had only the rest to do, and a chain may have changed its layout.
    """
    strategies = {one.claim.strategy for one in status.segments}
    return status.exit_code == 0 and not status.race.resumes and len(strategies) < 2


def _first_claim(status: "RaceStatus") -> "Claim | None":
    """Return the claim with which the command started first: of a chain its first segment's."""
    if status.claim is None or status.claim.segment == 1:
        return status.claim
    return next((one.claim for one in status.segments if one.number == 1), None)
