"""Reservations, from `scontrol show reservation -o`."""

from rv.models.snapshot import Reservation
from rv.slurm import words
from rv.slurm.fields import fields, records
from rv.slurm.hostlist import Expander


def parse_reservations(text: str) -> tuple[Reservation, ...]:
    """Read every reservation that has a name, a start and an end."""
    lists = Expander()
    found = (_reservation(fields(line), lists) for line in records(text, "ReservationName"))
    return tuple(reservation for reservation in found if reservation is not None)


def _reservation(value: dict[str, str], lists: Expander) -> Reservation | None:
    start, end = words.time(value.get("StartTime", "")), words.time(value.get("EndTime", ""))
    if start is None or end is None or not value["ReservationName"]:
        return None
    return Reservation(
        name=value["ReservationName"],
        nodes=lists.expand(value.get("Nodes", "")),
        start=start,
        end=end,
        users=words.words(value.get("Users", "")),
        accounts=words.words(value.get("Accounts", "")),
        flags=frozenset(words.words(value.get("Flags", ""))),
    )
