"""Which configuration files there are: the site's, the user's own, and the project's `rv.yaml`.

The project's file comes with code that others may have written, so that it says less than the
user's own (`rv.config.settings_file`), and it is read only where this user owns it.
"""

import os
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError

SITE_FILE: Final = Path("/etc/rv/config.yaml")
USER_FILE: Final = "config.yaml"
PROJECT_FILE: Final = "rv.yaml"
_NONE: Final = "none"


class Source(StrEnum):
    """Whose file it is, in order: what a later one says wins."""

    SITE = "site file"
    USER = "user file"
    PROJECT = "project file"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigFiles:
    """Where the files lie, whether they exist or not; `project` is None outside any project."""

    site: Path
    user: Path
    project: Path | None = None

    def existing(self) -> Iterator[tuple[Source, Path]]:
        """Name those that are there, or may be: one that may not be looked at is."""
        pairs = (
            (Source.SITE, self.site), (Source.USER, self.user), (Source.PROJECT, self.project),
        )  # fmt: skip
        return ((source, path) for source, path in pairs if path and _is_there(path))


def find_config_files(environ: Mapping[str, str], user_config: Path) -> ConfigFiles:
    """Find the files; `user_config` is the folder of the user's own.

    RV_SITE_CONFIG and RV_PROJECT_CONFIG name other files; `none` as a project's is none.
    Raises `RvError(CONFIG)` for a project's file of another user.
    """
    named = environ.get("RV_PROJECT_CONFIG", "")
    project = _project_file() if not named else None if named == _NONE else Path(named)
    return ConfigFiles(
        site=Path(environ.get("RV_SITE_CONFIG") or SITE_FILE),
        user=user_config / USER_FILE,
        project=project,
    )


def _project_file() -> Path | None:
    """Look in this folder and those above it: as far as this user's own go, a work tree or home."""
    try:
        here = Path.cwd()
    except OSError:
        return None
    for folder in (here, *here.parents):
        path = folder / PROJECT_FILE
        if os.path.lexists(path):
            _require_own(path)
            return path
        if (folder / ".git").exists() or folder == Path.home() or not _is_own(folder.parent):
            return None
    return None


def _is_own(path: Path) -> bool:
    try:
        return path.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _require_own(path: Path) -> None:
    if not _is_own(path) and _is_there(path):
        raise RvError(
            ErrorKind.CONFIG,
            f"{path} belongs to another user: rv does not read it",
            hint="copy the project to a folder of yours, or do without: RV_PROJECT_CONFIG=none",
        )


def _is_there(path: Path) -> bool:
    """Whether there is a file to read; one that may not be looked at is, and reading says why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
