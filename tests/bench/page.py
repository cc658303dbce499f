"""Make the page of the documentation of what the benches kept. No number of it is typed by hand.

python tests/bench/page.py            # docs/benchmark.md of tests/bench/results.json
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.markdown import table
from tests.bench.page_replays import finishes_section, starts_section
from tests.bench.paired import Start
from tests.bench.results import Figure, figures_of

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = Path(__file__).with_name("results.json")
PAGE: Final = ROOT / "docs" / "benchmark.md"
_HEAD: Final = """\
# Benchmark

What `rv` costs and what it gains, beside other ways to do the same on the same machine in the same run. Everything
runs on a sandbox: a real Slurm on one machine, with nodes and GPUs that are made up. Where the load average below is far above the number
of cores, the machine was shared with other work: read ratios, not seconds. `tests/bench/run.sh --page` measures again and writes this
page; no number on it is typed by hand.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One bench's part of the page."""

    bench: str
    title: str
    text: str


SECTIONS: Final = (
    Section(
        bench="scale",
        title="Large clusters",
        text="""\
Reading what a probe brings and planning a request for 4 GPUs on it, on made-up clusters with 5 jobs a node and 60 partitions, in
seconds of the processor. The last row of each size is the floor: what Python takes to split the same text into lines and fields.""",
    ),
    Section(
        bench="startup_rivals",
        title="Start-up",
        text="""\
Until a launcher has printed its help, as a multiple of what Python takes to start and import typer. submitit has no command: it is
imported. Versions are those that PyPI gave.""",
    ),
    Section(
        bench="submit",
        title="Submission",
        text="""\
rv's time to submit a race that is staged, over that of `xargs -P 8 sbatch` with the same scripts, and of submitit, which sends one
array: one sbatch, however many jobs. None counts the start of its interpreter.""",
    ),
    Section(
        bench="rpcs",
        title="What the controller is asked",
        text="""\
By sdiag's counts. One `squeue` is two RPCs in Slurm 22.05, whatever its options are.""",
    ),
    Section(
        bench="users",
        title="A site of users who launch and wait",
        text="""\
Users who each launch one job on a full cluster, and then wait; RPCs of one user, by sdiag, and by `sacctmgr show stats` for the
database. The last column is not measured: it is the rate of the users measured, times what 200 users are of them. `sbatch --wait`
launches and waits in one: its launch is not counted apart. Nobody here shares a cache; all rv processes of one user share one.""",
    ),
    Section(
        bench="users_by_kind",
        title="The same by kind",
        text="RPCs of one user to the controller: for the launch, and for the time of waiting that was counted.",
    ),
    Section(
        bench="sweep",
        title="A sweep of 1,000 tasks",
        text="""\
5 % of them fail the first time and are run again by `rv rerun --failed`. RPCs are of the whole cluster, those of Slurm's own nodes too.""",
    ),
    Section(
        bench="calibration",
        title="Whether stated starts hold",
        text="""\
Random requests at random moments of an everyday load; of each plan one strategy is drawn and submitted. Each start is predicted from those
before it; a p50 should come true in about half of the cases, a p90 in 85 to 95 of a hundred.""",
    ),
    Section(
        bench="losers",
        title="Until the losers are gone",
        text="From the winner's start until no other job of the race is in the queue.",
    ),
    Section(
        bench="checkpoint_windows",
        title="Backfill windows",
        text="""\
From typing to the end of work that can resume, where every node is busy for five minutes or more but one, which Slurm has planned
for another job in four. The request asks for eight minutes: one job has to wait for a node, `--checkpoint` begins in the window. At
this scale a segment of three minutes is cut short by a buffer of 36 s and by the minute that Slurm may send a signal early; on a
real cluster, with windows of hours, that is little.""",
    ),
)


def page(found: Mapping[str, Any]) -> str:
    """Write the page of what was found."""
    parts = [_HEAD, *_machines(found)]
    for section in SECTIONS:
        figures = figures_of(found, section.bench)
        if figures:
            parts.append(f"## {section.title}\n\n{section.text}\n")
            parts.extend(_tables(figures))
    parts.extend(starts_section(_replays(found, "time_to_start", "starts")))
    parts.extend(finishes_section(_replays(found, "time_to_finish", "finishes")))
    return "\n".join(parts)


def _replays(found: Mapping[str, Any], bench: str, kind: str) -> list[Start]:
    return [Start(**row) for row in found["benches"].get(bench, {}).get(kind, ())]


def _machines(found: Mapping[str, Any]) -> Iterator[str]:
    """Name each machine that measured, with what it measured."""
    by_machine: dict[tuple[Any, ...], list[tuple[str, str]]] = {}
    for bench, kept in found["benches"].items():
        about = dict(kept["machine"])
        load = about.pop("load")
        by_machine.setdefault(tuple(about.values()), []).append((bench, load))
    for (cores, cpu, memory, slurm, python, date), benches in by_machine.items():
        loads = ", ".join(f"`{bench}` {load}" for bench, load in benches)
        yield (
            f"{date}: {cores} cores of {cpu}, {memory} GiB, Slurm {slurm}, Python {python}. Load average at the end of each"
            f" bench: {loads}.\n"
        )


def _tables(figures: Sequence[Figure]) -> Iterator[str]:
    """Write what stands alone as rows, and the rest as one table with a column for each name."""
    alone = [figure for figure in figures if not figure.table]
    if alone:
        rows = [(f.what, _found(f), _target(f)) for f in alone]
        yield table(("what", "found", "target"), rows)
    beside = [figure for figure in figures if figure.table]
    columns = list(dict.fromkeys(figure.table for figure in beside))
    cells = {(figure.what, figure.table): _number(figure.value) for figure in beside}
    names = dict.fromkeys(figure.what for figure in beside)
    if beside:
        rows = [(name, *(cells.get((name, column), "0") for column in columns)) for name in names]
        yield table((beside[0].unit, *columns), rows)


def _found(figure: Figure) -> str:
    """Write a value, with more digits where it misses a target that it would be rounded to."""
    if figure.most is not None and not figure.is_met and round(figure.value, 2) <= figure.most:
        return f"{figure.value:.4f} {figure.unit}"
    return _amount(figure.value, figure.unit)


def _target(figure: Figure) -> str:
    if figure.most is None:
        return ""
    verdict = "met" if figure.is_met else "missed"
    return f"at most {_amount(figure.most, figure.unit)}: {verdict}"


def _amount(value: float, unit: str) -> str:
    return f"{_number(value)} {unit}"


def _number(value: float) -> str:
    """Three digits that count, and never a power of ten."""
    is_whole = value == int(value)
    digits = 0 if abs(value) >= 100 or is_whole else 1 if abs(value) >= 10 else 2
    if abs(value) < 0.1 and value:
        digits = 3
    return f"{value:,.{digits}f}"


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")
