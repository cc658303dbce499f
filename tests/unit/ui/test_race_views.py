"""How the end of a race is put into a sentence."""

from dataclasses import replace
from datetime import timedelta

import pytest

from rv.models.race import Claim, Ended, Entry, RaceState, RaceStatus, Segment
from rv.ui.race_views import ending
from tests.unit.race.test_status import RACE

HOUR = timedelta(hours=1)
SLOW, FAST = (
    Entry(
        number=number, name=f"rv-{number}", strategy=gpu, walltime=2 * HOUR, cost=cost, cost_unit="EUR"
    )
    for number, gpu, cost in ((1, "v100", 2.0), (2, "h200", 20.0))
)  # fmt: skip


def over(fast: Entry) -> RaceStatus:
    """A chain that ran for an hour on the slow layout, then on the fast one, for three in all."""
    claims = [
        Claim(job_id=11, restart=0, submission=1, nodes="v1", host="v1", started_at=1e6),
        Claim(
            job_id=12, restart=0, submission=2, nodes="h1", host="h1", started_at=1e6 + 3600,
            segment=2, elapsed_s=3600.0, strategy="h200",
        ),
    ]  # fmt: skip
    return RaceStatus(
        race=replace(RACE, entries=(SLOW, fast), submitted_at=1e6),
        state=RaceState.COMPLETED,
        claim=claims[-1],
        exit_code=0,
        started_at=1e6,
        ended_at=1e6 + 3 * 3600,
        segments=tuple(Segment(number=n, claim=one) for n, one in enumerate(claims, 1)),
    )


def test_a_chain_costs_what_each_segment_costs_on_its_own_layout() -> None:
    """1 an hour for one, then 10 an hour for two."""
    assert ending(over(FAST)).endswith("ran 3h in 2 segments, cost 21.00 EUR")


def test_a_segment_that_began_anew_costs_what_all_its_instances_did() -> None:
    """The first ran for an hour, was preempted, and ran for another; then two on the fast one."""
    status = over(FAST)
    first, second = status.segments
    again = replace(first.claim, elapsed_s=3600.0, started_at=1e6 + 5000)
    ended = Ended(owner=again.owner, code=0, signal="", ended_at=1e6 + 8600, next="again")
    fast = replace(second.claim, elapsed_s=7200.0 + 1800.0, started_at=1e6 + 3 * 3600 - 5400)
    changed = replace(
        status,
        claim=fast,
        segments=(Segment(number=1, claim=again, ended=ended), replace(second, claim=fast)),
    )
    assert ending(changed).endswith("ran 4h in 2 segments, cost 22.00 EUR")


@pytest.mark.parametrize("changed", [{"cost": None}, {"walltime": timedelta(0)}])
def test_where_one_segment_has_no_price_no_cost_is_told(changed: dict[str, object]) -> None:
    assert "cost" not in ending(over(replace(FAST, **changed)))
