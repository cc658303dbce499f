"""The configuration files, the site's, the user's and the project's, laid over each other.

Flags win over the environment, that over the project's file, that over the user's, and that over
the site's; ceilings are the site's. In one file, what is set for a cluster wins over what is set
for all. Each value knows its file and line.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Final, NoReturn

from rv.config.config_files import ConfigFiles, Source
from rv.errors import ErrorKind, RvError
from rv.models.performance import Performance
from rv.models.site import LOCAL, Ceiling, Clusters, Config, Site, is_built_in, overlaid

_UNKNOWN: Final = "no cluster {!r} is known"
_HOW_TO_NAME: Final = "rv init USER@HOST gives a cluster its name"


def load_config(files: ConfigFiles, options: Mapping[str, type], cluster: str = "") -> Config:
    """Read the files that are there, with what they set for a cluster of that name.

    `options` are those that may have a default, by name, with the type of their value: text, a
    number, yes or no, a list, or an enumeration.
    Raises `RvError(CONFIG)` with file, line and the nearest key for what is wrong.
    """
    existing = list(files.existing())
    if not existing:
        return Config()
    from rv.config.settings_file import read_settings  # pydantic and yaml, where there is a file

    load_clusters(files)
    layers = [read_settings(path, options, source, cluster) for source, path in existing]
    return reduce(_over, layers)


def load_clusters(files: ConfigFiles) -> Clusters:
    """Read which clusters the files name, and nothing else of them.

    Raises `RvError(CONFIG)` for what is wrong there, also for one without a host.
    """
    existing = list(files.existing())
    if not existing:
        return Clusters()
    from rv.config.clusters_file import read_clusters

    return join_clusters({source: read_clusters(path, source) for source, path in existing})


def join_clusters(layers: Mapping[Source, Clusters]) -> Clusters:
    """Lay what the files say of clusters over each other. Raises `RvError(CONFIG)`."""
    clusters = Clusters()
    for source in filter(layers.get, Source):
        lay_over = _project_over if source is Source.PROJECT else _clusters_over
        clusters = lay_over(clusters, layers[source])
    _check(clusters)
    return clusters


def chosen_cluster(option: str, environ: Mapping[str, str], clusters: Clusters) -> str:
    """Return which cluster is meant: `--cluster`, else RV_CLUSTER, else the files', else ""."""
    default = clusters.default.value if clusters.default else ""
    return option or environ.get("RV_CLUSTER", "") or default


def _clusters_over(below: Clusters, above: Clusters) -> Clusters:
    """Lay one file's clusters over another's, field by field."""
    merged = {**below.named, **above.named}
    for name in below.named.keys() & above.named.keys():
        old, new = below.named[name], above.named[name]
        merged[name] = replace(
            new,
            host=new.host or old.host,
            ssh=new.ssh or old.ssh,
            race_root=new.race_root or old.race_root,
        )
    return Clusters(named=merged, default=above.default or below.default)


def _project_over(own: Clusters, project: Clusters) -> Clusters:
    """Take the project's choice among the user's clusters: it names none of its own."""
    for named in project.named.values():
        if named.name not in own.named:
            _fail_unknown(named.name, own, named.origin)
    return Clusters(named=own.named, default=project.default or own.default)


def _check(clusters: Clusters) -> None:
    """Raise for a cluster without a host, and for a default that names none that is known."""
    for named in clusters.named.values():
        if not named.host:
            _fail(named.origin, f"cluster {named.name} has no host", "write host: USER@HOST")
    word = str(clusters.default.value) if clusters.default else LOCAL
    if word not in clusters.named and not is_built_in(word):
        _fail_unknown(word, clusters, clusters.default.origin if clusters.default else "")


def _fail_unknown(word: str, clusters: Clusters, origin: str) -> NoReturn:
    from rv.models.spelling import suggestion

    _fail(origin, _UNKNOWN.format(word), suggestion(word, clusters.named, _HOW_TO_NAME))


def _fail(origin: str, message: str, hint: str) -> NoReturn:
    raise RvError(ErrorKind.CONFIG, f"{origin}: {message}", hint=hint)


def _nearer(site: Performance, user: Performance) -> Performance:
    return site if user == Performance() else user


def _over(site: Config, user: Config) -> Config:
    """Lay the user's values over the site's, except that a ceiling can only come down."""
    ceilings = (site.site.max_fanout, user.site.max_fanout)
    return Config(
        defaults=overlaid(site.defaults, user.defaults),
        site=Site(
            prices={**site.site.prices, **user.site.prices},
            unit=user.site.unit or site.site.unit,
            skipped={**user.site.skipped, **site.site.skipped},
            max_fanout=_lowest(ceiling for ceiling in ceilings if ceiling),
            aliases=(*site.site.aliases, *user.site.aliases),
            performance=_nearer(site.site.performance, user.site.performance),
        ),
    )


def _lowest(ceilings: Iterable[Ceiling]) -> Ceiling | None:
    return min(ceilings, key=lambda ceiling: ceiling.jobs, default=None)
