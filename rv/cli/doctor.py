"""`rv doctor`: each link from here to a job on a node, one line and one remedy each."""

import os
import shutil
from typing import Annotated

import typer

from rv.cli.parameters import ClusterOption, JsonOption
from rv.cli.typer_commands import command_app
from rv.config.settings import chosen_cluster
from rv.models.discovery import Finding, Verdict
from rv.models.quantities import parse_duration
from rv.models.site import LOCAL
from rv.ui import console
from rv.ui.setup_views import finding_lines, findings_document, worst
from rv.workflow.doctor import Doctor
from rv.workflow.interactive_shell import HungUp, hang_up_raised
from rv.workflow.locate import locate
from rv.workflow.option_defaults import read_config, with_defaults
from rv.workflow.options import RequestOptions
from rv.workflow.read_options import build_request
from rv.workflow.which_cluster import named_clusters

app = command_app()


@app.command()
def doctor(
    *,
    cluster: ClusterOption = "",
    wait: Annotated[
        str, typer.Option("--wait", metavar="TIME", help="How long a test job may take.")
    ] = "60s",
    json: JsonOption = False,
) -> None:
    """Check each link from here to a job on a node; exit with 1 where one fails.

    A tiny job is sent, and taken away again.
    """
    limit_s = parse_duration(wait).total_seconds()
    config = read_config(cluster)
    typed = RequestOptions(gpu=0, cpus=1, mem="100M", time="2m", single_node=True)
    options = with_defaults(typed, {"gpu", "cpus", "mem", "time"}, config)
    checks = Doctor(
        connect=lambda: locate(cluster, os.environ),
        request=build_request(options, None),
        site=config.site,
        limit_s=limit_s,
        has_git=shutil.which("git") is not None,
        say=console.notice,
    )
    findings: list[Finding] = []
    try:
        with hang_up_raised():
            for finding in checks.run():
                findings.append(finding)
                if not json:
                    console.answer(*finding_lines(finding))
    except HungUp as end:
        raise typer.Exit(128 + end.signal_number) from None
    if json:
        chosen = chosen_cluster(cluster, os.environ, named_clusters(os.environ))
        console.emit_json(findings_document(chosen or LOCAL, findings))
    raise typer.Exit(1 if worst(findings) is Verdict.FAIL else 0)
