"""`rv init`: connect to a cluster, find out what it has, write the configuration, show a plan."""

import difflib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rv.cli.caller import now_s
from rv.cli.config_text import check_text, config_files, contents, write_text
from rv.cli.parameters import JsonOption
from rv.cli.typer_commands import command_app
from rv.config.config_files import Source
from rv.config.settings import chosen_cluster
from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.discovery import Discovery
from rv.models.site import LOCAL, Clusters, NamedCluster, is_built_in
from rv.ui import console
from rv.ui.plan_views import plan_document, plan_text
from rv.ui.setup_views import discovery_document, discovery_text
from rv.workflow.cluster import Cluster
from rv.workflow.discover import discover
from rv.workflow.environments import working_directory
from rv.workflow.launch import Launch, prepare
from rv.workflow.locate import locate
from rv.workflow.option_defaults import read_config, with_defaults
from rv.workflow.options import RequestOptions
from rv.workflow.read_options import build_request
from rv.workflow.which_cluster import is_this_machine, named_clusters

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)

app = command_app()


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What is to be written of a cluster; "" leaves a setting as it is."""

    name: str
    host: str
    account: str
    race_root: str
    is_default: bool

    @property
    def settings(self) -> list[tuple[tuple[str, ...], str]]:
        """The keys and their values, in order."""
        own = ("clusters", self.name)
        pairs = [
            (("cluster",), self.name if self.is_default else ""),
            ((*own, "host"), self.host),
            ((*own, "race_root"), self.race_root),
            ((*own, "defaults", "account"), self.account),
        ]
        return [(keys, value) for keys, value in pairs if value]


@app.command()
def init(
    *,
    where: Annotated[
        str | None, typer.Argument(metavar="WHERE", help="USER@HOST, an alias of ssh's, or local.")
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What to call it.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Set a cluster up: test the connection, find out what it has, write it to your configuration.

    It can be run again at any time; what you set yourself stays.
    """
    clusters = named_clusters(os.environ)
    word = _where(where, clusters)
    cluster = _connect(word)
    console.say(f"on {cluster.label}: asking what it has …")
    with _hint_without(where):
        discovery = discover(cluster)
    if not json:
        console.answer(*discovery_text(discovery, console.answer_width()))
    if not any(folder.has_links for folder in discovery.folders):
        console.notice("no folder with hard links was found: races need one; set race_root to it")
    asks = console.can_ask() and not yes and not json
    choice = _choose(_first_choice(word, name, discovery, clusters), discovery, clusters, asks=asks)
    written = _write(choice, asks=asks, dry_run=dry_run)
    launch, problem = _plan(cluster, choice.name)
    if json:
        document = {
            "cluster": choice.name, "host": choice.host, **discovery_document(discovery), **written,
            "plan": plan_document(launch.plan, launch.names, launch.scripts) if launch else None,
            "problem": problem or None,
        }  # fmt: skip
        console.emit_json(document)
        return
    _show_plan(choice.name, launch, problem)


def _where(where: str | None, clusters: Clusters) -> str:
    """Return what to connect to: what is typed or configured, else this machine's Slurm.

    Raises `RvError(UNREACHABLE)` where there is none.
    """
    if word := where or chosen_cluster("", os.environ, clusters):
        return word
    with _hint_without(where):
        key = locate("", os.environ).key
    return key if key.startswith("sandbox:") else LOCAL


@contextmanager
def _hint_without(where: str | None) -> Iterator[None]:
    """Where nobody said which cluster, and there is none here: say how to name one."""
    try:
        yield
    except RvError as error:
        hint = error.hint if where else "name a login node: rv init USER@HOST"
        raise RvError(error.kind, error.message, hint=hint) from error


def _connect(word: str) -> Cluster:
    """Locate the cluster; a word that is no name of rv's is one of ssh's."""
    is_known = word in named_clusters(os.environ).named or is_built_in(word)
    if not is_known and is_this_machine(word):
        return locate(LOCAL, os.environ)
    return locate(word if is_known else f"ssh:{word}", os.environ)


def _first_choice(word: str, name: str, discovery: Discovery, clusters: Clusters) -> Choice:
    """Choose by what is configured already, else by what was found."""
    same = clusters.named.get(word) or _by_host(word.removeprefix("ssh:"), clusters)
    host = same.host if same else word.removeprefix("ssh:")
    chosen = name or (same.name if same else _free_name(host, discovery, clusters))
    needs_account = discovery.accounts and not discovery.default_account and not _account(chosen)
    return Choice(
        name=chosen,
        host=host,
        account=discovery.accounts[0] if needs_account else "",
        race_root=_race_root(discovery, clusters.named.get(chosen)),
        is_default=clusters.default is None,
    )


def _race_root(discovery: Discovery, saved: NamedCluster | None) -> str:
    """Choose a folder where there is scratch space; "" leaves what is set, or the home."""
    scratch = next((folder.path for folder in discovery.scratch), "")
    return f"{scratch}/rv/races" if scratch and not (saved and saved.race_root) else ""


def _by_host(host: str, clusters: Clusters) -> NamedCluster | None:
    return next((each for each in clusters.named.values() if each.host == host), None)


def _free_name(host: str, discovery: Discovery, clusters: Clusters) -> str:
    """Make a name of Slurm's own for the cluster, else of the host's."""
    machine = host.rpartition("@")[2].partition(".")[0]
    base = _NOT_IN_NAMES.sub("-", discovery.snapshot.config.name or machine).strip("-_")[:40]
    base = base if base and not is_built_in(base) and base != "all" else "cluster"
    names = (base, *(f"{base}{number}" for number in range(2, 100)))
    return next(each for each in names if each not in clusters.named)


def _account(cluster: str) -> str:
    setting = read_config(cluster).defaults.get("account")
    return str(setting.value) if setting else ""


def _choose(choice: Choice, discovery: Discovery, clusters: Clusters, *, asks: bool) -> Choice:
    """Ask what only the user knows, each question with an answer that Enter takes."""
    if not asks:
        return choice
    if choice.name not in clusters.named:
        choice = replace(choice, name=console.ask("What shall it be called?", choice.name))
    if len(discovery.accounts) > 1:
        current = _account(choice.name) or discovery.default_account or discovery.accounts[0]
        accounts = ", ".join(discovery.accounts)
        account = console.ask(f"Which account pays ({accounts})?", current)
        is_said = account == (_account(choice.name) or discovery.default_account)
        choice = replace(choice, account="" if is_said else account)
    if choice.race_root:
        folder = console.ask("Where shall races lie?", choice.race_root)
        choice = replace(choice, race_root=folder)
    return choice


def _write(choice: Choice, *, asks: bool, dry_run: bool) -> dict[str, Any]:
    """Show what changes in the user's file, and change it; nothing is written before it is right.

    Raises `RvError(CONFIG)`, and exits where the user does not want it.
    """
    from rv.config.edit import set_value

    files = config_files()
    path = files.user.resolve()
    before = after = contents(path)
    for keys, value in choice.settings:
        after = set_value(after, keys, value, str(path))
    check_text(after, path, Source.USER, files)
    difference = _difference(before, after, path)
    console.say(difference or f"{path} says all of this already")
    if difference and not dry_run:
        if asks and not console.confirm(f"Write it to {path}?", default=True):
            raise RvError(
                ErrorKind.CONFIG, "nothing was written", hint="rv init again, at any time"
            )
        write_text(path, after, Source.USER)
        console.say(f"written: {path}")
    return {"file": str(path), "diff": difference, "written": bool(difference) and not dry_run}


def _difference(before: str, after: str, path: Path) -> str:
    # No line beside those that change: it may hold the value of a variable.
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(path), str(path), lineterm="", n=0
    )
    return "\n".join(lines)


def _plan(cluster: Cluster, name: str) -> tuple[Launch | None, str]:
    """Plan one GPU, as `rv up --gpu 1 --dry-run` would; or say why there is no plan."""
    config = read_config(name)
    options = with_defaults(RequestOptions(gpu=1), {"gpu"}, config)
    request = build_request(options, None)
    try:
        return prepare(request, cluster, working_directory(), {}, now_s(), config.site), ""
    except RvError as error:
        return None, error.message


def _show_plan(name: str, launch: Launch | None, problem: str) -> None:
    line = f"rv up --gpu 1 --dry-run --cluster {name}"
    if launch is None:
        console.say(f"{line} has no plan: {problem}")
        return
    console.say(f"{line} shows what rv could run now:")
    widen_after = launch.request.widen_after
    console.answer(*plan_text(launch.plan, launch.sbatch_lines, widen_after))
    console.say(f"rv doctor --cluster {name} checks each link")
