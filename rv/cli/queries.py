"""`rv status`, `rv cost`, `rv explain` and `rv snapshot`: questions that change nothing."""

import sys
from typing import Annotated

from rv.cli.caller import current_caller, planning_cluster, with_rates
from rv.cli.defaults import with_request_options
from rv.cli.parameters import Argument, ClusterOption, CommandApp, JsonOption
from rv.cli.say_request import asks_all, say_request
from rv.cli.watching import answers_once, looks, watch_notice
from rv.models.option import Option
from rv.models.snapshot import write_snapshot
from rv.slurm.probe import SHARED_FOR
from rv.ui import console
from rv.ui.explanation_views import explanation_document, explanation_text
from rv.ui.plan_views import costs_document, costs_text
from rv.ui.status_views import (
    overview_document,
    overview_headline,
    overview_lines,
    overview_text,
)
from rv.ui.watched import Watched
from rv.workflow.cluster import Cluster
from rv.workflow.option_defaults import read_config
from rv.workflow.options import RequestOptions
from rv.workflow.queries import compare_costs, explain_race, free_gpus
from rv.workflow.races import find_races
from rv.workflow.read_options import build_request, patience_s
from rv.workflow.watch_pools import PoolsWatch

app = CommandApp()


@app.command()
def status(
    *,
    cluster: ClusterOption = "",
    snapshot: Annotated[
        str, Option(metavar="FILE", help="Look at a saved cluster (rv snapshot).")
    ] = "",
    watch: Annotated[
        bool, Option("--watch", "-w", help="Look again every 30 s, until Ctrl-C.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show free and total GPUs of each model, who waits for them, and what you may still have."""
    every_cluster = asks_all(RequestOptions(cluster=cluster)) and not snapshot
    once = {"--json": json, "--snapshot": bool(snapshot), "--cluster all": every_cluster}
    if watch and (option := next((name for name, given in once.items() if given), "")):
        raise answers_once(option)
    if every_cluster:
        from rv.cli.every_cluster import show_status

        sys.exit(show_status(json=json))
    where = planning_cluster(cluster, snapshot)
    if watch and isinstance(where, Cluster):
        _watch(where)
        return
    console.say(f"on {where.label}")
    pools = free_gpus(where)
    if json:
        console.emit_json(overview_document(pools))
    else:
        console.answer(*overview_text(pools, console.answer_width()))


def _watch(cluster: Cluster) -> None:
    """Show what a cluster has as it changes."""
    watched, watch = Watched(), PoolsWatch(cluster=cluster)
    if not watched.is_drawn:
        console.say(f"on {cluster.label}")
    for pools in looks(watch.look, SHARED_FOR.total_seconds()):
        if not watched.is_drawn:
            watched.say_changes(overview_lines(pools))
            continue
        notice = watch_notice(cluster.label, watch.silent_since_s)
        headline = overview_headline(pools, notice)
        watched.show(headline, *overview_text(pools, watched.size.columns))


@app.command()
@with_request_options
def cost(*, options: RequestOptions) -> None:
    """Compare GPU models: what a request would cost on each, and when it would start."""
    where = planning_cluster(options.cluster, options.snapshot, patience_s(options))
    say_request(options, None, where.label)
    request = build_request(options, None)
    site = with_rates(options.config.site, request, where.key)
    plan, best = compare_costs(request, where, site)
    if options.json:
        console.emit_json(costs_document(plan, best))
    else:
        console.answer(*costs_text(plan, best))


@app.command()
def explain(
    *,
    race: Annotated[str | None, Argument(metavar="RACE", help="Race or name; the latest.")] = None,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Tell why a race still waits: reasons, places in line, and what would start now."""
    caller = current_caller(cluster)
    (record,) = find_races([race] if race else [], caller.cluster)
    site = with_rates(read_config(cluster).site, record.request, caller.cluster.key)
    explanation = explain_race(record, caller.cluster, site, caller.now_s)
    if json:
        console.emit_json(explanation_document(explanation))
    else:
        console.say(f"on {caller.cluster.label}")
        console.answer(*explanation_text(explanation, caller.now_s))


@app.command()
def snapshot(*, cluster: ClusterOption = "") -> None:
    """Print the cluster as JSON; rv up --dry-run --snapshot FILE plans with it."""
    here = current_caller(cluster).cluster
    console.say(f"on {here.label}")
    console.answer(write_snapshot(here.take_snapshot()).rstrip())
