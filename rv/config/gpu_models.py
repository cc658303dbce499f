"""Load the catalogue of GPU models: `strategies/gpus.yaml`, the user's over the bundled one."""

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Final

from rv import bundle
from rv.config.documents import Document, Patterns, Schema, Text, Whole, Words, read_document
from rv.errors import ErrorKind, RvError
from rv.models.site import Alias
from rv.models.spelling import suggestion
from rv.planner.catalogue import Catalogue, GpuModel, normal

FILE: Final = "gpus.yaml"


class _Model(Schema):
    words: Patterns = []
    name: Text = ""
    vram_mib: Whole = 0
    least_mib: Whole | None = None
    rank: Whole = 0
    refines: Text = ""
    aliases: Words = []


class _File(Schema):
    models: dict[str, _Model] = {}
    aliases: dict[str, Words] = {}
    vague: Words = []


def load_catalogue(user_config: Path | None = None, configured: Sequence[Alias] = ()) -> Catalogue:
    """Load the bundled models with the user's laid over them.

    `user_config` is the folder that holds the user's `strategies/`; the aliases of the
    configuration files are laid over those of the same author. Raises `RvError(CONFIG)`.
    """
    folders = reversed(bundle.folders(bundle.Kind.STRATEGIES, user_config))
    documents = [read_document(folder / FILE) for folder in folders if (folder / FILE).is_file()]
    files = [document.read(_File) for document in documents]
    models: dict[str, GpuModel] = {}
    for document, file in zip(documents, files, strict=True):
        models |= {name: _model(document, name, entry) for name, entry in file.models.items()}
    for document, file in zip(documents, files, strict=True):
        _check_names(document, file, models)
    for alias in configured:
        _check_alias(alias, models)
    vague = frozenset(normal(word) for file in files for word in file.vague)
    return Catalogue(models=models, aliases=_layers(files, configured), vague=vague)


def _layers(files: Sequence[_File], configured: Sequence[Alias]) -> dict[str, tuple[str, ...]]:
    """Lay the aliases of all authors over each other: bundled, site, user's models, user."""
    bundled, *own = map(_aliases, files)
    of_site = {alias.word: alias.models for alias in configured if alias.by_site}
    of_user = {alias.word: alias.models for alias in configured if not alias.by_site}
    return reduce(operator.or_, own, bundled | of_site) | of_user


def _model(document: Document, name: str, entry: _Model) -> GpuModel:
    if name != normal(name):
        message = f"a model is named in lower case with dashes, not {name!r}"
        document.fail(("models", name), message)
    least_mib = entry.vram_mib if entry.least_mib is None else entry.least_mib
    return GpuModel(
        name=name,
        words=tuple(entry.words),
        pattern=entry.name,
        vram_mib=entry.vram_mib or None,
        least_mib=least_mib,
        rank=entry.rank,
        refines=entry.refines,
    )


def _check_names(document: Document, file: _File, models: Mapping[str, GpuModel]) -> None:
    for word, meanings in file.aliases.items():
        for name in meanings:
            if name not in models:
                document.fail(("aliases", word), f"alias of {name!r}, which is no model")
    for name, entry in file.models.items():
        if entry.refines and entry.refines not in models:
            document.fail(("models", name, "refines"), f"{entry.refines!r} is no model")


def _check_alias(alias: Alias, models: Mapping[str, GpuModel]) -> None:
    for name in alias.models:
        if name not in models:
            raise RvError(
                ErrorKind.CONFIG,
                f"{alias.origin}: alias of {name!r}, which is no model",
                hint=suggestion(name, models),
            )


def _aliases(file: _File) -> dict[str, tuple[str, ...]]:
    of_models = {
        normal(alias): (name,) for name, entry in file.models.items() for alias in entry.aliases
    }
    return of_models | {normal(word): tuple(names) for word, names in file.aliases.items()}
