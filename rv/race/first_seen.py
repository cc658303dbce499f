"""Notes of when something was first seen, kept in the race directory: all clients count from them.

Each is written once for what it is about. That this machine writes into the directory also makes an
NFS client ask the server about it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rv.models.job import JobRecord, JobState
from rv.models.race import Claim, Race, StateFiles
from rv.race.directory import cache, load_state_files, unsent_for_s, write_state_file
from rv.race.facts import CACHED_S
from rv.race.sources import (
    MAY_GO_ON,
    is_active,
    own_end,
    record_of,
    unconfirmed,
    without_replaced,
)
from rv.transport import Transport


def note_unclaimed(
    race: Race, files: StateFiles, records: Iterable[JobRecord], now_s: float, transport: Transport
) -> StateFiles:
    """Write down when a job was first seen that had completed while no claim showed.

    One that rejected its node does not count: it completes, and says why; nor does it once another
    was sent in its place. Where this machine cannot write, no claim could be written either, and
    nothing is waited for.
    """
    rejecting = {number for number, _ in files.exhausted} | {*files.again}
    names = {race.name_of(number) for number in rejecting}
    has_completed = any(
        record.state is JobState.COMPLETED and record.name not in names
        for record in without_replaced(race, files, records)
    )
    since_s = files.unclaimed_since
    if files.claim or not has_completed or (since_s and since_s <= now_s):
        return files
    is_written = write_state_file(race, "unclaimed", f"{now_s:.0f}\n", transport)
    since_s = now_s if is_written else now_s - CACHED_S
    return cache(race, replace(load_state_files(race, transport), unclaimed_since=since_s))


def note_unended(
    race: Race, files: StateFiles, records: Sequence[JobRecord], now_s: float, transport: Transport
) -> StateFiles:
    """Write down when the winner of a chain was first seen over while no end showed.

    For the same reasons.
    """
    claim, since_s = files.claim, files.unended_since
    if not race.chain or claim is None or not _has_left(race, claim, files, records):
        return files
    if since_s and since_s <= now_s:
        return files
    is_written = write_state_file(race, "unended", f"{now_s:.0f} {claim.owner}\n", transport)
    since_s = now_s if is_written else now_s - CACHED_S
    return cache(race, replace(load_state_files(race, transport), unended_since=since_s))


def note_unsent(
    race: Race,
    files: StateFiles,
    queue: Sequence[JobRecord] | None,
    records: Sequence[JobRecord],
    now_s: float,
    transport: Transport,
) -> StateFiles:
    """Write down that nothing of a race is known to be sent, and tell since when that is so.

    Its own client may be about to send it: that it was staged long ago, by the clock of another
    machine, proves nothing.
    """
    has_id = any(ids for _, ids in files.job_ids)
    is_sent = has_id or any(map(is_active, records)) or unconfirmed(race, files, records)
    if queue is None or files.claim or is_sent or files.stopped or files.deleted:
        return files
    seen_s = unsent_for_s(race, transport)
    return files if seen_s is None else replace(files, unsent_since=now_s - seen_s)


def _has_left(race: Race, claim: Claim, files: StateFiles, records: Sequence[JobRecord]) -> bool:
    """Whether the winner is over, and the chain has no end."""
    winner = record_of(records, claim.job_name or race.name_of(claim.submission), claim.job_id)
    is_over = winner is not None and winner.state in MAY_GO_ON
    return is_over and own_end(claim, files.ended) is None


def note_absent(
    race: Race, files: StateFiles, missing: Sequence[int], now_s: float, transport: Transport
) -> StateFiles:
    """Write down when a healthy controller first did not know a job, and clear what came back.

    All later segments of a chain share a number: that of its winner is noted by the claim's owner.
    """
    claim = files.claim
    if race.chain and claim:
        winner = race.number_of(claim)
        files = _note_winner_absent(race, files, claim, missing, now_s, transport)
        missing = [number for number in missing if number != winner]
    since = dict(files.absent_since)
    for number in missing:
        if since.get(number, now_s + 1) > now_s:  # or by a clock that was ahead of this one
            since[number] = now_s
            write_state_file(race, f"absent/{number}", f"{now_s:.0f}\n", transport)
    for number in since.keys() - set(missing):
        write_state_file(race, f"absent/{number}", "", transport)
    kept = tuple((number, at) for number, at in since.items() if number in missing)
    return cache(race, replace(files, absent_since=kept))


def _note_winner_absent(
    race: Race,
    files: StateFiles,
    claim: Claim,
    missing: Sequence[int],
    now_s: float,
    transport: Transport,
) -> StateFiles:
    since_s, is_missing = files.winner_absent_since, race.number_of(claim) in missing
    if is_missing and (since_s is None or since_s > now_s):
        write_state_file(race, f"absent/{claim.owner}", f"{now_s:.0f}\n", transport)
        return replace(files, winner_absent_since=now_s)
    if not is_missing and since_s is not None:
        write_state_file(race, f"absent/{claim.owner}", "", transport)
        return replace(files, winner_absent_since=None)
    return files
