"""What every command starts with: the environment, the clock, the cluster, and who listens."""

import os
import shlex
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rv import bundle
from rv.cli.fast_start import asked
from rv.errors import ErrorKind, RvError
from rv.models.command import Command
from rv.models.site import Config
from rv.workflow.cluster import Cluster, SavedCluster, locate


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """The surroundings of one command, read once."""

    environ: Mapping[str, str]
    workdir: str
    now_s: float
    cluster: Cluster


def current_caller(cluster: str) -> Caller:
    """Read the surroundings and find the cluster."""
    workdir = working_directory()
    environ = dict(os.environ)
    return Caller(
        environ=environ,
        workdir=workdir,
        now_s=time.time(),
        cluster=asked(cluster) or locate(cluster, environ),
    )


def planning_target(cluster: str, snapshot: str) -> Cluster | SavedCluster:
    """Find the cluster to look at: the one that `snapshot` saved, where it names a file."""
    from rv.workflow.cluster import saved_cluster

    return saved_cluster(snapshot) if snapshot else current_caller(cluster).cluster


def read_config(options: Mapping[str, type]) -> Config:
    """Read the site's and the user's configuration files; `options` may have defaults there."""
    from rv.workflow.config import SITE_FILE, load_config

    site_file = os.environ.get("RV_SITE_CONFIG")
    return load_config(
        Path(site_file) if site_file else SITE_FILE, bundle.user_config_dir(), options
    )


def working_directory() -> str:
    """The current directory. Raises `RvError(STAGE)` where it has been removed."""
    try:
        return str(Path.cwd())
    except OSError as error:
        raise RvError(
            ErrorKind.STAGE, "the current directory is gone", hint="cd to one that exists"
        ) from error


def umask() -> str:
    """The caller's umask, which the command is to have: rv itself writes for this user alone."""
    mask = os.umask(0o077)
    os.umask(mask)
    return f"{mask:04o}"


def now_s() -> float:
    """Seconds since the epoch."""
    return time.time()


def read_line(text: str) -> Command:
    """Read `--run TEXT` against the current directory."""
    from rv.workflow.command_line import from_line

    return replace(from_line(text, _around()), typed=text)


def read_words(words: tuple[str, ...]) -> Command:
    """Read an argv against the current directory."""
    from rv.workflow.command_line import from_words

    return replace(from_words(words, _around()), typed=shlex.join(words))


def _around() -> "KnownFiles":
    from rv.workflow.command_line import KnownFiles

    names = tuple(name.removesuffix(".py") for name in bundle.payload_names())
    nearby: tuple[str, ...] = ()
    with suppress(OSError):  # a folder that cannot be listed may still be used
        nearby = tuple(path.name for path in Path().iterdir())
    return KnownFiles(is_file=os.path.isfile, payloads=names, nearby=nearby)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from rv.workflow.command_line import KnownFiles
