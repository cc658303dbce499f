"""The two configuration files, the site's and the user's: read, checked, and laid over each other.

Flags win over the user's file, and that over the site's; ceilings are the site's. Each value knows
its file and line.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from rv.models.site import Ceiling, Config, Setting, Site

SITE_FILE: Final = Path("/etc/rv/config.yaml")
FILE: Final = "config.yaml"


def load_config(site_file: Path, user_config: Path, options: Mapping[str, type]) -> Config:
    """Read both files, where they are there.

    `user_config` is the folder of the user's own. `options` are those that may have a default, by
    name, with the type of their value: text, a number, yes or no, a list, or an enumeration.
    Raises `RvError(CONFIG)` with file, line and the nearest key for what is wrong.
    """
    paths = (site_file, user_config / FILE)
    if not any(map(_is_there, paths)):
        return Config()
    from rv.config.settings_file import read_settings  # pydantic and yaml, where there is a file

    site, user = (
        read_settings(path, options, by_site=path == site_file) if _is_there(path) else Config()
        for path in paths
    )
    return _over(site, user)


def _is_there(path: Path) -> bool:
    """Whether there is a file to read; one that may not be looked at is, and reading says why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _over(site: Config, user: Config) -> Config:
    """Lay the user's values over the site's, except that a ceiling can only come down."""
    ceilings = (site.site.max_fanout, user.site.max_fanout)
    return Config(
        defaults={**site.defaults, **user.defaults, **_joined(site.defaults, user.defaults)},
        site=Site(
            prices={**site.site.prices, **user.site.prices},
            unit=user.site.unit or site.site.unit,
            skipped={**user.site.skipped, **site.site.skipped},
            max_fanout=_lowest(ceiling for ceiling in ceilings if ceiling),
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
    return min(ceilings, key=lambda ceiling: ceiling.jobs, default=None)
