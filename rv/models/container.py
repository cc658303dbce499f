"""Container images and mounts as users name them, and as Pyxis and Apptainer want them."""

import re
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError

VARIABLES: Final = "RV_VARIABLES"
"""The variable of a job that names those that the user has set for it: an image's own yield."""

_DOCKER: Final = "docker://"
_APPTAINER_ONLY: Final = ("oras://", "library://", ".sif")
_PYXIS_FILES: Final = (".sqsh", ".sqfs", ".squashfs")
_FILES: Final = (".sif", *_PYXIS_FILES)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,511}", re.ASCII)
_OF_REGISTRY: Final = re.compile(
    r"(?:(?P<user>[A-Za-z0-9._$-]+)@)?(?P<registry>[A-Za-z0-9.-]+(?::\d+)?)#(?P<name>.+)", re.ASCII
)
_MODES: Final = ("ro", "rw")
_HINT: Final = (
    "write ubuntu:24.04, nvcr.io/nvidia/pytorch:24.05-py3, docker://…, or a path such as ./my.sif"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """An image by both runtimes' names, "" where Pyxis cannot run it; `path` is "" for no file."""

    apptainer: str
    pyxis: str = ""
    path: str = ""


def is_path(text: str) -> bool:
    """Whether an image is a file or a folder, rather than a name in a registry."""
    if "://" in text:
        return False
    return text.startswith(("/", "./", "../", "~")) or text.endswith(_FILES)


def read_image(text: str) -> Image:
    """Read an image: a path, a name of Docker's, or `USER@REGISTRY#NAME` as Pyxis has it.

    A file goes to the runtimes as it is: SIF and folders are Apptainer's alone. Raises
    `RvError(USAGE)` for what neither runtime has a form for.
    """
    if is_path(text):
        if any(not char.isprintable() for char in text):
            raise _unfit(text)
        return Image(pyxis=text if text.endswith(_PYXIS_FILES) else "", apptainer=text, path=text)
    scheme, separator, rest = text.rpartition("://")
    if separator and f"{scheme}://" not in (_DOCKER, *_APPTAINER_ONLY):
        raise _unfit(text)
    if not _NAME.fullmatch(rest.replace("#", "/", 1).lstrip("$")) or ".." in rest:
        raise _unfit(text)
    if f"{scheme}://" in _APPTAINER_ONLY:
        return Image(apptainer=text)
    return _of_docker(rest)


def _of_docker(name: str) -> Image:
    """Return a name of Docker's, whose first part is a registry where it looks like a host."""
    if parts := _OF_REGISTRY.fullmatch(name):
        return Image(pyxis=name, apptainer=f"{_DOCKER}{parts['registry']}/{parts['name']}")
    registry, slash, rest = name.partition("/")
    is_host = bool(slash) and ("." in registry or ":" in registry or registry == "localhost")
    return Image(pyxis=f"{registry}#{rest}" if is_host else name, apptainer=f"{_DOCKER}{name}")


def read_mount(text: str) -> str:
    """Read `SRC[:DST[:ro|rw]]` and write it out in full. Raises `RvError(USAGE)` for others."""
    source, *rest = text.split(":")
    target = rest[0] if rest and rest[0] not in _MODES else source
    modes = rest[1:] if rest and rest[0] not in _MODES else rest
    paths = (source, target)
    if not all(map(is_mountable, paths)) or modes not in ([], ["ro"], ["rw"]):
        raise RvError(
            ErrorKind.USAGE,
            f"--container-mounts: {text!r} is no mount",
            hint="write SRC, SRC:DST or SRC:DST:ro with whole paths, without commas and colons",
        )
    return ":".join([*paths, *modes])


def is_mountable(path: str) -> bool:
    """Whether both runtimes can name a folder in their lists of mounts, and it may be mounted."""
    is_plain = all(char.isprintable() and char not in ",:" for char in path)
    return path.startswith("/") and bool(path.strip("/")) and is_plain


def _unfit(text: str) -> RvError:
    return RvError(ErrorKind.USAGE, f"--container: {text!r} is no image", hint=_HINT)
