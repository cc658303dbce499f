"""Free ports on loopback, held until the daemons that were promised them listen."""

import random
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from rv.errors import ErrorKind, RvError

# Below the ports that Linux hands out by itself, above those that services are known for.
FIRST: Final = 17000
LAST: Final = 32000
ATTEMPTS: Final = 200


@contextmanager
def reserved(count: int) -> Iterator[int]:
    """Reserve `count` consecutive ports and yield the first.

    A port is bound without SO_REUSEADDR, so that a second sandbox starting at the same moment
    cannot have it, and gets the option afterwards, so that a Slurm daemon (which sets it) can
    listen on it while it is still held here.
    """
    for _ in range(ATTEMPTS):
        base = random.randrange(FIRST, LAST - count)  # noqa: S311 - any port will do
        with ExitStack() as held:
            if all(_hold(held, base + offset) for offset in range(count)):
                yield base
                return
    raise RvError(
        ErrorKind.SANDBOX,
        f"no {count} free ports in a row between {FIRST} and {LAST}",
        hint="rv sandbox status lists the sandboxes that run; rv sandbox down ends one",
    )


def _hold(held: ExitStack, port: int) -> bool:
    """Bind on every address, as the daemons do: one free on loopback only would fail them."""
    holder = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    try:
        holder.bind(("", port))
    except OSError:
        return False
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return True


def named_loopback() -> str:
    """The loopback address that this machine's name stands for; "" where it is another one."""
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError:
        return ""
    return address if address.startswith("127.") else ""


def listening(address: str, port: int) -> bool:
    """Whether something accepts connections there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, port)) == 0


def answering(path: str) -> bool:
    """Whether something accepts connections on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(path) == 0


def listener(path: str) -> int:
    """The process that listens on a Unix socket; 0 where none does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        if probe.connect_ex(path):
            return 0
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(credentials[:4], sys.byteorder)
