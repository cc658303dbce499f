"""Load the strategy families: each file of `strategies/` but the catalogue of GPU models."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from rv import bundle
from rv.config import gpu_models
from rv.config.documents import (
    Document,
    Schema,
    Switch,
    Text,
    Whole,
    by_parser,
    one_of,
    read_document,
)
from rv.models.plan import Mode
from rv.models.quantities import parse_duration, parse_memory_mib
from rv.planner.catalogue import Family, Serves

_DEFAULTS: Final[Mapping[Serves, tuple[str, ...]]] = {
    Serves.SINGLE_NODE: ("cpus_per_gpu", "max_cpus"),
    Serves.MULTI_NODE: ("cpus_per_gpu", "max_cpus", "min_gpus_per_node"),
    Serves.MIG: ("cpus", "memory"),
    Serves.CHECKPOINT: ("buffer", "min_usable"),
}
"""The keys below `defaults` that a family of each kind may have."""


class _Defaults(Schema):
    cpus: Whole | None = None
    cpus_per_gpu: Whole | None = None
    max_cpus: Whole | None = None
    min_gpus_per_node: Whole | None = None
    memory: Annotated[int | None, by_parser(parse_memory_mib)] = None
    buffer: Annotated[timedelta | None, by_parser(parse_duration)] = None
    min_usable: Annotated[timedelta | None, by_parser(parse_duration)] = None


class _File(Schema):
    name: Text = ""
    serves: Annotated[Serves, one_of(Serves, "serves")] = Serves.SINGLE_NODE
    template: Text | None = None
    mode: Annotated[Mode, one_of(Mode, "mode")] = Mode.DIRECT
    enabled: Switch = True
    defaults: _Defaults = Field(default_factory=_Defaults)


def load_families(user_config: Path | None = None) -> tuple[Family, ...]:
    """Load every family, bundled and the user's, by file name. Raises `RvError(CONFIG)`."""
    files = bundle.entries(bundle.Kind.STRATEGIES, ".yaml", user_config)
    return tuple(_family(read_document(file)) for file in files if file.name != gpu_models.FILE)


def _family(document: Document) -> Family:
    file = document.read(_File)
    defaults: dict[str, Any] = file.defaults.model_dump(exclude_none=True)
    document.check_keys(("defaults",), defaults, _DEFAULTS[file.serves])
    if not file.name:
        document.fail(("name",), "a family needs a name")
    if "memory" in defaults:
        defaults["memory_mib"] = defaults.pop("memory")
    return Family(
        name=file.name,
        serves=file.serves,
        template=file.name if file.template is None else file.template,
        mode=file.mode,
        enabled=file.enabled,
        **defaults,
    )
