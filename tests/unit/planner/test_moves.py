"""`--switch`: from which job of a race a chain may move to which."""

from dataclasses import replace
from datetime import timedelta

from rv.models.plan import RunTime, Submission
from rv.models.request import Objective
from rv.planner.moves import moves
from tests.unit.planner.test_finish import REQUEST, cluster, made

CHAIN = replace(REQUEST, objective=Objective.START, checkpoint=True, switch=True)


def job(number: int, *minutes: float, of: int = 0) -> Submission:
    """A job whose strategies take so long."""
    strategy = made(REQUEST, cluster()).strategies[0]
    times = [
        RunTime(
            p50=timedelta(minutes=each),
            p90=timedelta(minutes=each),
            modelled=timedelta(minutes=each),
            rate=1.0,
            rated_by="",
            scaled_by="",
            corrected_by="",
        )
        for each in minutes
    ]
    return Submission(
        number=number,
        strategies=tuple(replace(strategy, run=run) for run in times),
        instead_of=of,
    )


def test_a_chain_moves_to_what_is_faster_by_a_tenth_the_fastest_first() -> None:
    jobs = [job(1, 100), job(2, 91), job(3, 50), job(4, 20)]
    assert moves(jobs, ()) == {1: (4, 3), 2: (4, 3), 3: (4,), 4: ()}


def test_a_job_that_may_become_either_counts_as_the_worse() -> None:
    """To move to as its slowest, to move from as its fastest: no move is to what is slower."""
    jobs = [job(1, 100), job(2, 80, 95), job(3, 85)]
    assert moves(jobs, ()) == {1: (3,), 2: (), 3: ()}


def test_a_part_of_a_refused_job_moves_as_well_and_is_not_moved_to() -> None:
    jobs, parts = [job(1, 80, 95), job(2, 50)], [job(3, 80, of=1), job(4, 95, of=1)]
    assert moves(jobs, parts) == {1: (2,), 2: (), 3: (2,), 4: (2,)}


def test_the_plan_says_what_a_chain_may_move_to() -> None:
    planned = made(CHAIN, cluster())
    (best,) = [number for number, others in planned.moves.items() if not others]
    assert planned.submissions[best - 1].strategy.id == "h200/1x8/h"
    assert planned.job_notes[-1].startswith(
        "a next segment may run on a layout that is faster than the last one's: h200 1x8, h200 1x4, "
    )


def test_where_nothing_is_faster_the_plan_says_so() -> None:
    planned = made(replace(CHAIN, types=("h200",), sizes=(), gpus=8), cluster())
    assert planned.moves == {1: ()}
    assert planned.job_notes[-1].startswith("--switch changes nothing: ")


def test_without_switch_no_chain_moves() -> None:
    planned = made(replace(CHAIN, switch=False), cluster())
    assert planned.moves == {}
    assert not [note for note in planned.job_notes if "segment" in note]
