"""Log in over a connection of paramiko's: agent, key files, keyboard-interactive, password.

In ssh's order, and as many steps as the server asks for. Questions are asked on the terminal, by
the thread that logs in, so that Ctrl-C finds the terminal as it was.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import paramiko
from paramiko.ssh_exception import BadAuthenticationType

from rv.errors import ErrorKind, RvError
from rv.transport.paramiko_errors import what_to_try
from rv.transport.paramiko_keys import agent_keys, open_agent, read_key
from rv.transport.ssh_config_file import SshSettings
from rv.transport.terminal_questions import ask, can_ask, tell

_TRIES: Final = 3
_ANSWER_S: Final = 600.0
_KEYS: Final = "publickey"
_FORM: Final = "keyboard-interactive"
_PASSWORD: Final = "password"  # noqa: S105 - ssh's name of the method


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One way to log in; `make` returns the methods that the server asks for after it."""

    method: str
    make: Callable[[], Sequence[str]]


@dataclass(frozen=True, slots=True)
class _Form:
    """What a server asks at once: prompts, each with whether the answer may be shown."""

    instructions: str
    prompts: Sequence[tuple[str, bool]]


class Login:
    """Logs in as `settings` say. An attempt is made once, when the server allows its method."""

    def __init__(self, transport: paramiko.Transport, settings: SshSettings) -> None:
        self._transport = transport
        self._settings = settings
        self._who = f"{settings.user}@{settings.address}"
        self._has_terminal = can_ask()
        self._banner = ""

    def run(self) -> None:
        """Raise `RvError(UNREACHABLE)` where the server does not let the user in."""
        try:
            allowed = self._allowed_at_first()
        except paramiko.AuthenticationException as error:
            raise EOFError from error  # nothing was tried yet: the connection broke
        if self._transport.is_authenticated():
            return
        agent = open_agent() if self._settings.asks_agent else None
        try:
            self._try_all(list(self._attempts(agent)), allowed)
        finally:
            if agent:
                agent.close()

    def _try_all(self, attempts: list[_Attempt], allowed: Sequence[str]) -> None:
        while not self._transport.is_authenticated():
            attempt = next((each for each in attempts if each.method in allowed), None)
            if attempt is None or not self._transport.is_active():
                raise self._refused(allowed)
            attempts.remove(attempt)
            try:
                allowed = list(attempt.make()) or allowed
            except BadAuthenticationType as refused:
                allowed = refused.allowed_types
            except paramiko.AuthenticationException:
                continue

    def _allowed_at_first(self) -> Sequence[str]:
        try:
            return self._transport.auth_none(self._settings.user)
        except BadAuthenticationType as refused:
            self._banner = (self._transport.get_banner() or b"").decode("utf-8", "replace")
            return refused.allowed_types

    def _attempts(self, agent: paramiko.Agent | None) -> Iterator[_Attempt]:
        files = self._settings.key_files
        if agent:
            for key in agent_keys(agent, files if self._settings.only_these_keys else ()):
                yield _Attempt(_KEYS, partial(self._offer, key))
        for path in files:
            yield _Attempt(_KEYS, partial(self._offer_file, path))
        if not self._has_terminal:
            return
        for path in files:
            yield _Attempt(_KEYS, partial(self._offer_locked_file, path))
        for method, make in ((_FORM, self._fill_forms), (_PASSWORD, self._give_password)):
            for _ in range(_TRIES):
                yield _Attempt(method, make)

    def _refused(self, allowed: Sequence[str]) -> RvError:
        name, methods = self._settings.name, ",".join(allowed)
        if not self._transport.is_active():
            why = f"Permission denied ({methods}): it closed the connection, after too many tries"
        elif not self._has_terminal and {_FORM, _PASSWORD} & set(allowed):
            why = f"Permission denied ({methods}): it asks, and there is no terminal to answer on"
        else:
            why = f"Permission denied ({methods})"
        return RvError(
            ErrorKind.UNREACHABLE,
            f"cannot connect to {name}: {self._who}: {why}",
            hint=what_to_try(name),
        )

    # Keys.

    def _offer(self, key: paramiko.PKey) -> Sequence[str]:
        return self._transport.auth_publickey(self._settings.user, key)

    def _offer_file(self, path: Path) -> Sequence[str]:
        """Offer the key of a file; one that needs a passphrase comes later."""
        key = read_key(path, None)
        if key is None:
            raise paramiko.AuthenticationException
        return self._offer(key)

    def _offer_locked_file(self, path: Path) -> Sequence[str]:
        """Offer the key of a file that needs a passphrase, which is asked for three times."""
        if not _is_locked(path):
            raise paramiko.AuthenticationException
        for _ in range(_TRIES):
            secret = self._ask(f"Enter passphrase for key '{path}': ", is_secret=True)
            if not secret:
                break
            if key := read_key(path, secret):
                return self._offer(key)
        raise paramiko.AuthenticationException

    # Questions.

    def _give_password(self) -> Sequence[str]:
        self._show_banner()
        secret = self._ask(f"{self._who}'s password: ", is_secret=True)
        return self._transport.auth_password(self._settings.user, secret, fallback=False)

    def _fill_forms(self) -> Sequence[str]:
        """Answer what the server asks; paramiko hands it on in a thread of its own."""
        forms: SimpleQueue[_Form | None] = SimpleQueue()
        answers: SimpleQueue[list[str]] = SimpleQueue()
        done: Future[Sequence[str]] = Future()

        def hand_on(_: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str]:
            forms.put(_Form(instructions, prompts))
            return answers.get()

        def log_in() -> None:
            try:
                done.set_result(self._transport.auth_interactive(self._settings.user, hand_on))
            except (paramiko.SSHException, OSError, EOFError) as error:
                done.set_exception(error)
            finally:
                forms.put(None)

        self._transport.auth_timeout = _ANSWER_S
        threading.Thread(target=log_in, daemon=True).start()
        while form := forms.get():
            answers.put(self._fill(form))
        return done.result()

    def _fill(self, form: _Form) -> list[str]:
        self._show_banner()
        if form.instructions:
            tell(form.instructions)
        return [
            self._ask(f"({self._who}) {text}", is_secret=not may_be_shown)
            for text, may_be_shown in form.prompts
        ]

    def _show_banner(self) -> None:
        """Show what the server says to everyone, before its first question: it may explain it."""
        if self._banner:
            tell(self._banner)
        self._banner = ""

    def _ask(self, question: str, *, is_secret: bool) -> str:
        try:
            return ask(question, is_secret=is_secret)
        except (OSError, EOFError) as error:
            raise RvError(
                ErrorKind.UNREACHABLE,
                f"cannot connect to {self._settings.name}: nobody answered its question",
                hint="the same command again",
            ) from error


def _is_locked(path: Path) -> bool:
    try:
        read_key(path, None)
    except paramiko.PasswordRequiredException:
        return True
    return False
