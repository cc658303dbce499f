"""Sync: the work tree here and the races' copies of it on the cluster."""

import hashlib
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.workflow.cluster import Cluster
from rv.workflow.send_code import (
    ChangedMeanwhile,
    Destination,
    Report,
    Sent,
    destination,
    last_sent,
    project_name,
    send,
)  # fmt: skip
from rv.workflow.work_tree import WorkTree, find_top, read_work_tree

_TRIES: Final = 4
_LARGE_BYTES: Final = 100 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """A work tree here, and where its code lies on a cluster. `named` are secrets that travel."""

    top: str
    directory: str
    named: tuple[str, ...]
    cache: Path
    place: Destination

    def read(self) -> WorkTree:
        """List and hash the files as they are now."""
        return read_work_tree(self.top, self.directory, self.named, self.cache)


def find_project(
    cluster: Cluster, directory: str, named: Sequence[str] = (), *, or_else: str = ""
) -> Project | None:
    """Return the work tree that a directory lies in; None outside of any.

    Raises `RvError(CONFIG)` where there is one and git fails; `or_else` does without, for the hint.
    """
    import platformdirs

    top = find_top(directory, or_else)
    if not top:
        return None
    cache = platformdirs.user_cache_path("rv")
    environ = cluster.login.environ if cluster.login else {}
    user = re.sub(r"[^A-Za-z0-9_.-]", "-", environ.get("USER") or environ.get("LOGNAME") or "me")
    folder = cache / "sent" / hashlib.sha256(cluster.key.encode()).hexdigest()[:20]
    return Project(
        top=top,
        directory=directory,
        named=tuple(named),
        cache=cache / "work-trees",
        place=destination(
            cluster.race_root, project_name(top, platform.node()), user, memory=folder
        ),
    )


def send_project(project: Project, work: WorkTree, cluster: Cluster, report: Report) -> Sent:
    """Make the cluster have the work tree; it is read anew where files changed meanwhile.

    Raises `RvError(CONFIG)` for a file that changes all the time, and what sending raises.
    """
    changed = ""
    for _ in range(_TRIES):
        try:
            return send(work, project.place, cluster.transport, report)
        except ChangedMeanwhile as error:
            changed = str(error)
            work = project.read()
    raise RvError(
        ErrorKind.CONFIG,
        f"{changed} changes while it is sent",
        hint="name it in .rvignore, or wait until nothing writes to it",
    )


def pending(project: Project, work: WorkTree) -> tuple[tuple[bytes, ...], int]:
    """Return which files differ from what was sent last, and their bytes."""
    before = last_sent(project.place)
    paths = tuple(path for path in work.tree if work.tree[path] != before.get(path))
    return paths, sum(work.tree[path].size for path in paths)


def large_files(work: WorkTree) -> dict[bytes, int]:
    """Return the files so large that they may be data, not code, with their bytes."""
    return {path: one.size for path, one in work.tree.items() if one.size > _LARGE_BYTES}
