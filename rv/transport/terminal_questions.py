"""Questions on the user's terminal: passwords, passphrases and second factors."""

import sys
from typing import Final

_TERMINAL: Final = "/dev/tty"


def can_ask() -> bool:
    """Whether somebody is there: without a terminal for input rv asks nothing."""
    try:
        if not sys.stdin.isatty():
            return False
        with open(_TERMINAL, "rb", buffering=0):  # noqa: PTH123 - a device
            return True
    except (OSError, ValueError):
        return False


def ask(question: str, *, is_secret: bool) -> str:
    """Return what was typed. Raises `EOFError` where nothing was, and `OSError` without a terminal.

    `question` may come from a server: only what is printable of it is shown.
    """
    shown = printable(question)
    if is_secret:
        import getpass  # what it loads would delay every first question to a cluster

        return getpass.getpass(shown)
    with open(_TERMINAL, "r+b", buffering=0) as terminal:  # noqa: PTH123 - a device
        terminal.write(shown.encode())
        line = terminal.readline()
    if not line:
        raise EOFError
    return line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")


def tell(text: str) -> None:
    """Show a server's text on the terminal, line by line."""
    with open(_TERMINAL, "wb", buffering=0) as terminal:  # noqa: PTH123 - a device
        for line in text.splitlines():
            terminal.write(printable(line).encode() + b"\n")


def printable(text: str) -> str:
    """Replace what a terminal would act on."""
    return "".join(char if char.isprintable() else "?" for char in text.strip("\r\n"))
