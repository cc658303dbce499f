"""Find the cluster that a command is for: by option, environment, configuration or this machine."""

import platform
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from rv import bundle
from rv.config.config_files import find_config_files
from rv.config.settings import chosen_cluster, load_clusters
from rv.errors import ErrorKind, RvError
from rv.models.site import ALL, LOCAL, SANDBOX, Clusters, NamedCluster, SshKind, is_built_in
from rv.models.spelling import nearest
from rv.slurm.cache import SnapshotCache
from rv.slurm.environment import scrubbed_environment
from rv.transport.local import LocalTransport
from rv.workflow.cluster import Cluster, Early
from rv.workflow.race_root import expand_folder

_CONFIGURATIONS: Final = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/run/slurmctld/conf/slurm.conf",
)
_HOW_TO_NAME: Final = "rv init USER@HOST gives a cluster its name"
_SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/opt/slurm/bin"


def locate(cluster: str, environ: Mapping[str, str], early: Early = Early.NOTHING) -> Cluster:
    """Find the cluster: `--cluster`, RV_CLUSTER, the files', SLURM_CONF, this machine's, a sandbox.

    `cluster` is "", the name that a configuration file gives one, "local", "sandbox[:NAME]", or
    what ssh is to connect to: "USER@HOST" or "ssh:HOST", HOST being any name of its configuration.
    `early` is what will be asked of it.
    Raises `RvError(UNREACHABLE)` where there is no Slurm, `RvError(SANDBOX)` for one that is down,
    `RvError(CONFIG)` for a name that is not known.
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
        return _at(word, environ, clusters, early=early)
    here = LOCAL if is_this_machine(named.host) else named.host
    located = _at(here if is_built_in(here) else f"ssh:{here}", environ, clusters, named, early)
    return _with_settings(located, named, environ)


def named_clusters(environ: Mapping[str, str]) -> Clusters:
    """Return the clusters of the configuration files. Raises `RvError(CONFIG)`."""
    return load_clusters(find_config_files(environ, bundle.user_config_dir()))


def is_this_machine(host: str) -> bool:
    """Whether a host of ssh's is this machine by its name: its Slurm is asked without ssh."""
    name = host.rpartition("@")[2].removeprefix("ssh:").lower()
    here = platform.node().lower()
    return bool(here) and name in (here, here.partition(".")[0])


def _named_by_host(word: str, clusters: Clusters) -> NamedCluster | None:
    """Return the cluster with a name that this host is, so that its races are found either way."""
    host = word.removeprefix("ssh:")
    matching = (named for named in clusters.named.values() if named.host in (word, host))
    return next(matching, None) if word and word != LOCAL else None


def _at(
    word: str,
    environ: Mapping[str, str],
    clusters: Clusters,
    named: NamedCluster | None = None,
    early: Early = Early.NOTHING,
) -> Cluster:
    """Find what a word without a setting of its own means."""
    kind, _, name = word.partition(":")
    if kind == "ssh" or "@" in word:
        return _over_ssh(name if kind == "ssh" else word, environ, named, early)
    if kind == SANDBOX:
        return _sandbox(name, environ)
    if kind not in ("", LOCAL):
        raise _unknown(word, clusters)
    if not word and not _has_slurm(environ) and (live := _live_sandbox("", environ)):
        return live
    return _local(environ)


def _over_ssh(
    host: str, environ: Mapping[str, str], named: NamedCluster | None, early: Early
) -> Cluster:
    from rv.workflow.remote_cluster import remote_cluster

    kind = environ.get("RV_SSH") or (named and named.ssh) or SshKind.AUTO
    return remote_cluster(host, kind, early, named.race_root if named else "")


def _unknown(word: str, clusters: Clusters) -> RvError:
    names = tuple(clusters.named)
    near = nearest(word, (*names, LOCAL, SANDBOX))
    choices = ", ".join((*names, LOCAL, "sandbox[:NAME]", "USER@HOST", "ssh:HOST"))
    hint = f"did you mean {near}? known: {choices}" if near else f"use {choices}"
    return RvError(ErrorKind.CONFIG, f"no cluster {word!r} is known", hint=hint)


def _with_settings(located: Cluster, named: NamedCluster, environ: Mapping[str, str]) -> Cluster:
    """Give a cluster its name, and the race root that is set for it; RV_RACE_ROOT there wins."""
    there = located.login.environ if located.login else environ
    root = located.race_root
    if named.race_root and not there.get("RV_RACE_ROOT"):
        root = expand_folder(named.race_root, there, named.origin)
    return replace(
        located, label=f"{named.name} ({located.label})", name=named.name, race_root=root
    )


def _has_slurm(environ: Mapping[str, str]) -> bool:
    """Whether something on this machine says where a Slurm is; a configless one has no file."""
    if environ.get("SLURM_CONF"):
        return True
    return any(Path(path).exists() for path in _CONFIGURATIONS)


def _local(environ: Mapping[str, str]) -> Cluster:
    conf = environ.get("SLURM_CONF", "")
    if not conf:
        return _cluster("slurm:", "this machine's Slurm", environ)
    from rv import sandbox

    for box in sandbox.list_all():
        if Path(conf) == box.slurm_conf:
            return _cluster(f"sandbox:{box.name}", f"sandbox {box.name}", environ)
    return _cluster(f"slurm:{conf}", f"Slurm of {conf}", environ)


def _sandbox(name: str, environ: Mapping[str, str]) -> Cluster:
    cluster = _live_sandbox(name, environ)
    if cluster is None:
        raise RvError(
            ErrorKind.SANDBOX,
            f"sandbox {name or 'default'} is not up",
            hint=f"rv sandbox up{f' --name {name}' if name else ''}",
        )
    return cluster


def _live_sandbox(name: str, environ: Mapping[str, str]) -> Cluster | None:
    from rv import sandbox

    box = sandbox.find(name or None)
    if box is None or not box.live:
        return None
    conf = {"SLURM_CONF": str(box.slurm_conf)}
    return _cluster(
        f"sandbox:{box.name}", f"sandbox {box.name} ({box.profile})", {**environ, **conf}
    )


def _cluster(key: str, label: str, environ: Mapping[str, str]) -> Cluster:
    import platformdirs

    environment = scrubbed_environment(environ)
    path = environment.get("PATH", "")
    environment["PATH"] = f"{path}:{_SYSTEM_PATH}" if path else _SYSTEM_PATH
    sbatch = shutil.which("sbatch", path=environment["PATH"])
    if sbatch is None:
        raise RvError(
            ErrorKind.UNREACHABLE,
            "no Slurm commands on PATH",
            hint="load the site's slurm module, or try rv sandbox up",
        )
    root = environ.get("RV_RACE_ROOT") or str(platformdirs.user_state_path("rv") / "races")
    return Cluster(
        key=key,
        label=label,
        transport=LocalTransport(environment),
        cache=SnapshotCache(directory=platformdirs.user_cache_path("rv"), key=key),
        race_root=str(Path(root).absolute()),
        slurm_path=str(Path(sbatch).parent),
    )
