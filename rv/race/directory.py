"""The race directory: the record `race.json`, its jobs' state files and output.

Whatever a job wrote is read as untrusted text: what does not parse counts as absent.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from rv.errors import RvError
from rv.models.plain import build, plain
from rv.models.race import Claim, Ended, Race, Segment, StateFiles
from rv.race.file_names import RECORD, STAGED, STATE_FILES
from rv.race.task_runs import task_runs_of
from rv.render.quote import shell
from rv.slurm.printable import printable
from rv.slurm.script import new_sentinel
from rv.transport import Transport

CLOSED: Final = "closed: "
"""What the file `stop` begins with where a client wrote it by itself; the reason follows."""

_OWNER: Final = re.compile(r"(\d{1,18})\.(\d{1,18})((?:\.[0-9a-f]{1,32})?)", re.ASCII)
_PLAIN_NAME: Final = re.compile(r"[\w-]+", re.ASCII)
_LATEST_S: Final = 253_402_300_799.0  # the end of the year 9999


def load_races(root: str, cluster: str, transport: Transport) -> tuple[Race, ...]:
    """Read the records of this cluster's races, newest first."""
    races = (load_race(f"{root}/{name}", transport) for name in transport.directories(root))
    ours = [race for race in races if race is not None and race.cluster == cluster]
    return tuple(sorted(ours, key=lambda race: -race.submitted_at))


def remove_race(race: Race, transport: Transport) -> None:
    """Delete a race directory, and the marker beside it."""
    transport.remove(race.directory)
    path = PurePosixPath(race.directory)
    transport.run(f"rm -f {shell(str(path.parent / STAGED / path.name))}", timeout_s=30)


def load_race(directory: str, transport: Transport) -> Race | None:
    """Read one race's record; None where there is none, or one of another race.

    The id of a race becomes the name of files on this machine: it must be its directory's name.
    """
    text = transport.read(f"{directory}/{RECORD}")
    race = read_record(text.decode("utf-8", errors="replace"), directory) if text else None
    is_its_own = race is not None and race.race_id == PurePosixPath(directory).name
    return race if is_its_own else None


def load_state_files(race: Race, transport: Transport) -> StateFiles:
    """Read the state files of a race.

    Where its directory was deleted, return those that this process read last, with `deleted` set.
    """
    files = read_state_files(transport.read_tree(race.directory, STATE_FILES))
    return _last_known(race, files, transport)


def load_all_state_files(races: Sequence[Race], transport: Transport) -> dict[str, StateFiles]:
    """Read the state files of several races, by race id; of one folder's races in one go."""
    roots: dict[str, list[Race]] = {}
    for race in races:
        root, _, name = race.directory.rpartition("/")
        alone = race.directory if not _PLAIN_NAME.fullmatch(name) else root
        roots.setdefault(alone, []).append(race)
    loaded: dict[str, StateFiles] = {}
    for root, members in roots.items():
        if len(members) == 1:
            loaded[members[0].race_id] = load_state_files(members[0], transport)
        else:
            loaded |= _load_together(root, members, transport)
    return loaded


def _load_together(root: str, races: Sequence[Race], transport: Transport) -> dict[str, StateFiles]:
    folders = {race.race_id: PurePosixPath(race.directory).name for race in races}
    patterns = [f"{folder}/{name}" for folder in folders.values() for name in STATE_FILES]
    of_folder: dict[str, dict[str, bytes]] = {folder: {} for folder in folders.values()}
    for path, data in transport.read_tree(root, patterns).items():
        folder, _, name = path.partition("/")
        of_folder[folder][name] = data
    return {
        race.race_id: _last_known(
            race, read_state_files(of_folder[folders[race.race_id]]), transport
        )
        for race in races
    }


def _last_known(race: Race, files: StateFiles, transport: Transport) -> StateFiles:
    """Return what was read, or what was read before where the directory was deleted since."""
    if race.sweep:
        files = replace(files, tasks=task_runs_of(race, transport))
    before = _cache.get(race.directory, files)
    if files != StateFiles() and not _is_being_deleted(files, before):
        return cache(race, files)
    exists = transport.read(f"{race.directory}/{RECORD}", limit=1) is not None
    return replace(before, deleted=not exists)


def cache(race: Race, files: StateFiles) -> StateFiles:
    """Keep the state files of a race as those that were read last, and return them."""
    _cache[race.directory] = files
    return files


_cache: Final[dict[str, StateFiles]] = {}


def _is_being_deleted(files: StateFiles, before: StateFiles) -> bool:
    """Return whether a file has vanished that rv never removes: a claim, or a job's id."""
    ids = {number for number, _ in files.job_ids}
    ids_before = {number for number, _ in before.job_ids}
    return not ids_before <= ids or (before.claim is not None and files.claim is None)


def write_state_file(race: Race, name: str, contents: str, transport: Transport) -> bool:
    """Write a state file, best effort; return whether it succeeded."""
    with suppress(RvError):
        transport.write(f"{race.directory}/{name}", contents.encode())
        return True
    return False


# By a link, made once, and by the disk's clock alone: those of two machines may disagree.
_SEE_UNSENT: Final = r"""
cd "$RV_DIR" && [ -O . ] || exit
draft=.unsent.$RV_MARK
trap 'rm -f "$draft"' EXIT
: >"$draft" || exit
ln -T "$draft" unsent 2>/dev/null
since=$(stat -c %Y unsent) && echo $(($(stat -c %Y "$draft") - since))
"""


def unsent_for_s(race: Race, transport: Transport) -> float | None:
    """Return the seconds since a client first saw a race unsent; None where none can note it."""
    settings = f"RV_DIR={shell(race.directory)} RV_MARK={new_sentinel()}"
    text = transport.run(f"{settings}\n{_SEE_UNSENT}", timeout_s=30).stdout.strip()
    digits = text.removeprefix("-")
    return float(text) if digits.isascii() and digits.isdigit() else None


def record_text(race: Race) -> str:
    """Return a race as the JSON of its record, durations in seconds."""
    return json.dumps(plain(race), indent=1)


def read_record(text: str, directory: str) -> Race | None:
    """Parse a race's record; None for what is not one, such as in a half-pruned directory."""
    try:
        race = build(Race, {**json.loads(text), "directory": directory})
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    return race if is_moment(race.submitted_at) else None


def is_moment(epoch_s: float | None) -> bool:
    """Return whether seconds since the epoch, if any, are a time of the calendar."""
    return epoch_s is None or 0 <= epoch_s <= _LATEST_S


def read_state_files(files: Mapping[str, bytes]) -> StateFiles:
    """Parse the files that match `STATE_FILES`, by name."""
    texts = {name: data.decode("utf-8", errors="replace") for name, data in files.items()}
    claim = _claim(texts.get("claim", ""))
    return StateFiles(
        claim=claim,
        ended=_ended(texts.get("ended", "")),
        lost=_sentence(texts.get("lost", "")),
        stopped="stop" in texts,
        closed=_closed(texts.get("stop", "")),
        job_ids=tuple((n, _integers(text)) for n, text in _numbered(texts, "jobs/", ".id")),
        sent=tuple(
            (n, at) for n, text in _numbered(texts, "jobs/", ".sent") for at in _integers(text)[-1:]
        ),
        refused=tuple((n, _sentence(text)) for n, text in _numbered(texts, "jobs/", ".refused")),
        declined=_named(texts, "declined/"),
        exhausted=tuple((n, _sentence(text)) for n, text in _numbered(texts, "exhausted/", "")),
        again=tuple(number for number, _ in _numbered(texts, "again/", "")),
        warnings=_named(texts, "warnings/"),
        absent_since=tuple(
            (n, _float(text, default=0.0)) for n, text in _numbered(texts, "absent/", "") if text
        ),
        winner_absent_since=_winner_absent_since(texts, claim),
        segments=tuple(_segments(texts)),
        unclaimed_since=_moment(texts.get("unclaimed", "")),
        unended_since=_unended_since(texts.get("unended", ""), claim),
    )


def _numbered(texts: Mapping[str, str], folder: str, suffix: str) -> Iterator[tuple[int, str]]:
    for name, text in sorted(texts.items()):
        if name.startswith(folder) and name.endswith(suffix):
            stem = name[len(folder) : len(name) - len(suffix)]
            if stem.isascii() and stem.isdigit() and len(stem) < 19:
                yield int(stem), text


def _named(texts: Mapping[str, str], folder: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (printable(name.removeprefix(folder)), _sentence(text))
        for name, text in sorted(texts.items())
        if name.startswith(folder)
    )


def _closed(text: str) -> str:
    """Return why a client closed the race; "" where a person stopped it, or nobody did."""
    return _sentence(text.removeprefix(CLOSED)) if text.startswith(CLOSED) else ""


def _sentence(text: str) -> str:
    """Return the one line of a sentence that a job left."""
    return printable(text.strip())


def _integers(text: str) -> tuple[int, ...]:
    return tuple(
        int(line) for line in text.split() if line.isascii() and line.isdigit() and len(line) < 19
    )


def _fields(text: str) -> tuple[str, dict[str, str]]:
    first, *rest = text.splitlines() or [""]
    return first.strip(), dict(line.split("=", 1) for line in rest if "=" in line)


def _claim(text: str) -> Claim | None:
    owner, fields = _fields(text)
    named = _OWNER.fullmatch(owner)
    if named is None:
        return None
    return Claim(
        job_id=int(named[1]),
        restart=int(named[2]),
        token=named[3],
        submission=next(iter(_integers(fields.get("submission", ""))), 0),
        nodes=printable(fields.get("nodes", "")),
        host=printable(fields.get("host", "")),
        started_at=_float(fields.get("started", ""), default=0.0),
        segment=next(iter(_integers(fields.get("segment", ""))), 1),
        elapsed_s=_float(fields.get("elapsed", ""), default=0.0),
        total_s=_float(fields.get("total", ""), default=0.0),
        used_s=_float(fields["used"], default=0.0) if "used" in fields else None,
        job_name=printable(fields.get("name", "")),
        strategy=printable(fields.get("strategy", "")),
    )


def _segments(texts: Mapping[str, str]) -> Iterator[Segment]:
    ends = dict(_numbered(texts, "segments/", ".ended"))
    following = dict(_numbered(texts, "segments/", ".next"))
    for number, text in sorted(_numbered(texts, "segments/", "")):
        claim = _claim(text)
        if claim is not None:
            ids = _integers(following.get(number, ""))
            ended = _ended(ends.get(number, ""))
            yield Segment(number=number, claim=claim, ended=ended, next_job_ids=ids)


def _ended(text: str) -> Ended | None:
    owner, fields = _fields(text)
    code = _integers(fields.get("code", ""))
    if not owner or not code:
        return None
    return Ended(
        owner=owner,
        code=code[0],
        signal=printable(fields.get("signal", "")),
        ended_at=_float(fields.get("ended", ""), default=0.0),
        next=printable(fields.get("next", "")),
        why=printable(fields.get("why", "")),
        back=next(iter(_integers(fields.get("back", ""))), 0),
    )


def _winner_absent_since(texts: Mapping[str, str], claim: Claim | None) -> float | None:
    return _moment(texts.get(f"absent/{claim.owner}", "")) if claim else None


def _unended_since(text: str, claim: Claim | None) -> float | None:
    """Read since when no end of the claim's segment has shown; None where it says another's."""
    since, _, owner = text.strip().partition(" ")
    return _moment(since) if claim and owner == claim.owner else None


def _moment(text: str) -> float | None:
    """Read a time; None for what is none."""
    return _float(text, default=0.0) or None


def _float(text: str, *, default: float) -> float:
    """Read seconds; what is no moment or span of this age of the world is the default."""
    try:
        seconds = float(text)
    except ValueError:
        return default
    return seconds if is_moment(seconds) else default
