"""The page of the benchmark says what its JSON says, and says plainly what is missed."""

import json

from tests.bench.page import PAGE, RESULTS, page

MACHINE = {
    "cores": 2, "cpu": "A CPU", "memory_gib": 8, "slurm": "22.05.8", "python": "3.11.7",
    "date": "2026-11-25", "load": "1.0",
}  # fmt: skip


def found(**benches: dict) -> dict:
    """Results of benches on one machine."""
    return {"benches": {name: {"machine": MACHINE, **kept} for name, kept in benches.items()}}


def test_the_page_is_made_of_the_results() -> None:
    """`python tests/bench/page.py` writes it; no number was typed by hand."""
    assert PAGE.read_text(encoding="utf-8") == page(json.loads(RESULTS.read_text(encoding="utf-8")))


def test_a_target_stands_beside_its_figure() -> None:
    """What is above it is missed, and says so."""
    figures = [
        {"what": "fast", "value": 0.8, "unit": "s", "most": 1.0},
        {"what": "slow", "value": 1.234, "unit": "s", "most": 1.0},
        {"what": "near", "value": 1.001, "unit": "s", "most": 1.0},
        {"what": "free", "value": 1234.5, "unit": "MiB"},
    ]
    made = page(found(scale={"figures": figures}))
    assert "| fast | 0.80 s | at most 1 s: met |" in made
    assert "| slow | 1.23 s | at most 1 s: missed |" in made
    assert "| near | 1.0010 s | at most 1 s: missed |" in made
    assert "| free | 1,234 MiB |  |" in made
    assert "2 cores of A CPU, 8 GiB, Slurm 22.05.8" in made


def test_few_seeds_are_missed_and_so_is_a_rival_that_was_sooner() -> None:
    starts = [
        {
            "scenario": "idle",
            "seed": seed,
            "contender": name,
            "seconds": seconds + seed,
            "censored": late,
        }
        for seed in (1, 2, 3)
        for name, seconds, late in (("rv", 9.0, False), ("quick", 1.0, False), ("slow", 50.0, True))
    ]
    made = page(found(time_to_start={"starts": starts}))
    assert "9 replays, 3 seeds a load; 20 were wanted, so this is missed" in made
    assert "| idle | 11.0 | 3.0 | 52.0 (3 late) |" in made
    assert "| idle | +8.0: missed, WORSE | -41.0: met, better |" in made


def test_finishes_stand_beside_the_best_rival() -> None:
    """Better by a fifth than each in one load, worse than one of them in the other."""
    rows = [
        {"scenario": load, "seed": seed, "contender": name, "seconds": seconds, "censored": late}
        for load, of in (("idle", (20.0, 40.0, 400.0)), ("full", (50.0, 40.0, 400.0)))
        for seed in (1, 2)
        for name, seconds, late in zip(
            ("rv --for finish", "first fit", "all"), of, (False, False, True), strict=True
        )
    ]
    made = page(found(time_to_finish={"finishes": rows}))
    assert "12 replays, 2 seeds a load; 20 were wanted, so this is missed" in made
    assert "| idle | 20.0 | 400.0 (2 late) | 40.0 |" in made
    assert "| idle | 0.05: better | 0.50: better |" in made
    assert "| full | 0.12: better | 1.25: missed |" in made
    assert "in 1 of 2 loads: missed" in made


def test_what_was_not_measured_is_not_there() -> None:
    made = page(found(scale={"figures": []}))
    assert "## " not in made
