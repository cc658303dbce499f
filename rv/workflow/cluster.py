"""Find the cluster that a command is for, and where its races and caches lie."""

import shutil
import sys
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.snapshot import Snapshot
from rv.slurm.cache import SnapshotCache
from rv.slurm.environment import scrubbed_environment
from rv.slurm.probe import take_snapshot
from rv.slurm.squeue import OwnJobs
from rv.transport import Transport
from rv.transport.local import LocalTransport
from rv.transport.query_retry import Patience

_CONFIGURATIONS: Final = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/run/slurmctld/conf/slurm.conf",
)
_USUAL_PATIENCE: Final = Patience()
_FRESH: Final = timedelta(seconds=2)
_SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/opt/slurm/bin"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginNode:
    """What a login on another machine has: its environment, and the directory it starts in."""

    environ: Mapping[str, str]
    home: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """A cluster as commands use it. `key` tells its races from other clusters'.

    `answer` is a snapshot that is on its way already; `patience` is with a controller that is
    silent; `login` is None where Slurm's commands run on this machine.
    """

    key: str
    label: str
    transport: Transport
    cache: SnapshotCache
    race_root: str
    slurm_path: str
    answer: Future[Snapshot] | None = None
    patience: Patience = _USUAL_PATIENCE
    login: LoginNode | None = None

    def take_snapshot(self) -> Snapshot:
        """Ask the cluster what it is now, or take another process's answer of the last 30 s."""
        return take_snapshot(self.transport, self.cache, patience=self.patience, early=self.answer)

    def take_fresh_snapshot(self) -> Snapshot:
        """Ask the cluster what it is just now, as news about its jobs has to fit."""
        return take_snapshot(self.transport, self.cache, max_age=_FRESH, patience=self.patience)

    @property
    def queue(self) -> OwnJobs:
        """The user's queue there."""
        return OwnJobs(transport=self.transport, cache=self.cache)


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedCluster:
    """A cluster as a file says it was: plans are made on it, and nothing is submitted."""

    label: str
    snapshot: Snapshot
    key: str = "snapshot"
    race_root: str = "/path/to/races"
    slurm_path: str = "/usr/bin"

    def take_snapshot(self) -> Snapshot:
        """What the file says."""
        return self.snapshot


def locate(cluster: str, environ: Mapping[str, str]) -> Cluster:
    """Find the cluster: `--cluster`, else RV_CLUSTER, else SLURM_CONF, this machine's, the sandbox.

    `cluster` is "", "local", "sandbox[:NAME]", or what ssh is to connect to: "USER@HOST" or
    "ssh:HOST", HOST being any name of its configuration.
    Raises `RvError(UNREACHABLE)` where there is no Slurm, `RvError(SANDBOX)` for one that is down.
    """
    cluster = cluster or environ.get("RV_CLUSTER", "")
    kind, _, name = cluster.partition(":")
    if kind == "ssh" or "@" in cluster:
        from rv.workflow.remote_cluster import remote_cluster

        return remote_cluster(name if kind == "ssh" else cluster, environ.get("RV_SSH", ""))
    if kind == "sandbox":
        return _sandbox(name, environ)
    if kind not in ("", "local"):
        raise RvError(
            ErrorKind.CONFIG,
            f"no cluster {cluster!r} is known",
            hint="use local, sandbox[:NAME], USER@HOST or ssh:HOST",
        )
    if not cluster and not _has_slurm(environ) and (live := _live_sandbox("", environ)):
        return live
    return _local(environ)


def saved_cluster(path: str) -> SavedCluster:
    """Read a snapshot's file, `-` for stdin. Raises `RvError(CONFIG)` for what is none."""
    from rv.models.snapshot import read_snapshot

    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RvError(
            ErrorKind.CONFIG, f"cannot read {path}: {error}", hint="rv snapshot > cluster.json"
        ) from error
    return SavedCluster(label=f"snapshot {path}", snapshot=read_snapshot(text, path))


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
