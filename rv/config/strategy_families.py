"""Load the strategy families: each file of `strategies/` but the catalogue of GPU models."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from rv import bundle
from rv.config import gpu_models
from rv.config.documents import Document, read_document
from rv.models.plan import Mode
from rv.models.quantities import parse_duration, parse_memory_mib
from rv.planner.catalogue import Family, Serves

_QUANTITIES: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "memory": ("memory_mib", parse_memory_mib),
    "buffer": ("buffer", parse_duration),
    "min_usable": ("min_usable", parse_duration),
}
"""The defaults that are no plain numbers: their field, and how they are read."""


def load_families(user_config: Path | None = None) -> tuple[Family, ...]:
    """Load every family, bundled and the user's, by file name. Raises `RvError(CONFIG)`."""
    families = []
    for file in bundle.entries(bundle.Kind.STRATEGIES, ".yaml", user_config):
        if file.name == gpu_models.FILE:
            continue
        document = read_document(file)
        if user_config is not None and str(file).startswith(f"{user_config}/"):
            from rv.config.strategies import check_family

            check_family(document)
        families.append(_family(document))
    return tuple(families)


def _family(document: Document) -> Family:
    data: Mapping[str, Any] = document.data
    defaults: dict[str, Any] = {}
    for key, value in data.get("defaults", {}).items():
        name, parse = _QUANTITIES.get(key, (key, None))
        if value is not None:
            defaults[name] = parse(str(value)) if parse else value
    return Family(
        name=data["name"],
        serves=Serves(data.get("serves", Serves.SINGLE_NODE)),
        template=data.get("template", data["name"]),
        mode=Mode(data.get("mode", Mode.DIRECT)),
        enabled=data.get("enabled", True),
        **defaults,
    )
