"""Whether the key that a server shows is the one that known_hosts has; nothing is ever added."""

import base64
import binascii
import hashlib
import hmac
import shlex
from collections.abc import Iterable, Iterator
from enum import Enum
from fnmatch import translate
from pathlib import Path
from re import fullmatch
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError

_REVOKED: Final = "@revoked"
_AUTHORITY: Final = "@cert-authority"
_HASHED: Final = "|1|"
_MOST_BYTES: Final = 64 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerKey:
    """The public key that a server shows: the user calls it `name`, known_hosts `host`."""

    name: str
    host: str
    kind: str
    key: bytes

    def __str__(self) -> str:
        return f"{self.kind} {fingerprint(self.key)}"


class Verdict(Enum):
    """What known_hosts says of a key."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"
    AUTHORITY = "authority"
    """Only a certificate would be accepted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownHost:
    """One line of a known_hosts file; `where` names it."""

    marker: str
    hosts: str
    kind: str
    key: str
    where: str

    def names(self, host: str) -> bool:
        """Whether the line is of this host: by name, by pattern or hashed."""
        if self.hosts.startswith(_HASHED):
            return _hashes_to(self.hosts, host)
        patterns = self.hosts.lower().split(",")
        if any(p.startswith("!") and _fits(host, p[1:]) for p in patterns):
            return False
        return any(_fits(host, pattern) for pattern in patterns)


def read_known_hosts(paths: Iterable[Path]) -> list[KnownHost]:
    """Read the lines of these files; what is no such line, or no file, is passed over."""
    return [line for path in paths for line in _lines(path)]


def judge(known: Iterable[KnownHost], key: ServerKey) -> Verdict:
    """Say whether a key may be that of its host, which known_hosts has as NAME or [NAME]:PORT.

    As with ssh, a key of the host's usual port serves on one of which no key is known.
    """
    lines, shown = list(known), base64.b64encode(key.key).decode()
    own = _of(lines, key.host)
    kinds = {line.marker or line.kind for line in own}
    usual = [] if key.kind in kinds else _of(lines, _without_port(key.host))
    same = {line.marker for line in (*own, *usual) if line.key == shown}
    if same & {"", _REVOKED}:
        return Verdict.REVOKED if _REVOKED in same else Verdict.KNOWN
    if key.kind in kinds:
        return Verdict.CHANGED
    return Verdict.AUTHORITY if _AUTHORITY in kinds else Verdict.UNKNOWN


def _of(lines: Iterable[KnownHost], host: str) -> list[KnownHost]:
    return [line for line in lines if line.names(host)]


def known_kinds(known: Iterable[KnownHost], host: str) -> set[str]:
    """Name the kinds of keys that are known of a host: the server is to show one of them."""
    names = {host, _without_port(host)}
    return {line.kind for line in known if not line.marker and any(map(line.names, names))}


def fingerprint(key: bytes) -> str:
    """Return a public key's fingerprint as ssh prints it."""
    digest = base64.b64encode(hashlib.sha256(key).digest()).decode()
    return f"SHA256:{digest.rstrip('=')}"


def refusal(verdict: Verdict, shown: ServerKey, known: Iterable[KnownHost], file: Path) -> RvError:
    """Return the error for a key that is not known; `file` is where the user would add it."""
    name, kind = shown.name, shown.kind
    line = f"{shown.host} {kind} {base64.b64encode(shown.key).decode()}"
    add = f"echo {shlex.quote(line)} >>{shlex.quote(str(file))}"
    old = next((each.where for each in known if each.kind == kind and each.names(shown.host)), "")
    what, hint = {
        Verdict.UNKNOWN: (
            f"the host key of {name} is not known here: {shown}",
            f"if it is the one that the site publishes: {add}",
        ),
        Verdict.CHANGED: (
            f"the host key of {name} has changed: {shown}",
            f"ask its administrators; if it is right: remove {old}, then {add}",
        ),
        Verdict.REVOKED: (
            f"the host key of {name} is revoked here: {shown}",
            "do not connect: ask its administrators for its new key",
        ),
        Verdict.AUTHORITY: (
            f"only a certificate of {name} would be accepted, and it shows the key {shown}",
            f"let ssh check it, with RV_SSH=openssh; or, if the site publishes the key: {add}",
        ),
    }[verdict]
    return RvError(ErrorKind.UNREACHABLE, what, hint=hint)


def _lines(path: Path) -> Iterator[KnownHost]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST_BYTES)
    except OSError:
        return
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marker = words.pop(0) if words[0].startswith("@") else ""
        if len(words) >= 3 and marker in ("", _REVOKED, _AUTHORITY):
            hosts, kind, key = words[:3]
            where = f"line {number} of {path}"
            yield KnownHost(marker=marker, hosts=hosts, kind=kind, key=key, where=where)


def _hashes_to(entry: str, host: str) -> bool:
    try:
        salt, digest = map(base64.b64decode, entry.removeprefix(_HASHED).split("|", 1))
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(hmac.new(salt, host.encode(), "sha1").digest(), digest)


def _fits(host: str, pattern: str) -> bool:
    # The brackets of [NAME]:PORT are no pattern.
    return bool(fullmatch(translate(pattern.replace("[", "[[]")), host))


def _without_port(host: str) -> str:
    return host[1:].partition("]")[0] if host.startswith("[") else host
