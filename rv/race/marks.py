"""Leave marks in a race directory that help but must not get in the way."""

from contextlib import suppress

from rv.errors import RvError
from rv.models.race import Race
from rv.transport import Transport


def leave_mark(race: Race, name: str, contents: str, transport: Transport) -> bool:
    """Write a mark where the disk lets us; a full one must keep nobody from the truth."""
    with suppress(RvError):
        transport.write(f"{race.directory}/{name}", contents.encode())
        return True
    return False
