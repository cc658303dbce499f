"""`rv ssh-config`, by which ssh reaches a race's node: it writes the file, and is run by ssh."""

import os
from typing import Annotated

import typer

from rv.cli.caller import current_caller, now_s
from rv.cli.parameters import ClusterOption
from rv.cli.typer_commands import command_app
from rv.errors import ErrorKind, RvError
from rv.transport.standard_streams import take_standard_input
from rv.ui import console
from rv.workflow.attach import find_place
from rv.workflow.cluster import Early
from rv.workflow.races import find_races
from rv.workflow.ssh_config import (
    PREFIX,
    expect_host_key,
    install,
    public_key,
    race_and_cluster,
    ssh_config_text,
    ssh_files,
)
from rv.workflow.ssh_login import connect_standard_streams, prepare_login
from rv.workflow.which_cluster import named_clusters

app = command_app()


@app.command("ssh-config")
def ssh_config(
    *,
    writes: Annotated[
        bool, typer.Option("--install", help="Write it, and include it in ~/.ssh/config.")
    ] = False,
    host: Annotated[
        str, typer.Option("--connect", metavar="rv-RACE", hidden=True, help="Run by ssh itself.")
    ] = "",
    cluster: ClusterOption = "",
) -> None:
    """Print what makes `ssh rv-RACE` reach a race's node: for ssh, rsync and VS Code."""
    if host:
        _connect(host, cluster)
        return
    paths = ssh_files()
    word = cluster or os.environ.get("RV_CLUSTER", "")
    text = ssh_config_text(word, named_clusters(os.environ), paths)
    if not writes:
        console.answer(text.rstrip("\n"))
        return
    written = install(text, paths)
    for path in written:
        console.notice(f"wrote {path}")
    if not written:
        console.notice("nothing to change")
    console.notice("ssh rv-RACE now reaches the node of a running race")


def _connect(host: str, cluster: str) -> None:
    """Connect standard input and output to a login on a race's node."""
    keys = take_standard_input()
    if not host.startswith(PREFIX) or host == PREFIX:
        raise RvError(ErrorKind.USAGE, f"{host!r} is no rv-RACE", hint="rv ps lists races")
    paths = ssh_files()
    key = public_key(paths)
    word, named = race_and_cluster(host, named_clusters(os.environ))
    target = current_caller(named or cluster, early=Early.RACES).cluster
    (race,) = find_races([word], target)
    place = find_place(race, None, target, now_s())
    expect_host_key(host, prepare_login(place, key, target), paths)
    connect_standard_streams(place, keys, target)
