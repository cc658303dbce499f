"""New software excuses what came with it, and nothing that came later."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rv.accept.history import History
from rv.accept.measurements import FAULTY, SHIFTED, SOUND, Point
from rv.accept.regressions import Series, standing, together
from rv.accept.results import RunResult
from tests.unit.accept.test_regressions import judged, of_run

CHANGED = 6
"""The first run with the new driver."""
EXCUSED, LASTING = f"fleet WARN {SOUND}", f"fleet WARN {SHIFTED}"
NAMED = f"gpu FAIL {FAULTY}"


def driver(run: int, place: int = 0) -> str:
    """All GPUs have it from the same run on."""
    return "590" if run >= CHANGED else "580"


def later(lost: float, run: int) -> float:
    """The speed of a GPU that loses something in the second run of the new driver, for ever."""
    return 700 * (1 - lost * (run > CHANGED))


def said(
    levels: Sequence[Callable[[int], float]],
    *,
    per_node: int = 1,
    noise: float = 0.005,
    software: Callable[[int, int], str] = driver,
    runs: int = 16,
) -> list[list[str]]:
    """Say what became of each GPU in each run from the first with the new driver on."""
    source, found = random.Random(5), []
    kept: list[list[Point]] = [[] for _ in levels]
    for run in range(runs):
        series = []
        for place, (points, level) in enumerate(zip(kept, levels, strict=True)):
            value, name = level(run) * (1 + source.gauss(0, noise)), software(run, place)
            points.append(Point(time=run, value=value, fingerprint=name, run=str(run)))
            node = f"n{place // per_node}"
            series.append(Series(points=points, kind=("x",), subject=f"g{place}", node=node))
        judgements = together(series)
        for points, each in zip(kept, judgements, strict=True):
            points[-1] = replace(points[-1], standing=standing(each))
        found.append([f"{e.cause} {e.status} {standing(e)}" if e else "" for e in judgements])
    return found[CHANGED:]


@pytest.mark.parametrize("gpus", [1, 8])
def test_a_node_that_is_slower_from_the_second_run_of_a_driver_on_is_not_excused_by_it(
    gpus: int,
) -> None:
    """The driver is innocent: it ran at the old level. A fifth slower is so for ever."""
    first, *rest = said([lambda run: later(0.2, run)] * gpus, per_node=gpus)

    assert first == [""] * gpus
    assert rest == [[NAMED] * gpus] * 9


def test_one_gpu_of_a_node_is_not_excused_either() -> None:
    """The others stay as they are."""
    levels: list[Callable[[int], float]] = [lambda _: 700.0] * 8
    levels[3] = lambda run: later(0.2, run)
    first, *rest = said(levels, per_node=8)

    assert first == [""] * 8
    assert rest == [["", "", "", NAMED, "", "", "", ""]] * 9


def test_what_a_fleet_loses_later_is_not_learnt() -> None:
    """Twelve nodes, 8 %: as without new software."""
    first, *rest = said([lambda run: later(0.08, run)] * 12)

    assert first == [""] * 12
    assert rest == [[LASTING] * 12] * 9


def test_what_came_with_the_driver_is_excused_and_what_came_on_top_of_it_is_not() -> None:
    """The driver costs 4 %, and from its third run on the node is a fifth slower."""

    def level(run: int) -> float:
        return 700 if run < CHANGED else 672 if run < CHANGED + 2 else 540

    found = said([level] * 8, per_node=8)

    assert found == [[EXCUSED] * 8] * 2 + [[NAMED] * 8] * 8


@pytest.mark.parametrize(("gpus", "per_node"), [(8, 8), (12, 1)])
@pytest.mark.parametrize("noise", [0.005, 0.02])
def test_what_came_with_the_first_run_of_a_driver_is_its_until_it_is_the_usual_level(
    gpus: int, per_node: int, noise: float
) -> None:
    """8 %: five runs are warnings, and of no GPU."""
    levels = [lambda run: 700 * (1 - 0.08 * (run >= CHANGED))] * gpus

    found = said(levels, per_node=per_node, noise=noise)

    assert found == [[EXCUSED] * gpus] * 5 + [[""] * gpus] * 5


def test_a_driver_that_comes_to_some_nodes_first_is_proven_on_those() -> None:
    """Six nodes had it at the old level; of the six that have it now, it may be why."""
    found = said(
        [lambda run: later(0.08, run)] * 12,
        software=lambda run, place: driver(run if place < 6 else run - 1),
        runs=CHANGED + 2,
    )

    assert found == [[""] * 12, [LASTING] * 6 + [EXCUSED] * 6]


def test_a_node_at_its_old_level_again_heals_as_with_the_same_software() -> None:
    """It lost a fifth in one run of the new driver."""
    levels = [lambda run: 560.0 if run == CHANGED + 1 else 700.0] * 8
    found = said(levels, per_node=8)

    assert [run[0].split()[:2] for run in found[:3]] == [[], ["gpu", "FAIL"], ["gpu", "WARN"]]
    assert found == said(levels, per_node=8, software=lambda *_: "580")


@pytest.mark.parametrize("dipped", [1, 2, 3, 4])
def test_one_low_run_after_a_driver_that_costs_a_little_is_over_when_it_is_over(
    dipped: int,
) -> None:
    """The driver costs 3 %, one GPU of a node had one bad run with it, and is sound ever after."""

    def level(run: int) -> float:
        return 700 if run < CHANGED else 679

    def dip(run: int) -> float:
        return 630 if run == CHANGED + dipped else level(run)

    found = said([level] * 3 + [dip] + [level] * 4, per_node=8, noise=0.003, runs=24)

    assert found[dipped][3].startswith("gpu WARN")
    assert {each for run in found[-8:] for each in run} == {""}


def test_what_the_software_itself_costs_is_not_the_gpus() -> None:
    """The driver costs 12 %, and from its third run on 4 % are lost besides: nothing is proven."""

    def level(run: int) -> float:
        return 700 if run < CHANGED else 616 if run < CHANGED + 2 else 591

    assert {each for run in said([level], runs=12) for each in run} == {f"software WARN {FAULTY}"}


def test_what_its_software_reached_before_the_reference_is_not_part_of_it() -> None:
    """Four runs of A, one of which went wrong, thirty of B, and A again, which is slower."""

    def level(run: int) -> float:
        return 500 if run == 0 else 690 if run < 4 else 700 if run < 34 else 640

    found = said([level], software=lambda run, _: "B" if 4 <= run < 34 else "A", runs=36)

    assert [run[0] for run in found[-3:]] == ["", *[f"gpu WARN {FAULTY}"] * 2]


def test_a_run_says_so_and_keeps_it_as_bad(tmp_path: Path) -> None:
    """Through the file, as `rv accept run` does: eight GPUs of a node."""
    history = History(tmp_path / "h.sqlite")

    def run(number: int) -> RunResult:
        result = of_run(number, *[later(0.2, number) + gpu for gpu in range(8)])
        env = {"torch": "2.13.0", "cuda": "13.0", "driver": driver(number)}
        return judged(history, number, replace(result, env=env)).results[0]

    codes = [run(number).code for number in range(14)]

    assert codes == [""] * 7 + ["regression"] * 7
    assert [e.standing for e in history.all(gpu="GPU-n1-5")] == [SOUND] * 7 + [FAULTY] * 7


def test_a_node_that_gets_the_driver_later_and_is_slower_from_then_on_is_not_another_nodes() -> (
    None
):
    """The first has it for two runs at the old level, and goes on at it."""
    levels: list[Callable[[int], float]] = [lambda _: 700.0] * 8
    levels += [lambda run: 700 * (1 - 0.2 * (run > CHANGED + 1))] * 4
    found = said(
        levels,
        per_node=8,
        software=lambda run, place: driver(run if place < 8 else run - 2),
        runs=CHANGED + 5,
    )

    assert {each for run in found for each in run[:8]} == {""}
    assert found[2:] == [[""] * 8 + [f"software WARN {FAULTY}"] * 4] * 3


@pytest.mark.parametrize("nodes", [1, 8])
@pytest.mark.parametrize("level", [(700.0, 0.0), (0.0, 0.0), (0.0, 700.0)])
def test_a_rate_of_nothing_is_judged_too(nodes: int, level: tuple[float, float]) -> None:
    """All have lost everything, or never had anything."""
    found = said([lambda run: level[run >= CHANGED]] * 8, per_node=8 // nodes)

    is_lost = level == (700.0, 0.0)
    assert {bool(each) for each in found[0]} == {is_lost}
