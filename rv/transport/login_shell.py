"""A bash line as any login shell, whatever it is, hands it to bash."""

import base64
from typing import Final

_PLAIN: Final = "set +e +u +C +f +o posix +o pipefail; shopt -u nullglob failglob; unset IFS\n"
"""Undoes what a profile set for its shell."""


def login_command(line: str) -> str:
    """Return a command that runs `line` in a login bash; it may hold quotes and newlines."""
    packed = base64.b64encode(line.encode("utf-8", "surrogateescape")).decode()
    return f"exec /bin/bash --login -c 'eval \"$(echo {packed} | base64 -d)\"'"


def stream_command(line: str) -> str:
    """Return a command that runs `line` in a login bash, whose profile cannot read its input."""
    packed = base64.b64encode((_PLAIN + line).encode("utf-8", "surrogateescape")).decode()
    inner = f'eval \\"\\$(echo {packed} | base64 -d)\\" <&3 3<&-'
    return (
        "exec /bin/bash --noprofile --norc -c "
        f"'exec 3<&0; exec /bin/bash --login -c \"{inner}\" </dev/null'"
    )
