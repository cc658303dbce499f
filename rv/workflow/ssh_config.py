"""`ssh rv-NAME`: the file that tells ssh how, included by the user's own, and what it needs.

Nothing of the user's is changed but one `Include` line at the top of ~/.ssh/config.
"""

import fcntl
import getpass
import os
import re
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rv.config.settings import chosen_cluster
from rv.errors import ErrorKind, RvError
from rv.files import others_may_write, read_regular, write_atomically
from rv.models.site import LOCAL, SANDBOX, Clusters
from rv.transport.local_program import output_of
from rv.transport.private_directories import make_private
from rv.transport.ssh_config_file import read_settings
from rv.workflow.which_cluster import is_this_machine

PREFIX: Final = "rv-"

_MOST_BYTES: Final = 1 << 20
_MOST_KNOWN: Final = 500
_SECTION: Final = re.compile(r"\s*(host|match)\b", re.IGNORECASE)
_BEGIN: Final = "# Written whole by rv ssh-config --install: changes here are lost.\n"


@dataclass(frozen=True, slots=True)
class SshFiles:
    """The files in ~/.ssh: the user's own configuration, and rv's."""

    folder: Path

    @property
    def user(self) -> Path:
        """The user's own configuration."""
        return self.folder / "config"

    @property
    def config(self) -> Path:
        """What it includes."""
        return self.folder / "rv_config"

    @property
    def key(self) -> Path:
        """The key that logs in to races; .pub is its public part."""
        return self.folder / "rv_key"

    @property
    def known_hosts(self) -> Path:
        """The host keys of races."""
        return self.folder / "rv_known_hosts"


def ssh_files() -> SshFiles:
    """Return the files of this user."""
    return SshFiles(Path.home() / ".ssh")


def ssh_config_text(word: str, clusters: Clusters, paths: SshFiles) -> str:
    """Return the configuration; `word` names the cluster of names without one, "" the usual.

    The user's name is that of the login there, which ssh asks for before it connects.
    """
    where = ["--cluster", word] if word else []
    # -P: ssh starts it in the user's folder, whose modules are not to be imported.
    words = [sys.executable, "-P", "-m", "rv", "ssh-config", *where]
    command = shlex.join(words).replace("%", "%%")
    hosts = {name: named.host for name, named in clusters.named.items()}
    usual = chosen_cluster(word, {}, clusters)
    lines = [_BEGIN.rstrip()]
    for name, host in hosts.items():
        lines += [f"Host {PREFIX}*.{name}", f"  User {_login(host)}"]
    lines += [
        " ".join([f"Host {PREFIX}*", *_login_nodes(hosts.values())]),
        f"  User {_login(hosts.get(usual, usual))}",
        f"  ProxyCommand {command} --connect %n",
        f"  IdentityFile {_quoted(paths.key)}",
        "  IdentitiesOnly yes",
        "  PreferredAuthentications publickey",
        f"  UserKnownHostsFile {_quoted(paths.known_hosts)}",
        "  StrictHostKeyChecking yes",
        "  ConnectTimeout 120",
        "",
    ]
    return "\n".join(lines)


def install(text: str, paths: SshFiles) -> tuple[Path, ...]:
    """Write the file, make a key, and include it. Returns which files were written.

    Raises `RvError(CONFIG)` for a ~/.ssh/config that is another user's, or that others may change.
    """
    make_private(paths.folder)
    line = f"Include {_quoted(paths.config)}"
    own = _read_own(paths.user)
    written = []
    if not paths.key.exists():
        output_of(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rv", "-f", str(paths.key)])
        written.append(paths.key)
    if not paths.config.exists() or paths.config.read_text(encoding="utf-8") != text:
        write_atomically(paths.config, text, mode=0o600)
        written.append(paths.config)
    if line not in _before_sections(own):
        target = paths.user.resolve()  # a link stays one
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600
        write_atomically(target, f"{line}\n{own}".encode("utf-8", "surrogateescape"), mode=mode)
        written.append(paths.user)
    return tuple(written)


def expect_host_key(host: str, key: str, paths: SshFiles) -> None:
    """Let ssh expect just this key of a host of rv's; the latest hosts are kept."""
    with _locked(paths.folder):
        lines = []
        with suppress(OSError):
            lines = paths.known_hosts.read_text(encoding="utf-8").splitlines()
        wanted = f"{host.lower()} {key}"
        others = [line for line in lines if line.partition(" ")[0] != host.lower()]
        if wanted not in lines:
            kept = [*others[-_MOST_KNOWN:], wanted, ""]
            write_atomically(paths.known_hosts, "\n".join(kept), mode=0o600)


def race_and_cluster(host: str, clusters: Clusters) -> tuple[str, str]:
    """Read `rv-NAME` or `rv-NAME.CLUSTER`: the race, and the cluster, "" for the usual one."""
    word = host.removeprefix(PREFIX)
    race, dot, cluster = word.rpartition(".")
    return (race, cluster) if dot and cluster in clusters.named else (word, "")


def public_key(paths: SshFiles) -> str:
    """Return the public key of rv's logins. Raises `RvError(CONFIG)` where there is none."""
    try:
        kind, key, *_ = read_regular(paths.key.with_suffix(".pub"), _MOST_BYTES).decode().split()
    except (OSError, ValueError) as error:
        raise RvError(
            ErrorKind.CONFIG, f"no key {paths.key}.pub", hint="rv ssh-config --install makes it"
        ) from error
    return f"{kind} {key} rv"


def _login_nodes(hosts: Iterable[str]) -> list[str]:
    """Return the patterns that leave out login nodes which have such a name themselves."""
    names = [host.removeprefix("ssh:").rpartition("@")[2] for host in hosts]
    return [f"!{name}" for name in names if name.startswith(PREFIX)]


def _login(host: str) -> str:
    """Return who logs in to a cluster: as ssh's own configuration says of its login node."""
    name = host.removeprefix("ssh:")
    if name.partition(":")[0] in ("", LOCAL, SANDBOX) or is_this_machine(name):
        return getpass.getuser()
    return read_settings(name, Path.home()).user


def _quoted(path: Path) -> str:
    text = str(path).replace("%", "%%")
    return f'"{text}"' if " " in text else text


def _before_sections(text: str) -> list[str]:
    """Return the lines that count for every host: those before the first Host or Match."""
    lines = text.splitlines()
    end = next((at for at, line in enumerate(lines) if _SECTION.match(line)), len(lines))
    return [line.strip() for line in lines[:end]]


def _read_own(path: Path) -> str:
    """Read the user's configuration, "" where there is none. Raises `RvError(CONFIG)`."""
    try:
        status = path.stat()
        if status.st_uid != os.geteuid() or others_may_write(status):
            raise RvError(
                ErrorKind.CONFIG,
                f"{path} is not yours alone",
                hint=f"chmod 600 {path}, if it is to be; rv writes only what is yours",
            )
        return read_regular(path, _MOST_BYTES).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise RvError(
            ErrorKind.CONFIG, f"cannot read {path}: {error.strerror}", hint="is it a plain file?"
        ) from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Be the only one that changes files in a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
