"""`rv snapshot`: what the cluster is now, as JSON to plan with elsewhere or later."""

import typer

from rv.cli import caller
from rv.cli.common import ClusterOption
from rv.ui import console


def snapshot(*, cluster: ClusterOption = "") -> None:
    """Print the cluster as JSON; rv up --dry-run --snapshot FILE plans with it."""
    from rv.slurm.saved import write_snapshot

    target = caller.current_caller(cluster).cluster
    console.say(f"on {target.label}")
    console.answer(write_snapshot(target.take_snapshot()).rstrip())


def register(app: typer.Typer) -> None:
    """Add `snapshot`."""
    app.command("snapshot")(snapshot)
