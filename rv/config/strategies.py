"""The schemas of a user's files in `strategies/`: the GPU models, and a strategy family."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Final

from pydantic import Field

from rv.config.documents import Document
from rv.config.schema import (
    Patterns,
    Schema,
    Switch,
    Text,
    Whole,
    Words,
    by_parser,
    one_of,
    validate,
)
from rv.models.plan import Mode
from rv.models.quantities import parse_duration, parse_memory_mib
from rv.planner.catalogue import Serves, normal

_DEFAULTS: Final[Mapping[Serves, tuple[str, ...]]] = {
    Serves.SINGLE_NODE: ("cpus_per_gpu", "max_cpus"),
    Serves.MULTI_NODE: ("cpus_per_gpu", "max_cpus", "min_gpus_per_node"),
    Serves.MIG: ("cpus", "memory"),
    Serves.CHECKPOINT: ("buffer", "min_usable"),
}
"""The keys below `defaults` that a family of each kind may have."""


class GpuModelEntry(Schema):
    """One model of `gpus.yaml`."""

    words: Patterns = []
    name: Text = ""
    vram_mib: Whole = 0
    least_mib: Whole = 0
    rank: Whole = 0
    refines: Text = ""
    aliases: Words = []


class GpuModelsFile(Schema):
    """`gpus.yaml`."""

    models: dict[str, GpuModelEntry] = {}
    aliases: dict[str, Words] = {}
    vague: Words = []


class FamilyDefaults(Schema):
    """What a family sets below `defaults`."""

    cpus: Whole = 0
    cpus_per_gpu: Whole = 0
    max_cpus: Whole = 0
    min_gpus_per_node: Whole = 0
    memory: Annotated[int | None, by_parser(parse_memory_mib)] = None
    buffer: Annotated[timedelta | None, by_parser(parse_duration)] = None
    min_usable: Annotated[timedelta | None, by_parser(parse_duration)] = None


class FamilyFile(Schema):
    """The file of one strategy family."""

    name: Text = ""
    serves: Annotated[Serves, one_of(Serves, "serves")] = Serves.SINGLE_NODE
    template: Text = ""
    mode: Annotated[Mode, one_of(Mode, "mode")] = Mode.DIRECT
    enabled: Switch = True
    defaults: FamilyDefaults = Field(default_factory=FamilyDefaults)


def check_gpu_models(document: Document) -> None:
    """Raise `RvError(CONFIG)` for what is wrong in a `gpus.yaml`, but for names of no model."""
    for name in validate(document, GpuModelsFile).models:
        if name != normal(name):
            message = f"a model is named in lower case with dashes, not {name!r}"
            document.fail(("models", name), message)


def check_family(document: Document) -> None:
    """Raise `RvError(CONFIG)` for what is wrong in the file of a family."""
    family = validate(document, FamilyFile)
    keys = family.defaults.model_fields_set
    document.check_keys(("defaults",), sorted(keys), _DEFAULTS[family.serves])
    if not family.name:
        document.fail(("name",), "a family needs a name")
