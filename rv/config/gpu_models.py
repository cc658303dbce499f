"""Load the catalogue of GPU models: `strategies/gpus.yaml`, the user's over the bundled one."""

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Final

from rv import bundle
from rv.config.documents import Document, read_document
from rv.errors import ErrorKind, RvError
from rv.models.site import Alias
from rv.planner.catalogue import Catalogue, GpuModel, normal

FILE: Final = "gpus.yaml"
_Mapping = Mapping[str, Any]


def load_catalogue(user_config: Path | None = None, configured: Sequence[Alias] = ()) -> Catalogue:
    """Load the bundled models with the user's laid over them.

    `user_config` is the folder that holds the user's `strategies/`; the aliases of the
    configuration files are laid over those of the same author. Raises `RvError(CONFIG)`.
    """
    folders = reversed(bundle.folders(bundle.Kind.STRATEGIES, user_config))
    bundled, *own = (read_document(f / FILE) for f in folders if (f / FILE).is_file())
    _check(own)
    files = [document.data or {} for document in (bundled, *own)]
    models = _models(files)
    for document in own:
        _check_names(document, models)
    for alias in configured:
        _check_alias(alias, models)
    vague = frozenset(normal(word) for file in files for word in file.get("vague", ()))
    return Catalogue(models=models, aliases=_layers(files, configured), vague=vague)


def _models(files: Sequence[_Mapping]) -> dict[str, GpuModel]:
    models: dict[str, GpuModel] = {}
    for file in files:
        models |= {name: _model(name, entry) for name, entry in file.get("models", {}).items()}
    return models


def _check(own: Sequence[Document]) -> None:
    for document in own:
        from rv.config.strategies import check_gpu_models  # pydantic, where there is a file

        check_gpu_models(document)


def _layers(files: Sequence[_Mapping], configured: Sequence[Alias]) -> dict[str, tuple[str, ...]]:
    """Lay the aliases of all authors over each other: bundled, site, user's models, user."""
    bundled, *own = map(_aliases, files)
    of_site = {alias.word: alias.models for alias in configured if alias.by_site}
    of_user = {alias.word: alias.models for alias in configured if not alias.by_site}
    return reduce(operator.or_, own, bundled | of_site) | of_user


def _model(name: str, entry: _Mapping) -> GpuModel:
    vram_mib = entry.get("vram_mib", 0)
    return GpuModel(
        name=name,
        words=tuple(entry.get("words", ())),
        pattern=entry.get("name", ""),
        vram_mib=vram_mib or None,
        least_mib=entry.get("least_mib", vram_mib),
        rank=entry.get("rank", 0),
        refines=entry.get("refines", ""),
    )


def _check_names(document: Document, models: Mapping[str, GpuModel]) -> None:
    file: _Mapping = document.data or {}
    for word, meanings in file.get("aliases", {}).items():
        for name in meanings:
            if name not in models:
                document.fail(("aliases", word), f"alias of {name!r}, which is no model")
    for name in file.get("models", {}):
        refines = models[name].refines
        if refines and refines not in models:
            document.fail(("models", name, "refines"), f"{refines!r} is no model")


def _check_alias(alias: Alias, models: Mapping[str, GpuModel]) -> None:
    for name in alias.models:
        if name not in models:
            from rv.models.spelling import suggestion  # a slip alone needs it

            raise RvError(
                ErrorKind.CONFIG,
                f"{alias.origin}: alias of {name!r}, which is no model",
                hint=suggestion(name, models),
            )


def _aliases(file: _Mapping) -> dict[str, tuple[str, ...]]:
    aliases: dict[str, tuple[str, ...]] = {}
    for name, entry in file.get("models", {}).items():
        aliases |= {normal(alias): (name,) for alias in entry.get("aliases", ())}
    return aliases | {normal(word): tuple(m) for word, m in file.get("aliases", {}).items()}
