"""The text of a configuration file: read, checked as rv will read it, and replaced whole."""

import os
import stat
from pathlib import Path
from typing import Any

from rv import bundle
from rv.config.config_files import ConfigFiles, Source, find_config_files
from rv.errors import ErrorKind, RvError
from rv.files import write_atomically
from rv.workflow.option_defaults import check_defaults, option_kinds

_PRIVATE = 0o600


def config_files() -> ConfigFiles:
    """Find the files of whoever calls rv."""
    return find_config_files(os.environ, bundle.user_config_dir())


def contents(path: Path) -> str:
    """Read a file, "" where there is none. Raises `RvError(CONFIG)`."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise RvError(
            ErrorKind.CONFIG, f"{path}: cannot be read: {error}", hint="mend it in an editor"
        ) from error


def check_text(text: str, path: Path, source: Source, files: ConfigFiles) -> None:
    """Refuse a text that rv would refuse as that file. Raises `RvError(CONFIG)`."""
    from rv.config.clusters_file import clusters_of, read_clusters
    from rv.config.documents import parse_document
    from rv.config.gpu_models import load_catalogue
    from rv.config.settings import join_clusters
    from rv.config.settings_file import settings_of

    document = parse_document(text, str(path))
    for name in ("", *_cluster_names(document.data)):
        settings = settings_of(document, option_kinds(), source, name)
        check_defaults(settings)
        load_catalogue(bundle.user_config_dir(), settings.site.aliases)
    others = {each: read_clusters(file, each) for each, file in files.existing() if each != source}
    join_clusters({**others, source: clusters_of(document, source)})


def _cluster_names(data: Any) -> list[str]:
    clusters = data.get("clusters") if isinstance(data, dict) else None
    return list(map(str, clusters)) if isinstance(clusters, dict) else []


def write_text(path: Path, text: str, source: Source) -> None:
    """Replace a file whole; the user's own is for this user alone. Raises `RvError(CONFIG)`."""
    try:
        mode = _PRIVATE if source is Source.USER else _mode(path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, text, mode=mode, durable=True)
    except OSError as error:
        raise RvError(
            ErrorKind.CONFIG,
            f"cannot write {path}: {error.strerror or error}",
            hint="XDG_CONFIG_HOME names another folder",
        ) from error


def _mode(path: Path) -> int | None:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None
