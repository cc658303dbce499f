"""How the daemons of a sandbox come to listen on loopback alone.

Slurm's daemons listen on every address, or (NoInAddrAny) on the one that this machine's name stands
for. Where that is not on loopback, root gives them another name, in a UTS namespace of their own.
"""

import os
from functools import cache
from typing import Final

from rv.sandbox import ports, processes

PARAMETERS: Final = "NoInAddrAny,NoCtldInAddrAny"
_DEFAULT: Final = "127.0.0.1"
_RENAMED: Final = ("unshare", "--uts", "/bin/sh", "-c", 'hostname localhost && exec "$@"', "sh")


@cache
def address() -> str:
    """The loopback address on which daemons of sandboxes listen."""
    return ports.named_loopback() or _DEFAULT


@cache
def prefix() -> tuple[str, ...]:
    """What goes before a daemon's command, where this machine's name is not on loopback."""
    if ports.named_loopback() or os.getuid() != 0:
        return ()
    can_rename = processes.run([*_RENAMED, "true"], env=processes.environment({})).returncode == 0
    return _RENAMED if can_rename else ()


def is_sure() -> bool:
    """Whether they listen there alone; else on every address of this machine."""
    return bool(ports.named_loopback() or prefix())
