"""Numbers of a run held against each other: the rule for peers, at a cost that grows as they do."""

import cProfile
import pstats
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rv.accept.baselines import Baselines
from rv.accept.judge import Judge
from rv.accept.measurements import Measurement, measurements
from rv.accept.peers import PeerGroup, against_peers
from rv.accept.report.expected import compared
from rv.accept.results import RunResult, Status
from rv.payloads.contract.stats import PEERS, peer_verdict
from tests.unit.accept.made_results import of_rates

RATES = st.one_of(
    st.floats(1e-3, 1e6),
    st.floats(85, 105),
    st.sampled_from([100.0, 95.0, 94.999, 90.0, 89.999, 80.0]),
)


def alike(*values: float, direction: str = "higher") -> list[Measurement]:
    """Numbers of so many GPUs, two on each node."""
    (one,) = measurements(of_rates(1.0), "r", "c", 0.0)
    return [
        replace(one, value=value, node=f"n{at // 2}", device=f"cuda:{at % 2}", direction=direction)
        for at, value in enumerate(values)
    ]


@given(st.lists(RATES, min_size=1, max_size=20), st.sampled_from(["higher", "lower"]))
def test_each_number_has_the_verdict_of_the_rule_for_peers(
    values: list[float], direction: str
) -> None:
    """But where two groups disagree; then those of the slow one are warned of or fail alike."""
    peers = PeerGroup(measured=alike(*values, direction=direction))
    split = peers.disagreement if len(values) >= PEERS else None
    for each in peers.measured:
        remark = against_peers(each, peers)
        if split and each.value in split.slow:
            assert remark is not None
            assert remark.code == "peers_disagree"
        else:
            expected = peer_verdict(each.value, values, direction)
            assert (remark.status if remark else Status.PASS) == expected


@pytest.mark.parametrize(
    ("values", "slow"),
    [
        ((100, 100, 80, 80), {80}),
        ((100, 99, 98, 80, 79), set()),
        ((100, 80, 80, 80), set()),
        ((100, 100, 96, 96), set()),
        ((100,), set()),
    ],
)
def test_groups_of_which_the_slow_one_is_half_disagree(
    values: tuple[float, ...], slow: set[float]
) -> None:
    """A single fast one is no group, and a narrow gap parts none."""
    split = PeerGroup(measured=alike(*values)).disagreement
    assert (split.slow if split else set()) == slow


def sweep(nodes: int) -> list[RunResult]:
    """So many nodes of eight GPUs, of which one in nine is slow."""
    rates = [[700.0 * (1 - 0.2 * (at % 9 == 0)) + at % 50 for at in range(8)]] * nodes
    return [of_rates(*each, name="Other GPU", hostname=f"n{n}") for n, each in enumerate(rates)]


def judged(results: list[RunResult]) -> list[RunResult]:
    baselines = Baselines(values=(), models={})
    return list(Judge(baselines=baselines, past=lambda _: (), time_s=1e12).judge(results))


def profile(work: Callable[[], object]) -> pstats.Stats:
    with cProfile.Profile() as profiler:
        work()
    return pstats.Stats(profiler)


def test_the_work_of_judging_grows_as_the_nodes_do() -> None:
    """A thousand nodes are judged while somebody waits."""
    few, many = (profile(partial(judged, sweep(nodes))) for nodes in (10, 80))
    assert many.total_calls < 12 * few.total_calls  # type: ignore[attr-defined]


def test_a_report_works_out_each_median_once() -> None:
    results = judged(sweep(10))
    medians = [
        calls
        for (_, _, name), (calls, *_) in profile(partial(compared, results)).stats.items()  # type: ignore[attr-defined]
        if name == "median"
    ]
    assert sum(medians) == 1
