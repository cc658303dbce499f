"""What a plan costs the controller, by sdiag's counts: the same for one strategy as for twelve."""

import json
import time
from dataclasses import replace

import pytest

from rv.workflow.cluster import Cluster
from rv.workflow.locate import locate
from tests.bench.cluster import rpc_counts
from tests.slurm.launching import Rv


@pytest.fixture
def rv(fresh_sandbox, tmp_path) -> Rv:
    """A cluster that nobody else asks anything."""
    return Rv(box=fresh_sandbox("campus"), home=tmp_path)


def asked(rv: Rv, target: Cluster, cache: str, *options: str) -> tuple[int, dict[str, int]]:
    """Plan with nothing cached; return the number of strategies and the RPCs by their names."""
    fresh = replace(rv, more={"XDG_CACHE_HOME": str(rv.home / cache)})
    before = rpc_counts(target)
    done = fresh("up", "--dry-run", "--json", *options)
    assert done.returncode == 0, done.stderr
    after = rpc_counts(target)
    since = {name: after[name] - before.get(name, 0) for name in after}
    ours = {n: c for n, c in since.items() if n.startswith("REQUEST_") and c}
    ours.pop("REQUEST_STATS_INFO")  # sdiag itself
    return len(json.loads(done.stdout)["strategies"]), ours


def test_strategies_cost_the_controller_nothing(rv: Rv) -> None:
    """One probe asks each thing once, however many ways there are to serve the request."""
    target = locate("local", rv.environment)
    one, few = asked(rv, target, "1", "--gpu", "4", "--type", "h200", "--single-node")
    twelve, many = asked(rv, target, "2", "--gpu", "4")
    assert (one, twelve) == (1, 12)
    assert few == many
    assert few["REQUEST_JOB_INFO"] == few["REQUEST_NODE_INFO"] == 1


def test_nothing_is_refused_for_what_was_true_half_a_minute_ago(rv: Rv) -> None:
    """The last answer is asked for anew, once at most."""
    target = locate("local", rv.environment)
    wanted = ("up", "--dry-run", "--gpu", "1")
    rv.slurm("scontrol", "update", "nodename=ALL", "state=drain", "reason=test")
    before = rpc_counts(target)["REQUEST_NODE_INFO"]
    refused = rv(*wanted)
    assert refused.returncode != 0
    assert "drained" in refused.stderr
    assert rpc_counts(target)["REQUEST_NODE_INFO"] <= before + 2
    rv.slurm("scontrol", "update", "nodename=ALL", "state=resume")
    time.sleep(2)  # within which an answer counts as of now

    done = rv(*wanted)

    assert done.returncode == 0, done.stderr
