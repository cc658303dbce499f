"""A cluster's GPUs at a glance, and what a request would cost on each model of them."""

from rv import bundle
from rv.models.plan import Plan, PoolView, Strategy
from rv.models.request import Request
from rv.models.site import Site
from rv.workflow.cluster import Cluster, SavedCluster
from rv.workflow.launch import plan_on


def look(target: Cluster | SavedCluster) -> tuple[PoolView, ...]:
    """Tell what GPUs there are, how many are free, and who waits for them."""
    from rv.planner import load_catalogue, overview

    return overview(target.take_snapshot(), load_catalogue(bundle.user_config_dir()))


def compare(
    request: Request, target: Cluster | SavedCluster, site: Site
) -> tuple[Plan, tuple[Strategy, ...]]:
    """Plan the request, and pick the cheapest strategy of each GPU model.

    Raises `RvError` where no model can serve it.
    """
    _, plan = plan_on(request, target, site)
    from rv.planner import cheapest, require_strategies

    require_strategies(plan, request)
    return plan, cheapest(plan, request)
