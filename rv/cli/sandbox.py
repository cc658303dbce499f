"""`rv sandbox`: a real Slurm cluster on this machine."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from rv import sandbox
from rv.cli.typer_commands import group_app
from rv.errors import ErrorKind, RvError
from rv.ui import console

app = group_app("A real Slurm cluster on this machine.")

Name = Annotated[str, typer.Option("--name", metavar="NAME", help="Which sandbox.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


@app.command()
def up(
    *,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", metavar="PROFILE", help="campus, small, gpu or a file. Default: small."
        ),
    ] = None,
    name: Name = "default",
    directory: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where it lives. Default: the user's state folder."),
    ] = None,
    user: Annotated[
        list[str] | None,
        typer.Option("--user", metavar="USER", help="Let this local user submit too. Repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Bring a cluster up, or back up. One that is up is left alone."""
    users = tuple(user or ())
    sandbox.up(name, profile, directory=directory, users=users, progress=console.say)
    status = sandbox.status(name)
    _show(status, json=json)


@app.command()
def down(*, name: Name = "default", json: Json = False) -> None:
    """End a cluster, with its jobs, and remove all of it."""
    ended = sandbox.down(name)
    if json:
        console.emit_json({"name": name, "ended": ended})
    else:
        console.say(f"sandbox {name} is gone" if ended else f"there is no sandbox {name}")


@app.command()
def status(
    *,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Which sandbox. Default: all.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what runs, and how to use it by hand."""
    names = [name] if name else [each.name for each in sandbox.list_all()]
    sandboxes = [sandbox.status(each) for each in names]
    if json:
        console.emit_json({"sandboxes": [_as_json(each) for each in sandboxes]})
        return
    for each in sandboxes:
        _show(each, json=False)
    if not sandboxes:
        console.say("no sandbox; rv sandbox up starts one")


@app.command()
def load(
    *,
    share: Annotated[
        float,
        typer.Option(
            "--share", metavar="SHARE", help="Which share of the GPUs to keep busy, 0 to 1."
        ),
    ] = 0.8,
    shortest: Annotated[
        str, typer.Option("--min", metavar="TIME", help="The shortest job, such as 30s.")
    ] = "1m",
    longest: Annotated[
        str, typer.Option("--max", metavar="TIME", help="The longest job, such as 2h.")
    ] = "10m",
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed draws the same jobs.")] = 1,
    stop: Annotated[bool, typer.Option("--stop", help="End the load and its jobs.")] = False,
    name: Name = "default",
    json: Json = False,
) -> None:
    """Keep the GPUs busy with sleeping jobs, in the background."""
    from rv.models.quantities import parse_duration

    box = _live(name)
    if stop:
        stopped = sandbox.stop_load(box)
        said = "the load is over" if stopped else "there was no load"
    else:
        sandbox.load(box, share, parse_duration(shortest), parse_duration(longest), seed)
        said = f"keeping {share:.0%} of the GPUs of {name} busy; rv sandbox load --stop ends it"
    if json:
        console.emit_json({"name": name, "loading": not stop, "share": None if stop else share})
    else:
        console.say(said)


@app.command()
def fault(
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="The node whose nvidia-smi is to lie.")
    ],
    kind: Annotated[
        str | None,
        typer.Argument(metavar="FAULT", help="wrong-model, missing-gpu, busy, error or hang."),
    ] = None,
    *,
    clear: Annotated[bool, typer.Option("--clear", help="Make it honest again.")] = False,
    name: Name = "default",
    json: Json = False,
) -> None:
    """Make a node's nvidia-smi lie, from its next call on."""
    if (kind is None) != clear:
        raise RvError(
            ErrorKind.USAGE,
            "name a fault, or --clear",
            hint="faults: wrong-model missing-gpu busy error hang",
        )
    sandbox.set_fault(_live(name), node, kind)
    if json:
        console.emit_json({"name": name, "node": node, "fault": kind})
    else:
        console.say(f"{node}: {kind or 'honest again'}")


def _live(name: str) -> sandbox.Sandbox:
    named = sandbox.find(name)
    if named is None:
        raise RvError(
            ErrorKind.SANDBOX, f"sandbox {name} is not up", hint=f"rv sandbox up --name {name}"
        )
    return named


def _as_json(status: sandbox.SandboxStatus) -> dict[str, object]:
    box = status.sandbox
    return {
        "name": box.name,
        "profile": box.profile,
        "live": box.live,
        "cluster": box.cluster_name,
        "nodes_up": status.nodes_up,
        "nodes_total": status.nodes_total,
        "daemons": [dataclasses.asdict(daemon) for daemon in status.daemons],
        "faults": dict(status.faults),
        "directory": str(box.directory),
        "slurm_conf": str(box.slurm_conf),
        "export": status.export,
    }


def _show(status: sandbox.SandboxStatus, *, json: bool) -> None:
    if json:
        console.emit_json(_as_json(status))
        return
    box = status.sandbox
    dead = [daemon.name for daemon in status.daemons if daemon.pid is None]
    state = "up" if box.live and not dead else f"down: {', '.join(dead) or 'not ready'}"
    console.say(
        f"sandbox {box.name} ({box.profile}): {state}, "
        f"{status.nodes_up}/{status.nodes_total} nodes, in {box.directory}"
    )
    for node, kind in status.faults:
        console.say(f"  {node}: nvidia-smi says {kind}")
    console.answer(status.export)
