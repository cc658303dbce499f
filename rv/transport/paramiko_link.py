"""One connection of paramiko's: the way to the host, its key, the login, and whether it lives."""

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import paramiko

from rv.errors import ErrorKind, RvError
from rv.transport.host_keys import ServerKey, Verdict, judge, known_kinds, read_known_hosts, refusal
from rv.transport.paramiko_errors import FAILURES, explained
from rv.transport.paramiko_login import Login
from rv.transport.paramiko_proxy import ProxyCommand
from rv.transport.ssh_config_file import SshSettings, read_settings

_MOST_JUMPS: Final = 8
_LOGIN_S: Final = 60.0
_RSA: Final = "rsa-sha2-"
_HANDSHAKES: Final = 3
_KEEPALIVE: Final = "keepalive@openssh.com"

# Its warnings, with tracebacks, would go to the user's terminal: what fails is raised too.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False


class Way(Protocol):
    """What a connection goes through, and what is ended with it."""

    def close(self) -> None:
        """End it."""


class Link:
    """A connection that is logged in; `before` is what it goes through."""

    def __init__(
        self, transport: paramiko.Transport, settings: SshSettings, before: Way | None
    ) -> None:
        self.transport = transport
        self._settings = settings
        self._before = before
        self._is_over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def session(self) -> paramiko.Channel:
        """Open a session. Raises `ChannelException` where the server allows no more of them."""
        return self.transport.open_session(timeout=self._settings.connect_timeout_s)

    def close(self) -> None:
        """End it, and what it goes through."""
        self._is_over.set()
        self.transport.close()
        if self._before:
            self._before.close()

    def _watch(self) -> None:
        """Ask from time to time whether the server is there: nothing else finds a dead network."""
        every_s = self._settings.alive_interval_s
        while self.transport.is_active() and not self._is_over.wait(every_s):
            end = threading.Timer(every_s * self._settings.alive_count, self.transport.close)
            end.daemon = True
            end.start()
            with suppress(paramiko.SSHException, EOFError, OSError):
                self.transport.global_request(_KEEPALIVE, wait=True)
            end.cancel()


def open_link(
    settings: SshSettings, home: Path, through: Link | None = None, jumps: int = 0
) -> Link:
    """Connect, through a jump host's link where one is given, check the key and log in.

    Raises `RvError(UNREACHABLE)`, and what paramiko and sockets raise.
    """
    before = through or _open_jumps(settings, home, jumps)
    if before:
        address = (settings.address, settings.port)
        return _log_in(
            settings,
            before,
            lambda: before.transport.open_channel(
                "direct-tcpip", address, ("", 0), timeout=settings.connect_timeout_s
            ),
        )
    if settings.proxy_command:
        return _open_by_command(settings)
    return _log_in(settings, None, lambda: _dial(settings))


def _open_by_command(settings: SshSettings) -> Link:
    """Connect by the user's ProxyCommand; what it says is the reason where that fails."""
    proxy = ProxyCommand(settings.proxy_command)
    try:
        return _log_in(settings, proxy, lambda: proxy.way)
    except FAILURES as error:
        if not proxy.last_words:
            raise
        raise paramiko.ProxyCommandFailure(settings.proxy_command, proxy.last_words) from error


def _log_in(
    settings: SshSettings,
    before: Way | None,
    open_way: Callable[[], socket.socket | paramiko.Channel],
) -> Link:
    """Check the server's key and log in; where that fails everything is ended."""
    transport: paramiko.Transport | None = None
    try:
        transport = paramiko.Transport(open_way())
        _greet(transport, settings)
        Login(transport, settings).run()
    except BaseException:  # Ctrl-C too
        if transport:
            transport.close()
        if before:
            before.close()
        raise
    return Link(transport, settings, before)


def _open_jumps(settings: SshSettings, home: Path, jumps: int) -> Link | None:
    """Connect to the jump hosts, each through the one before it."""
    if jumps > _MOST_JUMPS:
        raise RvError(
            ErrorKind.UNREACHABLE,
            f"cannot connect to {settings.name}: its jump hosts go in a circle",
            hint="correct ProxyJump in ~/.ssh/config",
        )
    link: Link | None = None
    for name in settings.jump_hosts:
        with explained(name, f", a jump host of {settings.name}"):
            link = open_link(read_settings(name, home), home, link, jumps + 1)
    return link


def _dial(settings: SshSettings) -> socket.socket:
    """Connect to the host itself: to the first address of its name that accepts."""
    way = socket.create_connection((settings.address, settings.port), settings.connect_timeout_s)
    way.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return way


def _greet(transport: paramiko.Transport, settings: SshSettings) -> None:
    """Agree on keys, and check the server's. Raises `RvError(UNREACHABLE)` where it is unknown."""
    known_keys = read_known_hosts(settings.known_hosts_files)
    kinds = known_kinds(known_keys, settings.known_as)
    options = transport.get_security_options()
    options.key_types = sorted(options.key_types, key=lambda name: _kind(name) not in kinds)
    transport.banner_timeout = transport.handshake_timeout = settings.connect_timeout_s
    transport.auth_timeout = _LOGIN_S
    transport.start_client(timeout=_HANDSHAKES * settings.connect_timeout_s)
    key = transport.get_remote_server_key()
    shown = ServerKey(
        name=settings.name, host=settings.known_as, kind=key.get_name(), key=key.asbytes()
    )
    verdict = judge(known_keys, shown)
    if verdict is not Verdict.KNOWN:
        raise refusal(verdict, shown, known_keys, settings.known_hosts_files[0])


def _kind(algorithm: str) -> str:
    """Return the kind of key that an algorithm signs with."""
    return "ssh-rsa" if algorithm.startswith(_RSA) else algorithm
