"""The marks of a race, and where its directory was deleted, those that this process read last."""

from dataclasses import replace
from typing import Final

from rv.models.race import Marks, Race
from rv.race.directory import RECORD
from rv.transport import Transport

_last: Final[dict[str, Marks]] = {}


def remembered(race: Race, marks: Marks, transport: Transport) -> Marks:
    """Return the marks just read; where there is no race directory any more, those before."""
    before = _last.get(race.directory, marks)
    if marks != Marks() and not _is_less(marks, before):
        return keep(race, marks)
    is_there = transport.read(f"{race.directory}/{RECORD}", limit=1) is not None
    return replace(before, gone=not is_there)


def _is_less(marks: Marks, before: Marks) -> bool:
    """Whether something is missing that no race ever loses: its files are being deleted."""
    ids = {number for number, _ in marks.job_ids}
    known = {number for number, _ in before.job_ids}
    return not known <= ids or (before.claim is not None and marks.claim is None)


def keep(race: Race, marks: Marks) -> Marks:
    """Remember the marks of a race, and return them."""
    _last[race.directory] = marks
    return marks
