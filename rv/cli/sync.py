"""`rv sync`: send the work tree to the cluster, and fetch what races wrote."""

import hashlib
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from rv.cli.caller import current_caller
from rv.cli.parameters import ClusterOption, JsonOption
from rv.cli.typer_commands import group_app
from rv.errors import ErrorKind, RvError
from rv.models.code import Code, size_of, tree_hash
from rv.models.race import Race
from rv.transport.query_retry import outlast_loss
from rv.ui import console
from rv.ui.transfer import transfer
from rv.workflow.cluster import Cluster, Early
from rv.workflow.environments import working_directory
from rv.workflow.fetch_results import Fetched, fetch, list_results
from rv.workflow.races import find_races
from rv.workflow.read_options import output_pattern
from rv.workflow.send_code import Sent
from rv.workflow.sync import Project, find_project, large_files, pending, send_project
from rv.workflow.work_tree import WorkTree

_NAMED_MOST: Final = 5
_LEAST_WAIT_S: Final = 1.0
_MOST_WAIT_S: Final = 20.0  # also after a look that took long for once: the disk was busy
_SENDS: Final = 10

app = group_app("Send your code to the cluster, and fetch results.")

SendOption = Annotated[
    list[str] | None,
    typer.Option("--send", metavar="PATHS", help="Secrets that are sent with the code."),
]


def sync_for_race(cluster: Cluster, named: Sequence[str]) -> Code | None:
    """Send the work tree that the user is in, and say so; None outside of any."""
    project = find_project(cluster, working_directory(), named, or_else="--no-sync")
    return _push(project, cluster).code if project else None


@app.command()
def push(*, send: SendOption = None, cluster: ClusterOption = "", json: JsonOption = False) -> None:
    """Send the git work tree as it is now. rv run does so by itself."""
    target = current_caller(cluster).cluster
    sent = _push(_require_project(target, send or ()), target)
    if json:
        console.emit_json(_sent_document(sent))


@app.command()
def watch(*, send: SendOption = None, cluster: ClusterOption = "") -> None:
    """Send the work tree whenever a file changes, until Ctrl-C."""
    target = current_caller(cluster).cluster
    project = _require_project(target, send or ())
    last = ""
    while True:
        began_s = time.monotonic()
        work = project.read()
        took_s = time.monotonic() - began_s  # without what a lost connection was waited for
        if tree_hash(work.tree) != last:
            last = _push_in_the_end(project, work, target).code.tree
        time.sleep(min(max(_LEAST_WAIT_S, _SENDS * took_s), _MOST_WAIT_S))


@app.command()
def status(
    *, send: SendOption = None, cluster: ClusterOption = "", json: JsonOption = False
) -> None:
    """Show what would be sent: the commit, what changed since the last time, what stays here."""
    target = current_caller(cluster).cluster
    project = _require_project(target, send or ())
    work = project.read()
    changed, size = pending(project, work)
    if json:
        console.emit_json(_status_document(project, work, changed, size))
        return
    console.answer(
        f"{project.top} to {project.place.store} on {target.label}\n"
        f"{_version(work)}: {_count(len(work.tree))} ({_bytes(size_of(work.tree))})\n"
        f"to send: {_count(len(changed))} ({_bytes(size)}){_names(changed)}"
    )
    _say_notes(work)


@app.command()
def pull(
    *,
    race: Annotated[
        str | None, typer.Argument(metavar="RACE", help="Race or name; the latest.")
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", metavar="PATHS", help="Other files than rv run named."),
    ] = None,
    to: Annotated[
        str, typer.Option("--to", metavar="FOLDER", help="Not into the work tree but there.")
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that were changed here since.")
    ] = False,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Fetch the files that a race wrote, as -o of rv run named them."""
    target = current_caller(cluster, early=Early.RACES).cluster
    (record,) = find_races([race] if race else [], target)
    named = output or (record.request.outputs if record.request else ())
    patterns = tuple(map(output_pattern, named))
    if not patterns:
        raise RvError(
            ErrorKind.USAGE,
            f"race {record.race_id} was not told which files are its results",
            hint=f"rv sync pull {record.race_id} -o runs/",
        )
    results, links = list_results(record, patterns, target.transport)
    folder, memory = _target(record, to, target)
    with transfer("fetching", sum(result.size for result in results)) as bar:
        fetched = fetch(
            record,
            results,
            folder,
            memory,
            force=force,
            transport=target.transport,
            report=bar.add if bar else _quietly,
        )
    if json:
        console.emit_json(_fetched_document(record, fetched, links, folder))
    _say_fetched(fetched, len(results), folder, patterns)
    if links:
        console.notice(f"left out, as they are links: {_listed(links)} (-o follows one it names)")


def _target(race: Race, to: str, cluster: Cluster) -> tuple[Path, Path]:
    """Return where results go, and the file that remembers them. Raises `RvError(USAGE)`."""
    import platformdirs

    folder = Path(to) if to else _folder_of_code(race, cluster)
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:20]
    return folder, platformdirs.user_cache_path("rv") / "fetched" / name


def _folder_of_code(race: Race, cluster: Cluster) -> Path:
    """Return the folder here that the command ran in there. Raises `RvError(USAGE)`."""
    project = None
    if race.code:  # git is asked only where it matters
        project = find_project(cluster, working_directory(), or_else="--to FOLDER")
    name = project.place.store.rpartition("/")[2] if project else ""
    if project is None or race.code is None or race.code.project != name:
        raise RvError(
            ErrorKind.USAGE,
            f"race {race.race_id} does not run the code of this folder",
            hint=f"cd to its work tree, or: rv sync pull {race.race_id} --to FOLDER",
        )
    return Path(project.top, race.code.folder)


def _require_project(cluster: Cluster, named: Sequence[str]) -> Project:
    if cluster.login is None:
        raise RvError(
            ErrorKind.USAGE,
            "nothing is sent: the cluster's commands run on this machine",
            hint="rv run uses the current folder as it is; --cluster USER@HOST is elsewhere",
        )
    project = find_project(cluster, working_directory(), named)
    if project is None:
        raise RvError(
            ErrorKind.USAGE, "this folder is in no git work tree", hint="git init, or cd to one"
        )
    return project


def _push(project: Project, cluster: Cluster) -> Sent:
    """Send, and say what was sent and what stays."""
    work = project.read()
    _say_notes(work)  # before it takes long
    return _send(project, work, cluster)


def _push_in_the_end(project: Project, work: WorkTree, cluster: Cluster) -> Sent:
    """Do the same, in spite of lost connections: with the files as they are at each try."""
    _say_notes(work)
    return outlast_loss(
        lambda: _send(project, project.read(), cluster),
        limit_s=math.inf,
        say=console.notice,
        wait=time.sleep,
    )


def _send(project: Project, work: WorkTree, cluster: Cluster) -> Sent:
    _, size = pending(project, work)
    with transfer("sending", size) as bar:
        sent = send_project(project, work, cluster, bar.add if bar else _quietly)
    console.notice(f"synced {_count(sent.files)} ({_bytes(sent.size)}), {sent.code.version}")
    return sent


def _quietly(_size: int) -> None:
    """Report nothing."""


def _say_notes(work: WorkTree) -> None:
    if work.secrets:
        names = _listed(work.secrets)
        console.notice(f"not sent, as they look like secrets: {names} (--send names one that is)")
    for path, size in large_files(work).items():
        console.notice(
            f"{os.fsdecode(path)} is large ({_bytes(size)}): name it in .rvignore if it is no code"
        )


def _say_fetched(fetched: Fetched, count: int, folder: Path, patterns: Sequence[str]) -> None:
    if not count:
        console.notice(f"no file of the race matches {', '.join(patterns)} (yet)")
        return
    console.notice(
        f"fetched {_count(len(fetched.paths))} ({_bytes(fetched.size)}) of {count} into {folder}"
    )
    if fetched.left:
        console.notice(f"not replaced, as they differ here: {_listed(fetched.left)} (--force does)")
    if fetched.changing:
        names = _listed(fetched.changing)
        console.notice(f"changed while they came: {names} (the next pull fetches them again)")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_MOST
    return ", ".join(names[:_NAMED_MOST]) + (f" and {more} more" if more > 0 else "")


def _names(paths: Sequence[bytes]) -> str:
    return f": {_listed([os.fsdecode(path) for path in paths])}" if paths else ""


def _count(files: int) -> str:
    return "1 file" if files == 1 else f"{files:,} files"


def _bytes(size: int) -> str:
    """Write a size as people do: 1.2 MB."""
    if size < 1000:
        return f"{size} B"
    power = min(3, (len(str(size)) - 1) // 3)
    return f"{size / 1000**power:.1f} {' kMG'[power]}B"


def _version(work: WorkTree) -> str:
    here = work.checkout
    branch = f"{here.branch} " if here.branch else ""
    return f"{branch}{here.commit or 'no commit'}{'+dirty' if here.is_dirty else ''}"


def _sent_document(sent: Sent) -> dict[str, object]:
    code = sent.code
    return {
        "project": code.project,
        "tree": code.tree,
        "commit": code.commit or None,
        "dirty": code.is_dirty,
        "files": sent.files,
        "bytes": sent.size,
    }


def _status_document(
    project: Project, work: WorkTree, changed: Sequence[bytes], size: int
) -> dict[str, object]:
    return {
        "folder": project.top,
        "store": project.place.store,
        "branch": work.checkout.branch or None,
        "commit": work.checkout.commit or None,
        "dirty": work.checkout.is_dirty,
        "files": len(work.tree),
        "bytes": size_of(work.tree),
        "to_send": [os.fsdecode(path) for path in changed],
        "bytes_to_send": size,
        "secrets": list(work.secrets),
    }


def _fetched_document(
    race: Race, fetched: Fetched, links: Sequence[str], folder: Path
) -> dict[str, object]:
    return {
        "race": race.race_id,
        "folder": str(folder),
        "fetched": list(fetched.paths),
        "bytes": fetched.size,
        "left": list(fetched.left),
        "changing": list(fetched.changing),
        "links": list(links),
    }
