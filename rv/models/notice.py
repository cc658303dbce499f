"""Who is told of a race's start and end: `--notify EVENTS=TARGET`."""

import re
from enum import StrEnum
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError


class Event(StrEnum):
    """What a notice is of: the START of the command, its END however it came, or FAIL."""

    START = "start"
    END = "end"
    FAIL = "fail"


class Means(StrEnum):
    """How a notice is sent: a mail, a POST to a URL, or a command that is run."""

    MAIL = "mail"
    POST = "post"
    COMMAND = "command"


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """What to tell, and how. `target` is an address ("" for the job's user), a URL or a line."""

    events: tuple[Event, ...]
    means: Means
    target: str = ""

    @property
    def tells_start(self) -> bool:
        """Whether it is sent when the command starts."""
        return Event.START in self.events

    @property
    def tells_success(self) -> bool:
        """Whether it is sent of an end with success too."""
        return Event.END in self.events

    @property
    def tells_failure(self) -> bool:
        """Whether it is sent of an end without success."""
        return self.tells_success or Event.FAIL in self.events


_HINT: Final = "write --notify end=mail, fail=https://… or start,end='COMMAND'"
# What curl's configuration and a mail program's arguments take as it is.
_URL: Final = re.compile(r"https?://[A-Za-z0-9\[][!#-\[\]-~]*", re.ASCII)
_ADDRESS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*(@[A-Za-z0-9.-]+)?", re.ASCII)


def read_notice(text: str) -> Notice:
    """Read `EVENTS=TARGET`. Raises `RvError(USAGE)`, which does not quote the target."""
    words, equals, target = text.partition("=")
    names = [word.strip() for word in words.split(",")]
    unknown = [name for name in names if name not in set(Event)]
    if not equals or not target.strip() or "\0" in target:
        raise RvError(ErrorKind.USAGE, "--notify takes EVENTS=TARGET", hint=_HINT)
    if unknown:
        raise RvError(
            ErrorKind.USAGE,
            f"--notify: {unknown[0]!r} is no event; they are start, end and fail",
            hint=_HINT,
        )
    means, target = _read_target(target.strip())
    return Notice(
        events=tuple(event for event in Event if event in names), means=means, target=target
    )


def _read_target(text: str) -> tuple[Means, str]:
    scheme, colon, rest = text.partition(":")
    if text == "mail":
        return Means.MAIL, ""
    if colon and scheme == "mailto":
        if not _ADDRESS.fullmatch(rest):
            raise RvError(ErrorKind.USAGE, "--notify: that is no address", hint=_HINT)
        return Means.MAIL, rest
    if colon and scheme in ("http", "https"):
        if not _URL.fullmatch(text):
            raise RvError(
                ErrorKind.USAGE,
                "--notify: that is no URL",
                hint="encode what is no plain character, such as a quote: %22",
            )
        return Means.POST, text
    return Means.COMMAND, text
