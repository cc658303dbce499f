"""The page's parts about replays of seeded loads: how long to the start, and to the end.

Pure.
"""

import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from tests.bench.markdown import table
from tests.bench.paired import BETTER, WORSE, Start, compare, differences

CYCLE_S: Final = 3.0
"""The sandbox's scheduler cycle (tests/bench/starts.yaml), the tolerance of time to start."""

SEEDS_WANTED: Final = 20

_STARTS: Final = """\
From typing to the first start of the command, under loads that are the same for all by seed; a start that had not come by the horizon
counts as the horizon. `best partition` is one sbatch where most GPUs are idle, `all partitions` one with `-p` and all of
them, `every strategy` an sbatch for each strategy of rv's plan, `first fit` one sbatch in the first partition that has room on a
node, `submitit` its job in all partitions. The user has no fair share left. To start, ask and plan takes rv a part of a second on a
quiet machine, seconds on one that has far more to do than it has cores, and all of that is part of its wait. It is the
floor of what rv can do beside a rival that asks nothing first: a GPU that another's job takes meanwhile is gone, as in three of the
first twenty seeds of `like hpc`.

Five loads are made for what they are called. Three are shaped after published workloads, and nothing of a trace itself is in
them: `like hpc` draws sizes, run times and arrivals by Lublin and Feitelson's model of logs of the Parallel Workloads Archive (JPDC
63(11), 2003); `like philly` draws durations as Gavel's program does after Microsoft's trace (Narayanan et al., OSDI 2020; Jeon et al., ATC 2019);
`like helios` has the mean and median duration that are cited from Hu et al. (SC 2021), not checked against the trace. Synthesised are: the lognormal shape of helios' durations and
how sizes spread, Poisson arrivals of the last two, partitions, limits, no times of day, and the scale: 40 GPUs, a mean job of 45 s cut at 165 s,
about 95 % of the GPUs asked for (80 to 90 % in `like hpc`, whose gaps have a heavy tail). `tests/bench/traces.py` says it all.
"""


_FINISHES: Final = """\
From typing to the end of the work, under the same loads. The work is 160 s of an a100-80, which takes 20 to 120 s on a node, depending
on its GPUs; the command may run on 1 to 8. What a model really does here is no value of rv's: rates and scaling loss are others than
those that rv plans with. `best partition` and `all partitions` ask for a whole node, `first fit` for as many GPUs as are idle at that
moment, each with the time that the slowest of its partitions takes; `every strategy` is an sbatch for each strategy of rv's plan by start.
What had not ended by the horizon of 420 s counts as the horizon.
"""


def starts_section(starts: Sequence[Start]) -> list[str]:
    """Return the part about time to start; nothing where none was measured."""
    return [f"## Time to start\n\n{_STARTS}", *_starts(starts)] if starts else []


def finishes_section(finishes: Sequence[Start]) -> list[str]:
    """Return the part about time to finish; nothing where none was measured."""
    return [f"## Time to finish\n\n{_FINISHES}", *_finishes(finishes)] if finishes else []


def _finishes(finishes: Sequence[Start]) -> Iterator[str]:
    ours = next(finish.contender for finish in finishes if finish.contender.startswith("rv"))
    rivals = sorted({finish.contender for finish in finishes} - {ours})
    scenarios = list(dict.fromkeys(finish.scenario for finish in finishes))
    yield f"{_span(finishes, scenarios)} Mean seconds, with how many had not ended by the horizon:\n"
    rows = [(name, *(_mean(finishes, name, who) for who in (ours, *rivals))) for name in scenarios]
    yield table(("load", f"`{ours}`", *rivals), rows)
    yield (
        "rv's mean over each one's. The targets are at most"
        f" {WORSE:g} of any, and at most {BETTER:g} of the best in two loads or more:\n"
    )
    shares = {name: [_share(finishes, name, ours, who) for who in rivals] for name in scenarios}
    yield table(("load", *rivals), [(name, *map(_ratio, of)) for name, of in shares.items()])
    better = [name for name, of in shares.items() if max(of) <= BETTER]
    yield (
        f"Better than the best rival by a fifth or more in {len(better)} of {len(scenarios)} loads:"
        f" {'met' if len(better) > 1 else 'missed'}.\n"
    )


def _span(replays: Sequence[Start], scenarios: Sequence[str]) -> str:
    """Say how many seeds there were, and whether they were too few."""
    seeds = [len({each.seed for each in replays if each.scenario == name}) for name in scenarios]
    few, many = min(seeds), max(seeds)
    span = f"{few} seeds" if few == many else f"{few} to {many} seeds"
    missed = ", so this is missed: few seeds show little" if few < SEEDS_WANTED else ""
    return f"{len(replays)} replays, {span} a load; {SEEDS_WANTED} were wanted{missed}."


def _share(finishes: Sequence[Start], scenario: str, ours: str, rival: str) -> float:
    means = [
        statistics.fmean(
            f.seconds for f in finishes if (f.scenario, f.contender) == (scenario, who)
        )
        for who in (ours, rival)
    ]
    return means[0] / means[1]


def _ratio(share: float) -> str:
    verdict = "better" if share <= BETTER else "met" if share <= WORSE else "missed"
    return f"{share:.2f}: {verdict}"


def _starts(starts: Sequence[Start]) -> Iterator[str]:
    contenders = list(dict.fromkeys(start.contender for start in starts if start.contender != "rv"))
    contenders.sort()
    scenarios = list(dict.fromkeys(start.scenario for start in starts))
    means = [
        (name, *(_mean(starts, name, who) for who in ("rv", *contenders))) for name in scenarios
    ]
    yield (
        f"{_span(starts, scenarios)} Mean seconds, with how many had not started by the horizon:\n"
    )
    yield table(("load", "rv", *contenders), means)
    yield (
        "rv's mean difference from each in seconds, less than nothing where rv was sooner. The target is to be no worse than"
        f" one scheduler cycle ({CYCLE_S:g} s), by the upper 95 % bound of paired differences:\n"
    )
    rows = [(name, *(_difference(starts, name, who) for who in contenders)) for name in scenarios]
    yield table(("load", *contenders), rows)


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
