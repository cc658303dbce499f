"""What a configuration file says of clusters: which have a name, and which is taken by default.

A project's file chooses among the user's own clusters, and sets defaults for them. It names no
host, no way to connect and no folder there: whoever wrote the project would choose to whom the
user's ssh speaks, with which of the user's keys.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, model_validator

from rv.config.config_files import Source
from rv.config.documents import Document, read_document
from rv.config.schema import Schema, Text, one_of, problem, validate
from rv.models.site import (
    ALL,
    LOCAL,
    SANDBOX,
    Clusters,
    NamedCluster,
    Setting,
    SshKind,
    is_built_in,
)
from rv.models.spelling import suggestion

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
# ssh hands host and user to programs of its configuration, such as ProxyCommand: nothing in them
# may mean something to a shell.
_HOST: Final = re.compile(r"(?:[\w.+-]*\w@)?\w[\w.:-]*", re.ASCII)
_FOLDER: Final = re.compile(r"[~/$][^\x00-\x1f\x7f]*")
_RESERVED: Final = (ALL, LOCAL, SANDBOX, "ssh")
_OF_THE_USER: Final = ("host", "ssh", "race_root")
_OF_THE_SITE: Final = (
    "prices", "aliases", "skip_partitions", "max_fanout", "reference_gpu",
)  # fmt: skip


def _name(word: str) -> str:
    if word in _RESERVED:
        raise problem(f"{word!r} is no name for a cluster: it has a meaning of its own")
    if not _NAME.fullmatch(word):
        raise problem(f"{word!r} is no name for a cluster", hint="letters, digits, - and _")
    return word


def _host(word: str) -> str:
    if not _HOST.fullmatch(word):
        raise problem(f"{word!r} is no host", hint="write USER@HOST, or a name that ssh knows")
    return word


def _folder(word: str) -> str:
    if not _FOLDER.fullmatch(word) or ".." in word.split("/"):
        raise problem(f"{word!r} is no folder", hint="write a whole path: /scratch/$USER/rv")
    return word


ClusterName = Annotated[str, AfterValidator(_name)]


class ClusterEntry(Schema):
    """One cluster in a file of the site or the user."""

    host: Annotated[Text, AfterValidator(_host)] = ""
    ssh: Annotated[SshKind, one_of(SshKind, "ssh")] | None = None
    race_root: Annotated[Text, AfterValidator(_folder)] = ""
    defaults: Any = None


class ClustersFile(Schema):
    """What such a file says of clusters."""

    cluster: Text = ""
    clusters: dict[ClusterName, ClusterEntry] = {}


class ProjectCluster(Schema):
    """A cluster of the user's, as a project's file may speak of it."""

    defaults: Any = None

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key in _OF_THE_USER:
                raise problem(
                    f"a project does not say where or how rv connects ({key})",
                    hint="rv init USER@HOST writes it to your own file",
                    key=key,
                )
            if key not in cls.model_fields:
                raise problem(f"unknown key {key!r}", hint="keys: defaults", key=str(key))
        return data


def _choice(word: str) -> str:
    if is_built_in(word) and word.partition(":")[0] not in (LOCAL, SANDBOX):
        raise problem(
            f"a project does not say where rv connects ({word!r})",
            hint="rv init USER@HOST gives it a name in your own file; write that name here",
        )
    return word


class ProjectFile(Schema):
    """What a project's file says."""

    cluster: Annotated[Text, AfterValidator(_choice)] = ""
    clusters: dict[ClusterName, ProjectCluster] = {}
    defaults: Any = None

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key in _OF_THE_SITE:
                raise problem(f"{key} is for the site's and the user's own file", key=key)
            if key not in cls.model_fields:
                names = ", ".join(cls.model_fields)
                hint = suggestion(str(key), cls.model_fields, f"keys: {names}")
                raise problem(f"unknown key {key!r}", hint=hint, key=str(key))
        return data


def read_clusters(path: Path, source: Source) -> Clusters:
    """Read which clusters a file names. Raises `RvError(CONFIG)` with file and line."""
    return clusters_of(read_document(path), source)


def clusters_of(document: Document, source: Source) -> Clusters:
    """Read which clusters a parsed file names; the rest of it is not looked at."""
    data = document.data if isinstance(document.data, dict) else {}
    only = {key: data[key] for key in ("cluster", "clusters") if key in data}
    if not only:
        return Clusters()
    part = Document(name=document.name, data=only, node=document.node)
    if source is Source.PROJECT:
        project = validate(part, ProjectFile)
        named = {name: _named(document, name, ClusterEntry()) for name in project.clusters}
        return Clusters(named=named, default=_default(document, project.cluster))
    file = validate(part, ClustersFile)
    named = {name: _named(document, name, entry) for name, entry in file.clusters.items()}
    return Clusters(named=named, default=_default(document, file.cluster))


def _named(document: Document, name: str, entry: ClusterEntry) -> NamedCluster:
    return NamedCluster(
        name=name,
        host=entry.host,
        ssh=entry.ssh,
        race_root=entry.race_root,
        origin=document.origin(("clusters", name)),
    )


def _default(document: Document, word: str) -> Setting | None:
    return Setting(value=word, origin=document.origin(("cluster",))) if word else None
