"""What the user's ssh configuration says of a host, for connections that rv makes itself.

The useful part: Host, Match (but exec), Include, and the settings of `SshSettings`. First values
win, as in ssh.
"""

import getpass
import re
import shlex
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError

if TYPE_CHECKING:
    from paramiko import SSHConfigDict

PORT: Final = 22
CONNECT_TIMEOUT_S: Final = 15
ALIVE_INTERVAL_S: Final = 10
ALIVE_COUNT: Final = 3
_SYSTEM_FILE: Final = Path("/etc/ssh/ssh_config")
_SYSTEM_KNOWN: Final = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
_USUAL_KEYS: Final = ("id_ed25519", "id_ecdsa", "id_rsa")
_MOST_INCLUDES: Final = 16
_LINE: Final = r"\s*(\w+)(?:\s*=\s*|\s+)(.*\S)"
_CRITERIA: Final = {"host", "originalhost", "user", "localuser"}
_CRITERIA_ALONE: Final = {"all", "canonical", "final"}
_NEVER: Final = "Host !*"
_NAMED: Final = r"(?:ssh://)?(?:(?P<user>.*)@)?(?P<host>[^@]+?)(?::(?P<port>\d+))?/?"
_IPV6: Final = r"(?:(?P<user>[^@]*)@)?\[?(?P<host>[0-9a-fA-F:]+:[0-9a-fA-F:.%\w]*)\]?"


@dataclass(frozen=True, kw_only=True, slots=True)
class SshSettings:
    """How to reach one host, whose keys to expect and who to log in as; times in seconds."""

    name: str
    address: str
    port: int
    user: str
    key_files: tuple[Path, ...]
    only_these_keys: bool
    asks_agent: bool
    jump_hosts: tuple[str, ...]
    proxy_command: str
    known_hosts_files: tuple[Path, ...]
    host_key_alias: str
    connect_timeout_s: float
    alive_interval_s: float
    alive_count: int

    @property
    def known_as(self) -> str:
        """The name that known_hosts has it under."""
        if self.host_key_alias:
            return self.host_key_alias.lower()
        name = self.address.lower()
        return name if self.port == PORT else f"[{name}]:{self.port}"


def read_settings(host: str, home: Path) -> SshSettings:
    """Read what the files say of `host`, which is [USER@]NAME[:PORT] or an alias.

    Raises `RvError(CONFIG)` for a file that cannot be read as ssh's.
    """
    try:
        return _settings(host, _look_up(host, config_lines(home)), home)
    except _unreadable() as error:
        raise RvError(
            ErrorKind.CONFIG,
            f"cannot read what ~/.ssh/config says of {host}: {error}",
            hint="correct that line, or let ssh itself connect: RV_SSH=openssh",
        ) from error


def forbids_sharing(host: str, home: Path) -> bool:
    """Whether the files say `ControlMaster no` of `host`; ssh -G answers alike without it."""
    try:
        lines = config_lines(home)
        if not any(line.lower().lstrip().startswith("controlmaster") for line in lines):
            return False
        return _look_up(host, lines).get("controlmaster", "").lower() in ("no", "false")
    except _unreadable():
        return False


def _look_up(host: str, lines: list[str]) -> "SSHConfigDict":
    """Return what these lines say of a host; what it is typed with comes first."""
    from paramiko import SSHConfig

    match = re.fullmatch(_IPV6, host) or re.fullmatch(_NAMED, host)
    if match is None:
        raise ValueError(f"{host!r} is no name of a host")
    named = match.groupdict()
    given = [f"{key} {named[key]}" for key in ("user", "port") if named.get(key)]
    return SSHConfig.from_text("\n".join([*given, *lines, ""])).lookup(named["host"])


def _unreadable() -> tuple[type[Exception], ...]:
    """Return what fails for a file that is none of ssh's."""
    from paramiko import ConfigParseError

    return ConfigParseError, ValueError, KeyError, OSError


def config_lines(home: Path) -> list[str]:
    """Return the lines of the user's file and the system's, with those that they include."""
    return _read(home, [])


def config_files(home: Path) -> list[Path]:
    """Name those files, whether they exist or not, and the folders of those that they include."""
    read = list[Path]()
    _read(home, read)
    return read


def _read(home: Path, read: list[Path]) -> list[str]:
    """Return the lines; each file is appended to `read`, and each folder of files to include."""
    user = home / ".ssh" / "config"
    return [
        *_with_includes(user, home / ".ssh", home, 0, read),
        "Host *",
        *_with_includes(_SYSTEM_FILE, _SYSTEM_FILE.parent, home, 0, read),
    ]


def _with_includes(path: Path, folder: Path, home: Path, depth: int, read: list[Path]) -> list[str]:
    read.append(path)
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    section, lines = "Host *", list[str]()
    for line in text.splitlines():
        match = re.match(_LINE, line)
        word = match[1].lower() if match else ""
        if match and word == "include" and depth < _MOST_INCLUDES:
            lines += [*_included(match[2], folder, home, depth + 1, read), section]
        elif match and word in ("host", "match"):
            section = _readable(line, match)
            lines.append(section)
        else:
            lines.append(line)
    return lines


def _included(patterns: str, folder: Path, home: Path, depth: int, read: list[Path]) -> list[str]:
    """Return the lines of the files that an Include names."""
    lines = list[str]()
    for pattern in shlex.split(patterns):
        path = folder / _expand(pattern, home)
        read.append(path.parent)
        for name in sorted(glob(str(path))):  # noqa: PTH207 - absolute too
            lines += _with_includes(Path(name), folder, home, depth, read)
    return lines


def _readable(line: str, match: re.Match[str]) -> str:
    """Return a section's line, one that applies to nothing where only ssh can tell."""
    if match[1].lower() == "host":
        return line
    words = iter(shlex.split(match[2]))
    for word in words:
        criterion = word.lstrip("!").lower()
        if criterion in _CRITERIA:
            next(words, None)  # its patterns
        elif criterion not in _CRITERIA_ALONE:
            return _NEVER
    return line


def _expand(path: str, home: Path) -> str:
    text = path.replace("%d", str(home)).replace("%%", "%")
    return str(home) + text[1:] if text.startswith("~/") or text == "~" else text


def _settings(host: str, settings: "SSHConfigDict", home: Path) -> SshSettings:
    host_key_files = settings.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")
    host_key_files += " " + settings.get("globalknownhostsfile", _SYSTEM_KNOWN)
    jump = settings.get("proxyjump") or "none"
    usual = [str(home / ".ssh" / name) for name in _USUAL_KEYS]
    return SshSettings(
        name=host,
        address=settings["hostname"],
        port=int(settings.get("port", PORT)),
        user=settings.get("user") or getpass.getuser(),
        key_files=tuple(Path(_expand(name, home)) for name in settings.get("identityfile", usual)),
        only_these_keys=settings.get("identitiesonly", "no").lower() in ("yes", "true"),
        asks_agent=settings.get("identityagent", "").lower() != "none",
        jump_hosts=() if jump.lower() == "none" else tuple(jump.replace(" ", "").split(",")),
        proxy_command=settings.get("proxycommand") or "",
        known_hosts_files=tuple(Path(_expand(name, home)) for name in shlex.split(host_key_files)),
        host_key_alias=settings.get("hostkeyalias", ""),
        connect_timeout_s=_seconds(settings, "connecttimeout", CONNECT_TIMEOUT_S),
        alive_interval_s=_seconds(settings, "serveraliveinterval", ALIVE_INTERVAL_S),
        alive_count=int(settings.get("serveralivecountmax", ALIVE_COUNT)),
    )


def _seconds(settings: "SSHConfigDict", name: str, default: float) -> float:
    """Return a time, `default` where none is set; zero is ssh's word for none."""
    value = settings.get(name, "none")
    return default if value.lower() in ("none", "0") else float(value)
