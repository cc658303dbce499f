"""`--dry-run`: show the plan of a launch; and the line that says what rv took."""

from rv.cli.caller import now_s, planning_cluster, working_directory
from rv.cli.options import RequestOptions
from rv.cli.request import build_request
from rv.models.request import Command
from rv.ui import console
from rv.ui.plan_views import plan_document, plan_text
from rv.workflow.launch import prepare


def dry_run(options: RequestOptions, command: Command | None) -> None:
    """Show what would be submitted, and submit nothing."""
    request = build_request(options, command)
    cluster = planning_cluster(options.cluster, options.snapshot)
    say_request(options, command, cluster.label)
    launch = prepare(request, cluster, working_directory(), {}, now_s(), options.config.site)
    if options.json:
        console.emit_json(plan_document(launch.plan, launch.names, launch.scripts))
    else:
        console.answer(*plan_text(launch.plan, launch.sbatch_lines, request.widen_after))


def say_request(options: RequestOptions, command: Command | None, cluster: str) -> None:
    """Say what rv took, on the first line, so that a misread option is noticed at once."""
    what = "a MIG slice" if options.mig else f"{options.gpu} GPU{'' if options.gpu == 1 else 's'}"
    kind = f" ({options.type})" if options.type else ""
    time = f" for {options.time}" if options.time else ""
    run = f": {command.typed or command.line}" if command else ""
    console.say(f"rv on {cluster}: {what}{kind}{time}{run}")
    for name, setting in options.config.defaults.items():
        values = setting.value if isinstance(setting.value, list) else [setting.value]
        words = ", ".join(map(str, values))
        console.say(f"  {name.replace('_', ' ')} is {words} by {setting.origin}")
