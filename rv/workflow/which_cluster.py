"""Which cluster a command is for, told from names and files: nothing is connected to or asked."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from rv import bundle
from rv.config.config_files import PROJECT_FILE, ConfigFiles, find_config_files
from rv.config.settings import chosen_cluster, load_clusters
from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.site import ALL, LOCAL, SANDBOX, Clusters, NamedCluster, is_built_in
from rv.slurm.cache import SnapshotCache

_CONFIGURATIONS: Final = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/run/slurmctld/conf/slurm.conf",
)
_HOW_TO_NAME: Final = "rv init USER@HOST gives a cluster its name"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterIdentity:
    """A cluster before anybody has asked it anything.

    `key` tells its races from other clusters'. `host` is what ssh connects to, "" where Slurm's
    commands run on this machine; `slurm_conf` is set for a sandbox; `named` is what the
    configuration files say of it, None for others.
    """

    key: str
    label: str
    host: str = ""
    slurm_conf: str = ""
    named: NamedCluster | None = None

    @property
    def full_label(self) -> str:
        """What users see: with the name that the files give it."""
        return f"{self.named.name} ({self.label})" if self.named else self.label


def identify(cluster: str, environ: Mapping[str, str]) -> ClusterIdentity:
    """Tell the cluster: `--cluster`, RV_CLUSTER, the files', SLURM_CONF, this machine's, a sandbox.

    `cluster` is "", the name that a configuration file gives one, "local", "sandbox[:NAME]", or
    what ssh is to connect to: "USER@HOST" or "ssh:HOST", HOST being any name of its configuration.
    Raises `RvError(SANDBOX)` for one that is down, `RvError(CONFIG)` for a name that is not known.
    """
    clusters = named_clusters(environ)
    word = chosen_cluster(cluster, environ, clusters)
    if word == ALL:
        raise RvError(
            ErrorKind.USAGE,
            "all clusters at once are for up, run and status",
            hint=f"name one of {', '.join(clusters.named)}" if clusters.named else _HOW_TO_NAME,
        )
    named = clusters.named.get(word) or _named_by_host(word, clusters)
    if named is None:
        return _at(word, environ, clusters)
    here = LOCAL if is_this_machine(named.host) else named.host
    found = _at(here if is_built_in(here) else f"ssh:{here}", environ, clusters)
    return replace(found, named=named)


def named_clusters(environ: Mapping[str, str]) -> Clusters:
    """Return the clusters of the configuration files. Raises `RvError(CONFIG)`."""
    return load_clusters(_config_files(environ))


def files_that_name(environ: Mapping[str, str]) -> list[Path]:
    """Return the configuration files that say which cluster is meant, whether they exist or not."""
    files = _config_files(environ)
    found = [files.project] if files.project else []
    here = Path.cwd()
    above = [folder / PROJECT_FILE for folder in (here, *here.parents)]  # there may be one later
    return [files.site, files.user, *found, *above]


def _config_files(environ: Mapping[str, str]) -> ConfigFiles:
    return find_config_files(environ, bundle.user_config_dir())


def is_this_machine(host: str) -> bool:
    """Whether a host of ssh's is this machine by its name: its Slurm is asked without ssh."""
    name = host.rpartition("@")[2].removeprefix("ssh:").lower()
    here = os.uname().nodename.lower()
    return bool(here) and name in (here, here.partition(".")[0])


def over_ssh(host: str) -> ClusterIdentity:
    """Return the identity of the cluster behind a login node."""
    return ClusterIdentity(key=f"ssh:{host}", label=f"Slurm behind {host}", host=host)


def cache_of(identity: ClusterIdentity) -> SnapshotCache:
    """Return the answers of a cluster that are kept on this machine."""
    import platformdirs

    return SnapshotCache(directory=platformdirs.user_cache_path("rv"), key=identity.key)


def race_root_here(identity: ClusterIdentity, environ: Mapping[str, str]) -> str:
    """Return where the races of a cluster lie whose Slurm is this machine's; RV_RACE_ROOT wins.

    Raises `RvError(CONFIG)` for a folder that names a variable which is not set.
    """
    named = identity.named
    if root := environ.get("RV_RACE_ROOT"):
        return str(Path(root).absolute())
    if named and named.race_root:
        from rv.workflow.race_root import expand_folder

        return expand_folder(named.race_root, environ, named.origin)
    import platformdirs

    return str((platformdirs.user_state_path("rv") / "races").absolute())


def _named_by_host(word: str, clusters: Clusters) -> NamedCluster | None:
    """Return the cluster with a name that this host is, so that its races are found either way."""
    host = word.removeprefix("ssh:")
    matching = (named for named in clusters.named.values() if named.host in (word, host))
    return next(matching, None) if word and word != LOCAL else None


def _at(word: str, environ: Mapping[str, str], clusters: Clusters) -> ClusterIdentity:
    """Tell what a word without a setting of its own means."""
    kind, _, name = word.partition(":")
    if kind == "ssh" or "@" in word:
        return over_ssh(name if kind == "ssh" else word)
    if kind == SANDBOX:
        return _sandbox(name)
    if kind not in ("", LOCAL):
        raise _unknown(word, clusters)
    if not word and not has_slurm(environ) and (live := _live_sandbox("")):
        return live
    return _local(environ)


def has_slurm(environ: Mapping[str, str]) -> bool:
    """Whether something on this machine says where a Slurm is; a configless one has no file."""
    if environ.get("SLURM_CONF"):
        return True
    return any(Path(path).exists() for path in _CONFIGURATIONS)


def _unknown(word: str, clusters: Clusters) -> RvError:
    from rv.models.spelling import nearest

    names = tuple(clusters.named)
    near = nearest(word, (*names, LOCAL, SANDBOX))
    choices = ", ".join((*names, LOCAL, "sandbox[:NAME]", "USER@HOST", "ssh:HOST"))
    hint = f"did you mean {near}? known: {choices}" if near else f"use {choices}"
    return RvError(ErrorKind.CONFIG, f"no cluster {word!r} is known", hint=hint)


def _local(environ: Mapping[str, str]) -> ClusterIdentity:
    conf = environ.get("SLURM_CONF", "")
    if not conf:
        return ClusterIdentity(key="slurm:", label="this machine's Slurm")
    from rv import sandbox

    for box in sandbox.list_all():
        if Path(conf) == box.slurm_conf:
            return ClusterIdentity(key=f"sandbox:{box.name}", label=f"sandbox {box.name}")
    return ClusterIdentity(key=f"slurm:{conf}", label=f"Slurm of {conf}")


def _sandbox(name: str) -> ClusterIdentity:
    identity = _live_sandbox(name)
    if identity is None:
        raise RvError(
            ErrorKind.SANDBOX,
            f"sandbox {name or 'default'} is not up",
            hint=f"rv sandbox up{f' --name {name}' if name else ''}",
        )
    return identity


def _live_sandbox(name: str) -> ClusterIdentity | None:
    from rv import sandbox

    box = sandbox.find(name or None)
    if box is None or not box.live:
        return None
    return ClusterIdentity(
        key=f"sandbox:{box.name}",
        label=f"sandbox {box.name} ({box.profile})",
        slurm_conf=str(box.slurm_conf),
    )
