"""Find the cluster that a command is for: by option, environment, configuration or this machine."""

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.site import NamedCluster, SshKind
from rv.slurm.environment import scrubbed_environment
from rv.transport.kept_command import Kept
from rv.transport.local import LocalTransport
from rv.workflow.cluster import Cluster, Early
from rv.workflow.race_root import expand_folder
from rv.workflow.which_cluster import (
    ClusterIdentity,
    cache_of,
    files_that_name,
    identify,
    race_root_here,
)

_SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/opt/slurm/bin"


def locate(
    cluster: str,
    environ: Mapping[str, str],
    early: Early = Early.NOTHING,
    meanwhile: Callable[[], None] | None = None,
    kept: Kept | None = None,
) -> Cluster:
    """Find the cluster that `rv.workflow.which_cluster.identify` names, and connect to it.

    `early` is what will be asked of it; `meanwhile` is called while an answer travels from another
    machine; `kept` is what was started ahead for it, and has the next command be kept.
    Raises `RvError(UNREACHABLE)` where there is no Slurm, `RvError(SANDBOX)` for one that is down,
    `RvError(CONFIG)` for a name that is not known.
    """
    identity = identify(cluster, environ)
    if not identity.host:
        return _on_this_machine(identity, environ)
    return _over_ssh(identity, environ, early, meanwhile, kept)


def _over_ssh(
    identity: ClusterIdentity,
    environ: Mapping[str, str],
    early: Early,
    meanwhile: Callable[[], None] | None,
    kept: Kept | None,
) -> Cluster:
    from rv.transport.openssh import OpenSsh
    from rv.transport.ssh_choice import choose_ssh

    named = identity.named
    kind = environ.get("RV_SSH") or (named and named.ssh) or SshKind.AUTO
    client = choose_ssh(identity.host, kind)  # ssh tells its settings while the rest is loaded
    from rv.workflow.remote_cluster import keep_question, remote_cluster

    root = named.race_root if named else ""

    def load_and_keep() -> None:
        if meanwhile:
            meanwhile()
        if kept and isinstance(client, OpenSsh):
            with suppress(OSError, ValueError):  # the next asks a moment later
                keep_question(client, root, files_that_name(environ))

    located = remote_cluster(identity, client, early, root, load_and_keep, kept)
    return _with_settings(located, named) if named else located


def _with_settings(located: Cluster, named: NamedCluster) -> Cluster:
    """Give a cluster its name, and the race root that is set for it; RV_RACE_ROOT there wins."""
    there = located.login.environ if located.login else {}
    root = located.race_root
    if named.race_root and not there.get("RV_RACE_ROOT"):
        root = expand_folder(named.race_root, there, named.origin)
    return replace(located, name=named.name, race_root=root)


def _on_this_machine(identity: ClusterIdentity, environ: Mapping[str, str]) -> Cluster:
    root = race_root_here(identity, environ)
    conf = {"SLURM_CONF": identity.slurm_conf} if identity.slurm_conf else {}
    environment = scrubbed_environment({**environ, **conf})
    path = environment.get("PATH", "")
    environment["PATH"] = f"{path}:{_SYSTEM_PATH}" if path else _SYSTEM_PATH
    sbatch = shutil.which("sbatch", path=environment["PATH"])
    if sbatch is None:
        raise RvError(
            ErrorKind.UNREACHABLE,
            "no Slurm commands on PATH",
            hint="load the site's slurm module, or try rv sandbox up",
        )
    return Cluster(
        key=identity.key,
        label=identity.full_label,
        transport=LocalTransport(environment),
        cache=cache_of(identity),
        race_root=root,
        slurm_path=str(Path(sbatch).parent),
        name=identity.named.name if identity.named else "",
    )
