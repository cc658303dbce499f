"""What a cluster has that a configuration is made of: GPUs, accounts, disks, programs."""

import re
import time
from collections.abc import Sequence
from typing import Final

from rv import bundle
from rv.config.gpu_models import load_catalogue
from rv.models.discovery import Discovery, Folder
from rv.planner.report import overview
from rv.slurm.printable import printable
from rv.slurm.values import number
from rv.workflow.cluster import Cluster
from rv.workflow.script_records import parse_records, script

_ASKING_S: Final = 60.0
_NETWORK: Final = re.compile(
    r"nfs|lustre|gpfs|beegfs|fhgfs|ceph|panfs|afs|gfs2?|ocfs2|cifs|smb2?|9p|fuseblk|orangefs",
    re.IGNORECASE,
)
_FIELDS: Final = 6


def discover(cluster: Cluster) -> Discovery:
    """Ask a cluster what it has. Raises `RvError(UNREACHABLE)` where it or its Slurm is silent."""
    began_s = time.monotonic()
    snapshot = cluster.take_fresh_snapshot()
    asked_s = time.monotonic() - began_s
    answer = cluster.transport.run(script("discover.sh"), timeout_s=_ASKING_S)
    folders, tools = parse_discovery(answer.stdout)
    return Discovery(
        snapshot=snapshot,
        pools=overview(snapshot, load_catalogue(bundle.user_config_dir())),
        folders=folders,
        tools=tools,
        asked_s=asked_s,
    )


def parse_discovery(text: str) -> tuple[tuple[Folder, ...], dict[str, str]]:
    """Read the folders and the programs that scripts/discover.sh found; each folder once."""
    records = parse_records(text)
    rows = [value.split(" ", _FIELDS - 1) for key, value in records if key == "folder"]
    tools = [value.partition(" ") for key, value in records if key == "tool"]
    return _folders(rows), {printable(name): printable(what) for name, _, what in tools}


def _folders(rows: Sequence[Sequence[str]]) -> tuple[Folder, ...]:
    whole = [row for row in rows if len(row) == _FIELDS and row[5].startswith("/")]
    home = next((row[3] for row in whole if row[0] == "home"), "")
    folders: dict[str, Folder] = {}
    for row in whole:
        folders.setdefault(row[5], _folder(row, home))
    return tuple(folders.values())


def _folder(row: Sequence[str], home: str) -> Folder:
    kind, disk, free_kib, device, links, path = row
    return Folder(
        path=path,
        variable="" if kind in ("home", "path") else kind,
        disk=printable(disk),
        free_mib=(number(free_kib) or 0) // 1024,
        has_links=links == "yes",
        is_home=kind == "home",
        is_shared=kind == "home" or device == home or bool(_NETWORK.search(disk)),
    )
