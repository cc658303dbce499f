"""What a cluster has that a configuration is made of: GPUs, accounts, disks, programs."""

import re
import time
from collections.abc import Sequence
from importlib.resources import files
from typing import Final

from rv import bundle
from rv.config.gpu_models import load_catalogue
from rv.models.discovery import Discovery, Folder
from rv.planner.report import overview
from rv.slurm.values import number, printable
from rv.workflow.cluster import Cluster

_ASKING_S: Final = 60.0
_SCRIPT: Final = files("rv.workflow") / "scripts" / "discover.sh"
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
    script = _SCRIPT.read_text(encoding="utf-8")
    folders, tools = parse_discovery(cluster.transport.run(script, timeout_s=_ASKING_S).stdout)
    return Discovery(
        snapshot=snapshot,
        pools=overview(snapshot, load_catalogue(bundle.user_config_dir())),
        folders=folders,
        tools=tools,
        asked_s=asked_s,
    )


def parse_discovery(text: str) -> tuple[tuple[Folder, ...], dict[str, str]]:
    """Read the folders and the programs that scripts/discover.sh found; each folder once."""
    records = [record.rpartition("\n")[2].partition("\t")[::2] for record in text.split("\0")]
    rows = [value.split(" ", _FIELDS - 1) for key, value in records if key == "folder"]
    rows = [row for row in rows if len(row) == _FIELDS and row[5].startswith("/")]
    home = next((row[3] for row in rows if row[0] == "home"), "")
    folders: dict[str, Folder] = {}
    for row in rows:
        folders.setdefault(row[5], _folder(row, home))
    tools = dict(value.partition(" ")[::2] for key, value in records if key == "tool")
    return tuple(folders.values()), {printable(k): printable(v) for k, v in tools.items()}


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
