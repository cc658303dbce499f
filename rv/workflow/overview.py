"""A cluster's GPUs at a glance."""

from rv import bundle
from rv.models.plan import PoolView
from rv.workflow.target import SavedCluster, Target


def look(target: Target | SavedCluster) -> tuple[PoolView, ...]:
    """Tell what GPUs there are, how many are free, and who waits for them."""
    from rv.planner import load_catalogue, overview

    return overview(target.take_snapshot(), load_catalogue(bundle.user_config_dir()))
