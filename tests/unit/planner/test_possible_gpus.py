"""How many GPUs a request could have where it can have none as it stands."""

from dataclasses import replace

import pytest

from rv.models.request import NodeLimit, Request
from tests.unit.planner.clusters import campus, planned

WISHES = [
    {},
    {"types": ("a100",)},
    {"types": ("h200",)},
    {"node_limit": NodeLimit.SINGLE},
    {"node_limit": NodeLimit.MULTI},
    {"min_vram_mib": 60 * 1024},
    {"max_cost": 0.01},
]


def halved(request: Request) -> int:
    """The most that a plan can serve, by a plan of each number tried."""
    low, high = 0, request.gpus
    while high - low > 1:
        middle = (low + high) // 2
        made = planned(replace(request, gpus=middle), campus())
        low, high = (middle, high) if made.strategies else (low, middle)
    return low


@pytest.mark.parametrize("gpus", [1, 2, 3, 17, 63, 200, 100_000])
@pytest.mark.parametrize("wish", WISHES, ids=str)
def test_the_hint_is_what_plans_say(wish: dict[str, object], gpus: int) -> None:
    """Though no further plan is made for it."""
    request = Request(gpus=gpus, **wish)  # type: ignore[arg-type]
    made = planned(request, campus())
    assert made.possible_gpus == (0 if made.strategies else halved(request))
