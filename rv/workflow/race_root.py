"""Where races lie: the race root that a file sets, with variables of a login in it."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.render.quote import shell as shell_word

RACE_ROOT: Final = '"${RV_RACE_ROOT:-${XDG_STATE_HOME:-$HOME/.local/state}/rv/races}"'
"""The usual one, as a shell expands it."""

_VARIABLE: Final = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)


def expand_folder(folder: str, environ: Mapping[str, str], origin: str) -> str:
    """Fill in `~`, `$NAME` and `${NAME}` by the variables of a login; nothing is run for it.

    Raises `RvError(CONFIG)` where one is not set there, or the path is no whole one.
    """
    text = f"$HOME{folder[1:]}" if folder.startswith("~") else folder
    missing = [name for name in _variables(text) if not environ.get(name)]
    if missing:
        raise RvError(
            ErrorKind.CONFIG,
            f"{origin}: race_root names ${missing[0]}, which a login there does not set",
            hint="rv config set clusters.NAME.race_root /path writes another",
        )
    path = _VARIABLE.sub(lambda match: environ[match[1] or match[2]], text)
    if not path.startswith("/"):
        raise RvError(
            ErrorKind.CONFIG, f"{origin}: race_root is {path!r}", hint="write a whole path"
        )
    return str(PurePosixPath(path))


def assignment(race_root: str) -> str:
    """Return the bash line that sets `root`; RV_RACE_ROOT there wins."""
    if not race_root:
        return f"root={RACE_ROOT}\n"
    text = f"$HOME{race_root[1:]}" if race_root.startswith("~") else race_root
    words, at = [], 0
    for match in _VARIABLE.finditer(text):
        words += [shell_word(text[at : match.start()]), f'"${{{match[1] or match[2]}-}}"']
        at = match.end()
    words.append(shell_word(text[at:]))
    return f'root=${{RV_RACE_ROOT:-}}\n[ -n "$root" ] || root={"".join(words)}\n'


def _variables(text: str) -> list[str]:
    return [match[1] or match[2] for match in _VARIABLE.finditer(text)]
