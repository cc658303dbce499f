"""The two configuration files, the site's and the user's: read, checked, and laid over each other.

Flags win over the user's file, and that over the site's; ceilings are the site's. Each value knows
its file and line.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from rv.models.site import Alias, Ceiling, Config, Price, Setting, Site

SITE_FILE: Final = Path("/etc/rv/config.yaml")
FILE: Final = "config.yaml"
_PRICES: Final = ("prices", "per_gpu_hour")
_KEYS: Final = ("defaults", "max_fanout", "prices", "aliases", "skip_partitions")


def load_config(site_file: Path, user_config: Path, options: Mapping[str, type]) -> Config:
    """Read both files, where they are there.

    `user_config` is the folder of the user's own. `options` are those that may have a default, by
    name, with the type of their value: text, a number, yes or no, a list, or an enumeration.
    Raises `RvError(CONFIG)` with file, line and the nearest key for what is wrong.
    """
    user_file = user_config / FILE
    site = _read(site_file, options, by_site=True) if _is_there(site_file) else Config()
    if not _is_there(user_file):
        return site
    return _over(site, _read(user_file, options, by_site=False))


def _is_there(path: Path) -> bool:
    """Whether there is a file to read; one that may not be looked at is, and reading says why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _read(path: Path, options: Mapping[str, type], *, by_site: bool) -> Config:
    from rv.planner.documents import read_document

    document = read_document(path)
    document.check_keys((), _KEYS)
    document.check_keys(("defaults",), options)
    document.check_keys(("prices",), ("unit", "per_gpu_hour"))
    names = document.mapping(("defaults",))
    skipped = document.words(("skip_partitions",))
    return Config(
        defaults={name: _setting(document, name, options[name]) for name in names},
        site=Site(
            prices=_prices(document),
            unit=document.text_at(("prices", "unit")),
            skipped=dict.fromkeys(skipped, document.origin(("skip_partitions",))),
            max_fanout=_ceiling(document),
            aliases=tuple(_aliases(document, by_site=by_site)),
        ),
    )


def _setting(document: "Document", name: str, kind: type) -> Setting:
    path = ("defaults", name)
    value = document.get(path, None)
    if kind is list:
        found: object = _pairs(document, path)
    elif kind is bool:
        if not isinstance(value, bool):
            document.refuse(path, "true or false")
        found = value
    elif kind is int:
        found = document.whole(path)
    elif kind is float:
        found = document.number(path)
    elif issubclass(kind, StrEnum):
        found = _choice(document, path, kind)
    else:
        found = _text(document, path, value)
    return Setting(value=found, origin=document.origin(path))


def _pairs(document: "Document", path: tuple[str, ...]) -> list[str]:
    """Read a mapping, such as sbatch options, as the words that repeat on a command line."""
    return [f"{key}={document.word_at((*path, key))}" for key in document.mapping(path)]


def _choice(document: "Document", path: tuple[str, ...], kind: type[StrEnum]) -> StrEnum:
    from rv.planner.documents import nearest

    word = document.text_at(path)
    known = [str(choice) for choice in kind]
    if word not in known:
        near = nearest(word, known)
        hint = f"did you mean {near}?" if near else f"one of: {', '.join(known)}"
        document.fail(path, f"unknown {path[-1]} {word!r}", hint=hint)
    return kind(word)


def _text(document: "Document", path: tuple[str, ...], value: Any) -> str:
    """Read text, or a list of words as a command line has it, parted by commas."""
    if isinstance(value, list):
        return ",".join(document.words(path))
    if not isinstance(value, str):
        # YAML reads an unquoted 2:59:00 as the number 10740.
        document.refuse(path, "text", hint="put it in quotes")
    return value


def _prices(document: "Document") -> dict[str, Price]:
    paths = [("prices", "per_gpu_hour", name) for name in document.mapping(_PRICES)]
    return {
        path[-1]: Price(per_gpu_hour=document.number(path), origin=document.origin(path))
        for path in paths
    }


def _ceiling(document: "Document") -> Ceiling | None:
    path = ("max_fanout",)
    if path[0] not in document.mapping(()):
        return None
    jobs = document.whole(path)
    if not jobs:
        document.fail(path, "max_fanout must be 1 or more")
    return Ceiling(jobs=jobs, origin=document.origin(path))


def _aliases(document: "Document", *, by_site: bool) -> Iterator[Alias]:
    from rv.planner.catalogue import normal

    for word in document.mapping(("aliases",)):
        path = ("aliases", word)
        yield Alias(
            word=normal(word),
            models=document.words(path),
            origin=document.origin(path),
            by_site=by_site,
        )


def _over(site: Config, user: Config) -> Config:
    """Lay the user's values over the site's, except that a ceiling can only come down."""
    ceilings = (site.site.max_fanout, user.site.max_fanout)
    return Config(
        defaults={**site.defaults, **user.defaults, **_joined(site.defaults, user.defaults)},
        site=Site(
            prices={**site.site.prices, **user.site.prices},
            unit=user.site.unit or site.site.unit,
            skipped={**user.site.skipped, **site.site.skipped},
            max_fanout=_lowest(found for found in ceilings if found),
            aliases=(*site.site.aliases, *user.site.aliases),
        ),
    )


def _joined(below: Mapping[str, Setting], above: Mapping[str, Setting]) -> dict[str, Setting]:
    """Options that may be repeated come from both files."""
    both = below.keys() & above.keys()
    pairs = {name: (below[name].value, above[name].value) for name in both}
    return {
        name: Setting(value=override(first, second), origin=above[name].origin)
        for name, (first, second) in pairs.items()
        if isinstance(first, list) and isinstance(second, list)
    }


def override(below: Iterable[str], above: Iterable[str]) -> list[str]:
    """Lay words `K=V` over others: of two with one key the later stays."""
    words = (word.removeprefix("--") for word in (*below, *above))
    return list({word.partition("=")[0]: word for word in words}.values())


def _lowest(ceilings: Iterable[Ceiling]) -> Ceiling | None:
    return min(ceilings, key=lambda found: found.jobs, default=None)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from rv.planner.documents import Document
