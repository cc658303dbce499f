"""What the site's and the user's configuration files change about a plan."""

from dataclasses import replace

from rv.models.plan import Exclusion
from rv.models.request import DEFAULT_MAX_SUBMISSIONS, Request
from rv.models.site import Site
from rv.models.snapshot import Partition, Snapshot
from rv.planner.catalogue import Catalogue, mig_profile
from rv.planner.documents import nearest
from rv.planner.reasons import Unfit


def check_not_skipped(partition: Partition, request: Request, site: Site) -> None:
    """Raise `Unfit` for a partition that a file leaves out, unless the request names it."""
    name = partition.name
    if name in site.skipped and name not in request.partitions:
        reason = f"partition {name} is skipped by {site.skipped[name]}; -p {name} asks for it"
        raise Unfit(reason, by_limit=True)


def avoided(request: Request, snapshot: Snapshot, site: Site) -> tuple[Exclusion, ...]:
    """Name the nodes that are not asked for because they failed, each with the reason.

    One that the user excludes, or asks for by name, is no matter of ours.
    """
    if request.no_avoid:
        return ()
    spoken_for = {*request.exclude_nodes, *request.only_nodes}
    here = {node.name for node in snapshot.nodes} - spoken_for
    names = sorted(here & site.avoided.keys())
    return tuple(Exclusion(what=name, reason=site.avoided[name]) for name in names)


def capped(request: Request, site: Site) -> tuple[Request, tuple[str, ...]]:
    """Bring the request under the site's `max_fanout`, with a note where the user asked for more.

    The number that rv would use by itself is lowered without a word.
    """
    ceiling, asked = site.max_fanout, request.max_submissions
    if ceiling is None or asked <= ceiling.jobs:
        return request, ()
    within = replace(request, max_submissions=ceiling.jobs)
    if asked == DEFAULT_MAX_SUBMISSIONS:
        return within, ()
    jobs = "one job" if ceiling.jobs == 1 else f"{ceiling.jobs} jobs"
    return within, (f"max_fanout allows {jobs} a race ({ceiling.origin}), {asked} asked",)


def unknown_prices(site: Site, snapshot: Snapshot, catalogue: Catalogue) -> tuple[str, ...]:
    """Say which prices are of no GPU model that rv knows or the cluster has: slips of the pen."""
    doubtful = [n for n in site.prices if n not in catalogue.models and not mig_profile(n)]
    if not doubtful:
        return ()
    here = {group.type for node in snapshot.nodes for group in node.gpus}
    notes = []
    for name in doubtful:
        if name not in here:
            near = nearest(name, (*here, *catalogue.models))
            meant = f"; did you mean {near}?" if near else ""
            notes.append(f"{site.prices[name].origin}: no GPU model is called {name!r}{meant}")
    return tuple(notes)
