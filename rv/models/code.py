"""The code that a race runs: a git work tree as files with the hashes of their contents.

A tree maps each file's path, relative to the top of the work tree and as the bytes that the file
system has, to what is there. Its hash names it on the cluster.
"""

import hashlib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from rv.dataclass import dataclass


class Kind(StrEnum):
    """What a path is: a file, a program (an executable file), or a symbolic link."""

    FILE = "f"
    PROGRAM = "x"
    LINK = "l"


class TreeFile(NamedTuple):
    """One file: its kind, the SHA-256 of its contents (of a link, of its target), its bytes."""

    kind: Kind
    digest: bytes
    size: int


Tree: TypeAlias = Mapping[bytes, TreeFile]


class Difference(NamedTuple):
    """What makes a new tree of an old one: what to remove first, and what to send, sorted."""

    removed: tuple[bytes, ...]
    sent: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Code:
    """The code of a race. `tree` is the hash of its files, `folder` where in it the command runs.

    `commit` is git's short name of the commit, "" where there is none yet; `is_dirty` says whether
    files differ from it. `store` is the directory on the cluster that holds the trees.
    """

    project: str
    tree: str
    folder: str = ""
    branch: str = ""
    commit: str = ""
    is_dirty: bool = False
    store: str = ""

    @property
    def version(self) -> str:
        """The commit and whether files differ from it, such as a1b2c3d+dirty."""
        return f"{self.commit or 'no commit'}{'+dirty' if self.is_dirty else ''}"


def tree_hash(tree: Tree) -> str:
    """Return the name of a tree: a hash of all paths, kinds and contents."""
    digest = hashlib.sha256()
    for path, file in sorted(tree.items()):
        digest.update(b"%b %b %b\0" % (file.kind.encode(), file.digest, path))
    return digest.hexdigest()[:20]


def difference(old: Tree, new: Tree) -> Difference:
    """Return what turns one tree into another; what changed is removed, and sent."""
    gone = (path for path in old if new.get(path) != old[path])
    changed = (path for path in new if new[path] != old.get(path))
    return Difference(removed=tuple(sorted(gone)), sent=tuple(sorted(changed)))


def size_of(tree: Tree) -> int:
    """Return the bytes of all files."""
    return sum(file.size for file in tree.values())


def write_manifest(tree: Tree) -> Iterator[bytes]:
    """Yield a tree as lines that end with a NUL: kind, hash, bytes and path."""
    for path, file in sorted(tree.items()):
        yield b"%b %b %d %b\0" % (file.kind.encode(), file.digest.hex().encode(), file.size, path)


def read_manifest(data: bytes) -> dict[bytes, TreeFile]:
    """Read what `write_manifest` wrote. Raises `ValueError` for anything else."""
    tree = {}
    for line in data.split(b"\0")[:-1]:
        kind, digest, size, path = line.split(b" ", 3)
        tree[path] = TreeFile(Kind(kind.decode()), bytes.fromhex(digest.decode()), int(size))
    return tree
