"""Files that were read ahead: what a command is about to read, in the trip that it makes anyway."""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Final

from rv.dataclass import dataclass
from rv.transport import ScriptResult
from rv.transport.remote import RemoteTransport
from rv.transport.remote_shell import Stream

_FRESH_S: Final = 2.0
"""Seconds: what was read ahead is news for no longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """The small files below `root`, a folder each: those of the user's own that match `patterns`.

    `names` are the names in `root` and in other folders, by folder; `at_s` is monotonic time.
    """

    root: str
    patterns: frozenset[str]
    directories: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]]
    files: Mapping[str, bytes]
    at_s: float


class ReadAhead:
    """A transport that answers from a listing, until something is run or written there."""

    def __init__(self, transport: RemoteTransport, listing: Listing) -> None:
        self._transport = transport
        self._listing: Listing | None = listing

    def renew(self, listing: Listing | None) -> None:
        """Answer from another listing from now on."""
        self._listing = listing

    def run(self, script: str, *, timeout_s: float) -> ScriptResult:
        """Run bash text there."""
        self._listing = None
        return self._transport.run(script, timeout_s=timeout_s)

    def create_tree(
        self,
        root: str,
        files: Mapping[str, bytes],
        directories: Sequence[str] = (),
        finish: str = "",
    ) -> None:
        """Create a tree there."""
        self._listing = None
        self._transport.create_tree(root, files, directories, finish)

    def write(self, path: str, contents: bytes) -> None:
        """Replace a file there."""
        self._listing = None
        self._transport.write(path, contents)

    def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes | None:
        """Read a file, from the listing where it has it."""
        listing = self._fresh()
        name = path.removeprefix(f"{listing.root}/") if listing else ""
        if listing is None or not _is_listed(name, listing):
            return self._transport.read(path, offset=offset, limit=limit)
        data = listing.files.get(name)
        if data is None:
            return None
        return data[offset:] if limit < 0 else data[offset : offset + limit]

    def read_tree(self, root: str, names: Sequence[str]) -> dict[str, bytes]:
        """Read small files, from the listing where it has all that these patterns could mean."""
        listing = self._fresh()
        if listing and root == listing.root and all(_is_listed(name, listing) for name in names):
            return _matching(listing.files, "", names)
        folder = root.removeprefix(f"{listing.root}/") if listing else ""
        is_listed = listing and folder in listing.directories
        if not (listing and is_listed and listing.patterns.issuperset(names)):
            return self._transport.read_tree(root, names)
        return _matching(listing.files, f"{folder}/", names)

    def read_new(
        self, root: str, names: Sequence[str], offsets: Mapping[str, int], limit: int
    ) -> dict[str, bytes]:
        """Read on in files there."""
        return self._transport.read_new(root, names, offsets, limit)

    def names(self, directory: str) -> tuple[str, ...]:
        """Name the files in a directory."""
        listing = self._fresh()
        if listing and directory in listing.names:
            return listing.names[directory]
        return self._transport.names(directory)

    def directories(self, root: str) -> tuple[str, ...]:
        """Name the user's own directories in `root`."""
        listing = self._fresh()
        if listing and root == listing.root:
            return listing.directories
        return self._transport.directories(root)

    def remove(self, root: str) -> None:
        """Delete a tree there."""
        self._listing = None
        self._transport.remove(root)

    def interactive(self, argv: Sequence[str]) -> int:
        """Run a program there on this terminal."""
        self._listing = None
        return self._transport.interactive(argv)

    def open_stream(self, line: str) -> Stream:
        """Start a bash line there."""
        self._listing = None
        return self._transport.open_stream(line)

    def _fresh(self) -> Listing | None:
        """Return the listing while it is news."""
        if self._listing and time.monotonic() - self._listing.at_s > _FRESH_S:
            self._listing = None
        return self._listing


def _matching(files: Mapping[str, bytes], below: str, names: Sequence[str]) -> dict[str, bytes]:
    """Return the files below a folder whose paths there match one of the patterns."""
    forms = [re.compile(_as_expression(name)) for name in names]
    matching = {}
    for path, data in files.items():
        if not path.startswith(below):
            continue
        inner = path.removeprefix(below)
        if any(form.fullmatch(inner) for form in forms):
            matching[inner] = data
    return matching


def _is_listed(name: str, listing: Listing) -> bool:
    """Whether the listing has this file if it exists; its name was looked for, not a pattern."""
    folder, _, rest = name.partition("/")
    return folder in listing.directories and rest in listing.patterns


def _as_expression(pattern: str) -> str:
    """Return a pattern whose wildcards do not cross folders as a regular expression."""
    parts = re.split(r"(\*|\[0-9\])", pattern)
    wildcards = {"*": "[^/]*", "[0-9]": "[0-9]"}
    return "".join(wildcards.get(part, re.escape(part)) for part in parts)
