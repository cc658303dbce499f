"""`--dry-run`: what would be submitted."""

from rv.cli.caller import now_s, planning_cluster, with_rates
from rv.cli.say_request import asks_all, say_request
from rv.models.request import Command
from rv.ui import console
from rv.workflow.environments import planned, working_directory
from rv.workflow.options import RequestOptions
from rv.workflow.read_options import build_request, patience_s


def show_plan(options: RequestOptions, command: Command | None) -> None:
    """Show what would be submitted, for `--dry-run`, and submit nothing."""
    if asks_all(options):
        from rv.cli.every_cluster import show_best_plan

        show_best_plan(options, command)
        return
    # A command's help needs no planner: it is shown in half of the time without it.
    from rv.ui.plan_views import plan_document, plan_text
    from rv.workflow.launch import prepare

    request = build_request(options, command)
    cluster = planning_cluster(options.cluster, options.snapshot, patience_s(options))
    say_request(options, command, cluster.label)
    request = planned(request, cluster.race_root)
    site = with_rates(options.config.site, request, cluster.key)
    launch = prepare(request, cluster, working_directory(), {}, now_s(), site)
    if options.json:
        console.emit_json(plan_document(launch.plan, launch.names, launch.scripts))
    else:
        console.answer(*plan_text(launch.plan, launch.sbatch_lines, request.widen_after))
