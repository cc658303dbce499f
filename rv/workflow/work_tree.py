"""A git work tree on this machine: which of its files are code, and the hashes of their contents.

The hashes are kept from one time to the next: like git's index, a file counts as unchanged while
its size, times and inode are what they were.
"""

import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatch, fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.files import write_atomically
from rv.models.code import Kind, TreeFile
from rv.render.quote import shell
from rv.transport.local_program import output_of

_PIECE_BYTES: Final = 1 << 20
_RACY_NS: Final = 2_000_000_000
"""A file that changed so shortly before it was read may change again within its clock's tick."""

_SECRETS: Final = (
    ".env", ".env.*", "*.env", ".envrc", ".netrc", ".pgpass", ".git-credentials", ".pypirc",
    ".npmrc", ".boto", ".s3cfg", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "rv_key",
    "*.pem", "*.key", "*.ppk", "*.p12", "*.pfx", "*.kdbx", "credentials", "*credentials.json",
    "*credentials.db", "*_credentials", "kaggle.json", ".aws/*", ".azure/*", ".ssh/*", ".gnupg/*",
    ".kube/*", ".docker/config.json", "*huggingface/token",
)  # fmt: skip
"""Of names, or of a folder and a name in it; in small letters."""
_NO_SECRETS: Final = ("*.pub", "*.example", "*.sample", "*.template", "*.dist")
_IGNORE_FILE: Final = ".rvignore"
_NOT_TRUSTED: Final = re.compile("dubious ownership|unsafe repository")
"""What git says of somebody else's work tree; the second in 2.35."""


class _Seen(NamedTuple):
    """What a file looked like when its contents were hashed."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    mode: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkout:
    """Where the work tree is and which commit it has; `folder` is the current one, below `top`."""

    top: str
    folder: str
    branch: str
    commit: str
    is_dirty: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkTree:
    """The files of a checkout that are code, and the secrets that stay here."""

    checkout: Checkout
    tree: dict[bytes, TreeFile]
    secrets: tuple[str, ...]


def find_top(directory: str, or_else: str = "") -> str:
    """Return the top of the work tree that a directory lies in, "" outside of any.

    A home that is a work tree itself counts as none: all that is in it would be sent.
    Raises `RvError(CONFIG)` where there is one and git fails; `or_else` does without, for the hint.
    """
    git = ["git", "-C", directory, "rev-parse"]
    try:
        top = os.fsdecode(output_of([*git, "--show-toplevel"]).removesuffix(b"\n"))
    except RvError as error:
        top = _top_by_name(directory)
        if not (top or "GIT_DIR" in os.environ) or _is_no_work_tree(git):
            return ""
        raise RvError(error.kind, error.message, hint=_remedy(error, top, or_else)) from error
    return "" if _is_home(top) else top


def _is_home(folder: str) -> bool:
    return os.path.realpath(folder) == os.path.realpath(Path.home())


def _top_by_name(directory: str) -> str:
    """Return the folder that would be the top by its `.git`; it is looked for where git does."""
    here = os.path.realpath(directory)
    bounds = os.environ.get("GIT_CEILING_DIRECTORIES", "").split(os.pathsep)
    above = {os.path.realpath(bound) for bound in bounds if bound} - {here}
    for folder in map(str, (Path(here), *Path(here).parents)):
        if folder in above or os.path.basename(folder) == ".git":
            return ""
        if _may_be_repository(os.path.join(folder, ".git")):
            return "" if _is_home(folder) else folder
    return ""


def _may_be_repository(path: str) -> bool:
    """Whether there is something that is not an empty folder, which git passes over."""
    try:
        return bool(os.listdir(path))
    except OSError:  # a file that names a folder elsewhere, or what may not be read
        return os.path.lexists(path)


def _is_no_work_tree(git: Sequence[str]) -> bool:
    """Whether git says so, as of a bare repository; not where it fails here too."""
    with suppress(RvError):
        return output_of([*git, "--is-inside-work-tree"]) == b"false\n"
    return False


def _remedy(error: RvError, top: str, or_else: str) -> str:
    if _NOT_TRUSTED.search(error.message):
        return f"if you trust it: git config --global --add safe.directory {shell(top)}"
    return f"{error.hint}, or {or_else}" if or_else else error.hint


def read_work_tree(top: str, directory: str, named: Sequence[str], cache: Path) -> WorkTree:
    """List and hash the files: tracked ones, and untracked ones that are not ignored.

    `named` are patterns of secrets that are code all the same; `cache` is a folder for the hashes.
    Raises `RvError(CONFIG)` where git does not answer, or a file cannot be read.
    """
    paths, secrets = _without_secrets(sorted(set(_list(top))), named)
    return WorkTree(
        checkout=_read_checkout(top, directory),
        tree=_hash(top, paths, cache / _cache_name(top)),
        secrets=tuple(sorted(os.fsdecode(path) for path in secrets)),
    )


def _read_checkout(top: str, directory: str) -> Checkout:
    status = output_of(
        ["git", "-C", top, "status", "--porcelain=v2", "--branch", "--untracked-files=normal"]
    ).decode("utf-8", "replace")
    lines = status.rstrip("\n").split("\n")  # a name may have other ends of lines in it
    head = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch."))
    commit = head.get("branch.oid", "")
    branch = head.get("branch.head", "")
    return Checkout(
        top=top,
        folder=os.path.relpath(os.path.realpath(directory), os.path.realpath(top)),
        branch="" if branch.startswith("(") else branch,
        commit="" if commit.startswith("(") else commit[:7],
        is_dirty=any(not line.startswith("#") for line in lines),
    )


def _list(top: str, below: bytes = b"") -> Iterator[bytes]:
    """Name the files of a work tree and of those inside it, such as submodules."""
    folder = os.path.join(os.fsencode(top), below)
    git = ["git", "-C", os.fsdecode(folder), "ls-files", "-z"]
    listed = output_of([*git, "--cached", "--others", "--exclude-standard"]).split(b"\0")
    left_out = set[bytes]()
    if os.path.isfile(os.path.join(folder, _IGNORE_FILE.encode())):
        ignore = f"--exclude-from={_IGNORE_FILE}"
        for kind in ("--cached", "--others"):
            left_out.update(output_of([*git, "--ignored", kind, ignore]).split(b"\0"))
    for path in listed:
        if not path or path in left_out:
            continue
        if path.endswith(b"/") or os.path.isdir(os.path.join(folder, path)):
            yield from _list_inside(top, folder, below, path.rstrip(b"/"))
        else:
            yield below + path


def _list_inside(top: str, folder: bytes, below: bytes, path: bytes) -> Iterator[bytes]:
    """Name the files of a work tree inside another; a submodule that is not there has none."""
    inner = os.path.join(folder, path)
    if os.path.islink(inner):
        yield below + path
    elif os.path.lexists(os.path.join(inner, b".git")):
        yield from _list(top, below + path + b"/")


def _without_secrets(
    paths: Iterable[bytes], named: Sequence[str]
) -> tuple[list[bytes], list[bytes]]:
    """Part the files that look like secrets, and are not named, from the others."""
    code: list[bytes] = []
    secrets: list[bytes] = []
    for path in paths:
        text = os.fsdecode(path)
        hidden = is_secret(text) and not any(fnmatch(text, pattern) for pattern in named)
        (secrets if hidden else code).append(path)
    return code, secrets


_MAY_BE_SECRET: Final = re.compile(
    r"(?i)env|netrc|pgpass|credential|pypirc|npmrc|boto|s3cfg|id_|rv_key|\.pem|\.key|\.ppk|\.p12|"
    r"\.pfx|\.kdbx|kaggle|aws|azure|ssh|gnupg|kube|docker|huggingface"
)


def is_secret(path: str) -> bool:
    """Whether a path looks like that of keys, passwords or tokens."""
    if not _MAY_BE_SECRET.search(path):  # quick: a tree has many files
        return False
    parts = path.lower().split("/")
    name = parts[-1]
    if any(fnmatchcase(name, pattern) for pattern in _NO_SECRETS):
        return False
    pairs = map("/".join, pairwise(parts))
    words = (name, *pairs)
    return any(fnmatchcase(word, pattern) for word in words for pattern in _SECRETS)


def _cache_name(top: str) -> str:
    return hashlib.sha256(os.fsencode(top)).hexdigest()[:20]


def _hash(top: str, paths: Sequence[bytes], cache: Path) -> dict[bytes, TreeFile]:
    """Hash the files that changed since the last time; what is gone meanwhile is left out."""
    before = _read_cache(cache)
    now: dict[bytes, tuple[_Seen, bytes]] = {}
    tree: dict[bytes, TreeFile] = {}
    root = os.fsencode(top) + b"/"
    began_ns = time.time_ns()
    for path in paths:
        try:
            status = os.lstat(root + path)
        except OSError:
            continue  # deleted, but git still tracks it
        seen = _Seen(
            status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode
        )
        cached = before.get(path)
        digest = cached[1] if cached and cached[0] == seen else _digest(root + path, seen.mode)
        if digest is None:
            continue
        tree[path] = TreeFile(_kind(seen.mode), digest, seen.size)
        if max(seen.mtime_ns, seen.ctime_ns) + _RACY_NS < began_ns:
            now[path] = seen, digest
    if now != before:
        _write_cache(cache, now)
    return tree


def _kind(mode: int) -> Kind:
    if stat.S_ISLNK(mode):
        return Kind.LINK
    return Kind.PROGRAM if mode & stat.S_IXUSR else Kind.FILE


def _digest(path: bytes, mode: int) -> bytes | None:
    """Hash a file, or a link's target; None for what is neither, such as a socket."""
    digest = hashlib.sha256()
    try:
        if stat.S_ISLNK(mode):
            digest.update(os.readlink(path))
        elif stat.S_ISREG(mode):
            with open(path, "rb", buffering=0) as file:
                while piece := file.read(_PIECE_BYTES):
                    digest.update(piece)
        else:
            return None
    except FileNotFoundError:
        return None
    except OSError as error:
        name = os.fsdecode(path)
        raise RvError(
            ErrorKind.CONFIG,
            f"{name}: it cannot be read: {error.strerror}",
            hint=f"make it readable, or name it in {_IGNORE_FILE}",
        ) from error
    return digest.digest()


def _read_cache(cache: Path) -> dict[bytes, tuple[_Seen, bytes]]:
    """Read the hashes of the last time, none where there are none or they cannot be read."""
    seen = {}
    try:
        for line in cache.read_bytes().split(b"\0")[:-1]:
            *numbers, digest, path = line.split(b" ", 6)
            seen[path] = _Seen(*map(int, numbers)), bytes.fromhex(digest.decode())
    except (OSError, ValueError, TypeError):
        return {}
    return seen


def _write_cache(cache: Path, seen: dict[bytes, tuple[_Seen, bytes]]) -> None:
    lines = (
        b"%d %d %d %d %d %b %b\0" % (*look, digest.hex().encode(), path)
        for path, (look, digest) in seen.items()
    )
    with suppress(OSError):  # it only saves time
        cache.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(cache, b"".join(lines), mode=0o600)
