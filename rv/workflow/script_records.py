"""Records that rv's own scripts print on a cluster: KEY, a tab, VALUE, each ended by a NUL."""

from importlib.resources import files
from typing import Final

_SCRIPTS: Final = files("rv.workflow") / "scripts"


def script(name: str) -> str:
    """Return the text of a script of rv's."""
    return (_SCRIPTS / name).read_text(encoding="utf-8")


def parse_records(text: str) -> tuple[tuple[str, str], ...]:
    """Read the records in order; a banner above the first and a half record at the end are none."""
    whole = text.split("\0")[:-1]
    pairs = (record.partition("\t") for record in whole)
    return tuple((key.rpartition("\n")[2], value) for key, tab, value in pairs if tab)
