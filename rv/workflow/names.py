"""The names of a cluster, kept for completion: it asks no cluster, and reads no whole snapshot."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from rv.slurm.cache import SnapshotCache

if TYPE_CHECKING:
    from rv.models.snapshot import Snapshot
    from rv.planner.catalogue import Catalogue

KINDS: Final = ("partitions", "types", "nodes", "accounts", "qos")
"""What has names: `types` are the GPU models, as --type takes them."""

_FILE: Final = "names"
_FRESH: Final = timedelta(seconds=30)
_KEPT: Final = timedelta(days=90)
_MOST: Final = 10_000
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.+:-]{0,63}", re.ASCII)
"""Names with anything else in them are not offered: a shell would read them differently."""


def keep_names(cache: SnapshotCache, snapshot: "Snapshot", catalogue: "Catalogue") -> None:
    """Keep the names of a cluster, unless somebody has done so just now."""
    if cache.load(_FILE, _FRESH):
        return
    from rv.planner.inventory import model_names

    associations = snapshot.associations or ()
    names: dict[str, Iterable[str]] = {
        "partitions": (partition.name for partition in snapshot.partitions),
        "types": model_names(snapshot, catalogue),
        "nodes": (node.name for node in snapshot.nodes),
        "accounts": (each.account for each in associations),
        "qos": (name for each in associations for name in each.qos),
    }
    plain = {kind: list(dict.fromkeys(filter(is_plain, of))) for kind, of in names.items()}
    cache.store(_FILE, json.dumps(plain), "")


def kept_names(cache: SnapshotCache) -> Mapping[str, Sequence[str]]:
    """Return the names of a cluster by their kind; none of what is not known."""
    answer = cache.load(_FILE, _KEPT)
    try:
        found: Any = json.loads(answer.text) if answer else {}
    except ValueError:
        found = {}
    return {kind: _names(found.get(kind)) for kind in KINDS} if isinstance(found, dict) else {}


def is_plain(name: object) -> bool:
    """Whether a name means the same to every shell."""
    return isinstance(name, str) and bool(_NAME.fullmatch(name))


def _names(found: object) -> list[str]:
    return list(filter(is_plain, found[:_MOST])) if isinstance(found, list) else []
