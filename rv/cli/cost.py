"""`rv cost`: what a request would cost on each GPU model."""

from rv.cli import caller, launching
from rv.cli.defaults import with_request_options
from rv.cli.options import RequestOptions, build_request
from rv.ui import console


@with_request_options
def cost(*, options: RequestOptions) -> None:
    """Compare GPU models: what a request would cost on each, and when it would start."""
    from rv.ui.plans import costs_document, costs_text
    from rv.workflow.overview import compare

    target = caller.planning_target(options.cluster, options.snapshot)
    launching.say_taken(options, None, target.label)
    plan, best = compare(build_request(options, None), target, options.config.site)
    if options.json:
        console.emit_json(costs_document(plan, best))
    else:
        console.answer(*costs_text(plan, best))


def register(app: "typer.Typer") -> None:
    """Add `cost`."""
    app.command("cost")(cost)


TYPE_CHECKING = False
if TYPE_CHECKING:
    import typer
