"""Where the data that travels with rv lies: templates, strategies and payload scripts.

In a wheel `templates/` and `strategies/` are mapped to `rv/_bundle/`; in a checkout they lie beside
`rv/`. This module is the only code that knows, and the only one that knows where users keep theirs.
"""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


class Kind(StrEnum):
    """The bundled folders that users may override, by their name at the top of the repository."""

    TEMPLATES = "templates"
    STRATEGIES = "strategies"


def user_config_dir() -> Path:
    """Return the folder that may hold the user's own `templates/` and `strategies/`."""
    import platformdirs

    return platformdirs.user_config_path("rv")


def acceptance_dir() -> Path:
    """Return the folder of what acceptance keeps on this machine."""
    import platformdirs

    return platformdirs.user_data_path("rv") / "accept"


def acceptance_file(kind: str, cluster: str, suffix: str) -> Path:
    """Return the file of one cluster, by its key, in the acceptance folder of a kind."""
    name = "".join(char if char.isalnum() or char in "-." else "_" for char in cluster)
    return acceptance_dir() / kind / f"{name or 'unknown'}{suffix}"


def bundled(kind: Kind) -> "Traversable":
    """Return the folder of `kind` that came with rv, from the wheel or else from the checkout."""
    installed = _rv() / "_bundle" / kind.value
    if installed.is_dir():
        return installed
    return Path(__file__).parents[1] / kind.value


def folders(kind: Kind, user_config: Path | None = None) -> "tuple[Traversable, ...]":
    """Return the folders of `kind` in the order searched: the user's, where there is one, first."""
    own: tuple[Traversable, ...] = ()
    if user_config is not None and (user_config / kind.value).is_dir():
        own = (user_config / kind.value,)
    return (*own, bundled(kind))


def find(kind: Kind, name: str, user_config: Path | None = None) -> "Traversable | None":
    """Return the file `name` of `kind`, the user's first; None where neither is."""
    if not name or "/" in name or name.startswith("."):
        return None
    for folder in folders(kind, user_config):
        if (folder / name).is_file():
            return folder / name
    return None


def entries(kind: Kind, suffix: str, user_config: Path | None = None) -> "tuple[Traversable, ...]":
    """Return the files of `kind` whose names end in `suffix`, sorted by name.

    A file of the user's replaces the bundled one of the same name.
    """
    by_name: dict[str, Traversable] = {}
    for folder in reversed(folders(kind, user_config)):
        by_name.update((file.name, file) for file in _files(folder, suffix))
    return tuple(by_name[name] for name in sorted(by_name))


def payload(name: str) -> "Traversable | None":
    """Return the bundled payload script called `name` (`check.py` or `check`), or None."""
    stem = name.removesuffix(".py")
    for script in _payloads():
        if script.name.removesuffix(".py") == stem:
            return script
    return None


def payload_names() -> tuple[str, ...]:
    """Return the file names of the bundled payload scripts, sorted."""
    return tuple(sorted(script.name for script in _payloads()))


def payload_files() -> dict[str, bytes]:
    """Return every file that a payload may need on the cluster, by its path below `payloads/`.

    Their packages (`contract/codes.py`) too; `rv.payloads` itself is no part of them.
    """
    folder = _rv() / "payloads"
    if not folder.is_dir():
        return {}
    return {name: data for name, data in _below(folder, "") if name != "__init__.py"}


def completion_script(shell: str) -> str:
    """Return the script that lets a shell (bash, zsh, fish) complete rv's command line."""
    return (_rv() / "cli" / "shells" / f"rv.{shell}").read_text(encoding="utf-8")


def _payloads() -> "Iterator[Traversable]":
    folder = _rv() / "payloads"
    if folder.is_dir():
        yield from (file for file in _files(folder, ".py") if not file.name.startswith("_"))


def _below(folder: "Traversable", prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _below(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".py"):
            yield f"{prefix}{entry.name}", entry.read_bytes()


def _files(folder: "Traversable", suffix: str) -> "Iterator[Traversable]":
    return (entry for entry in folder.iterdir() if entry.name.endswith(suffix) and entry.is_file())


def _rv() -> "Traversable":
    """The folder of rv itself."""
    from importlib.resources import files  # questions to a cluster begin sooner without it

    return files("rv")
