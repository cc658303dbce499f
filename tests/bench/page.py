"""Make the page of the documentation of what the benches kept. No number of it is typed by hand.

python tests/bench/page.py            # docs/benchmark.md of tests/bench/results.json
"""

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.paired import Start, compare, differences
from tests.bench.results import Figure, figures_of

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = Path(__file__).with_name("results.json")
PAGE: Final = ROOT / "docs" / "benchmark.md"
CYCLE_S: Final = 3.0
"""The sandbox's scheduler cycle (tests/bench/starts.yaml), the tolerance of time to start."""

SEEDS_WANTED: Final = 20

_HEAD: Final = """\
# Benchmark

What `rv` costs and what it gains, beside other ways to do the same on the same machine in the same run. Everything
runs on a sandbox: a real Slurm on one machine, with nodes and GPUs that are made up. The machine was shared with other work while these
figures were taken, so read ratios, not seconds. `tests/bench/run.sh --page` measures again and writes this page; no
number on it is typed by hand.
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
_STARTS: Final = """\
From typing to the first start of the command, under loads that are the same for all by seed; a start that had not come by the horizon
counts as the horizon. `best partition` is one sbatch where most GPUs are idle, `all partitions` one with `-p` and all of
them, `every strategy` an sbatch for each strategy of rv's plan, `first fit` one sbatch in the first partition that has room on a
node, `submitit` its job in all partitions. The user has no fair share left. The machine had far more to do than it has cores: to
start, ask and plan takes rv a part of a second on a quiet one and seconds here, and all of that is part of its wait.

Five loads are made for what they are called. Three are shaped after published workloads, and nothing of a trace itself is in
them: `like hpc` draws sizes, run times and arrivals by Lublin and Feitelson's model of logs of the Parallel Workloads Archive (JPDC
63(11), 2003); `like philly` draws durations as Gavel's program does after Microsoft's trace (Narayanan et al., OSDI 2020; Jeon et al., ATC 2019);
`like helios` has the mean and median duration that are cited from Hu et al. (SC 2021), not checked against the trace. Synthesised are: the lognormal shape of helios' durations and
how sizes spread, Poisson arrivals of the last two, partitions, limits, no times of day, and the scale: 40 GPUs, a mean job of 45 s cut at 165 s,
about 95 % of the GPUs asked for (80 to 90 % in `like hpc`, whose gaps have a heavy tail). `tests/bench/traces.py` says it all.
"""


def page(found: Mapping[str, Any]) -> str:
    """Write the page of what was found."""
    parts = [_HEAD, *_machines(found)]
    for section in SECTIONS:
        figures = figures_of(found, section.bench)
        if figures:
            parts.append(f"## {section.title}\n\n{section.text}\n")
            parts.extend(_tables(figures))
    starts = [Start(**row) for row in found["benches"].get("time_to_start", {}).get("starts", ())]
    if starts:
        parts.append(f"## Time to start\n\n{_STARTS}")
        parts.extend(_starts(starts))
    return "\n".join(parts)


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
        yield _table(("what", "found", "target"), rows)
    beside = [figure for figure in figures if figure.table]
    columns = list(dict.fromkeys(figure.table for figure in beside))
    cells = {(figure.what, figure.table): _number(figure.value) for figure in beside}
    names = dict.fromkeys(figure.what for figure in beside)
    if beside:
        rows = [(name, *(cells.get((name, column), "0") for column in columns)) for name in names]
        yield _table((beside[0].unit, *columns), rows)


def _starts(starts: Sequence[Start]) -> Iterator[str]:
    contenders = list(dict.fromkeys(start.contender for start in starts if start.contender != "rv"))
    contenders.sort()
    scenarios = list(dict.fromkeys(start.scenario for start in starts))
    means = [
        (name, *(_mean(starts, name, who) for who in ("rv", *contenders))) for name in scenarios
    ]
    seeds = {name: len({s.seed for s in starts if s.scenario == name}) for name in scenarios}
    few, many = min(seeds.values()), max(seeds.values())
    span = f"{few} seeds" if few == many else f"{few} to {many} seeds"
    yield (
        f"{len(starts)} replays, {span} a load; {SEEDS_WANTED} were wanted"
        f"{', so this is missed: few seeds show little' if few < SEEDS_WANTED else ''}. Mean seconds, with how"
        " many had not started by the horizon:\n"
    )
    yield _table(("load", "rv", *contenders), means)
    yield (
        "rv's mean difference from each in seconds, less than nothing where rv was sooner. The target is to be no worse than"
        f" one scheduler cycle ({CYCLE_S:g} s), by the upper 95 % bound of paired differences:\n"
    )
    rows = [(name, *(_difference(starts, name, who) for who in contenders)) for name in scenarios]
    yield _table(("load", *contenders), rows)


def _mean(starts: Sequence[Start], scenario: str, contender: str) -> str:
    mine = [s for s in starts if (s.scenario, s.contender) == (scenario, contender)]
    if not mine:
        return ""
    late = sum(start.censored for start in mine)
    mean = statistics.fmean(start.seconds for start in mine)
    return f"{mean:.1f}{f' ({late} late)' if late else ''}"


def _difference(starts: Sequence[Start], scenario: str, rival: str) -> str:
    values = differences(starts, scenario, "rv", rival)
    if not values:
        return ""
    found = compare(values, CYCLE_S)
    return f"{found.mean:+.1f}: {'met' if found.verdict.holds else 'missed'}, {found.verdict}"


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


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")
