"""Bash lines as any login shell, whatever it is, hands them to bash.

What profiles do in their shell (options, traps, functions, read-only names) must not change what a
line means: it is run by a bash of its own, which replaces the login shell and has of that only what
was exported. Profiles may read standard input, look at their arguments and use descriptors below
10: what is sent comes over others.
"""

import base64
from typing import Final

_OWN_BASH: Final = (
    "exec /usr/bin/env -u BASH_ENV -u SHELLOPTS -u BASHOPTS -u POSIXLY_CORRECT"
    " /bin/bash --noprofile --norc -c"
)
# An exported function must not stand in for a builtin or a program; `module`, neither, stays.
_BEGIN: Final = (
    "unset RV_BEGIN; PATH=$PATH:/usr/bin:/bin; "
    "for rv_name in $(compgen -A function); do "
    '[ "$(type -at -- "$rv_name")" = function ] || unset -f -- "$rv_name"; done; unset rv_name; '
)
INPUT: Final = 43
"""The descriptor that has the input of `after_login`, where that is kept from profiles."""


def login_command(line: str) -> str:
    """Return a command that runs `line` in the environment of a login; it may hold anything."""
    return after_login(_packed(line))


def stream_command(line: str) -> str:
    """Return a command that does so for a line whose input no profile may read."""
    inner = f"{_packed(line)} <&{INPUT} {INPUT}<&-"
    return after_login(inner, before=f"exec {INPUT}<&0; ", after=" </dev/null")


def after_login(inner: str, *, before: str = "", after: str = "") -> str:
    """Return a command that runs `inner` in the environment of a login.

    `before` is run before profiles, and `after` are redirections of their shell. None of them may
    hold single quotes or backslashes. Words that follow the command are the arguments of `before`.
    """
    own = rf"{_OWN_BASH} \"\$RV_BEGIN\""
    outer = f'{before}export RV_BEGIN="$0"; exec /bin/bash --login -c "{own}"{after}'
    return f"exec /bin/bash --noprofile --norc -c '{outer}' '{_BEGIN}{inner}'"


def _packed(line: str) -> str:
    packed = base64.b64encode(line.encode("utf-8", "surrogateescape")).decode()
    return f'eval "$(echo {packed} | base64 -d)"'
