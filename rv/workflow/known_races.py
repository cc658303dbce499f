"""Races as this machine knows them, without asking any cluster.

Where Slurm's commands run here their directories lie here too, and tell. Of a cluster behind a
login node there is what the last `rv ps` or launch said.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rv.dataclass import dataclass
from rv.files import read_regular
from rv.slurm.cache import SnapshotCache
from rv.slurm.printable import printable
from rv.workflow.names import is_plain
from rv.workflow.which_cluster import ClusterIdentity, cache_of, race_root_here

if TYPE_CHECKING:
    from rv.models.race import Race, RaceStatus

WAITS: Final = "waits"
RUNS: Final = "runs"
OVER: Final = "over"

_FILE: Final = "races"
_KEPT: Final = timedelta(days=30)
_MOST: Final = 200
_LARGEST: Final = 1 << 20
_COMMAND: Final = 200
_ENDS: Final = ("verdict.json", "lost", "stop")


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownRace:
    """A race as it was last heard of; `state` is WAITS, RUNS or OVER."""

    race_id: str
    name: str
    state: str
    command: str
    submitted_at: float


def keep_races(cache: SnapshotCache, statuses: Sequence["RaceStatus"]) -> None:
    """Keep the races of a cluster that is elsewhere, in place of those before."""
    _store(cache, [_known(status.race, _state(status)) for status in statuses])


def keep_race(cache: SnapshotCache, race: "Race") -> None:
    """Keep one more race of a cluster that is elsewhere."""
    _store(cache, [_known(race, WAITS), *_stored(cache)])


def known_races(identity: ClusterIdentity, environ: Mapping[str, str]) -> tuple[KnownRace, ...]:
    """Return the races of a cluster, newest first, at most the 200 latest."""
    if identity.host:
        return _stored(cache_of(identity))
    races = (
        _read(Path(path), identity.key) for path in _folders(race_root_here(identity, environ))
    )
    return _sorted(race for race in races if race)


def _folders(root: str) -> list[str]:
    """Name the race directories that changed last."""
    with suppress(OSError), os.scandir(root) as entries:
        found = [each for each in entries if not each.name.startswith(".")]
        found.sort(key=lambda entry: -entry.stat(follow_symlinks=False).st_mtime)
        return [entry.path for entry in found[:_MOST]]
    return []


def _read(folder: Path, cluster: str) -> KnownRace | None:
    """Read a race of this cluster from its directory."""
    try:
        record = json.loads(read_regular(folder / "race.json", _LARGEST))
        if record["cluster"] != cluster:
            return None
        asked = (record.get("request") or {}).get("command") or {}
        command = "a shell" if record.get("is_shell") else asked.get("typed") or record["command"]
        return _checked({**record, "state": _state_of(folder, record), "command": command})
    except (AttributeError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _state_of(folder: Path, record: Mapping[str, Any]) -> str:
    is_over = any((folder / name).exists() for name in _ENDS)
    if is_over or (not record.get("chain") and (folder / "ended").exists()):
        return OVER
    return RUNS if (folder / "claim").exists() else WAITS


def _state(status: "RaceStatus") -> str:
    if status.state.is_over:
        return OVER
    return RUNS if status.claim else WAITS


def _known(race: "Race", state: str) -> KnownRace:
    command = "a shell" if race.is_shell else race.typed_command
    return KnownRace(
        race_id=race.race_id,
        name=race.name,
        state=state,
        command=command[:_COMMAND],
        submitted_at=race.submitted_at,
    )


def _store(cache: SnapshotCache, races: Iterable[KnownRace]) -> None:
    cache.store(_FILE, json.dumps([asdict(race) for race in races][:_MOST]), "")


def _stored(cache: SnapshotCache) -> tuple[KnownRace, ...]:
    answer = cache.load(_FILE, _KEPT)
    try:
        found = json.loads(answer.text) if answer else []
        return _sorted(race for each in found if (race := _checked(each)))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()


def _checked(fields: Mapping[str, Any]) -> KnownRace | None:
    """Make a race of what a file says; None where its id is none."""
    name = fields.get("name", "")
    if not is_plain(fields["race_id"]):
        return None
    return KnownRace(
        race_id=fields["race_id"],
        name=name if is_plain(name) else "",
        state=str(fields["state"]),
        command=printable(str(fields["command"])[:_COMMAND]),
        submitted_at=float(fields["submitted_at"]),
    )


def _sorted(races: Iterable[KnownRace]) -> tuple[KnownRace, ...]:
    return tuple(sorted(races, key=lambda race: -race.submitted_at))
