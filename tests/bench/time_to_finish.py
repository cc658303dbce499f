"""How long until the result: `rv up --for finish` against four ways of asking Slurm by hand.

Each contender meets the same seeded load on an emptied sandbox, as in time_to_start.py. The command
computes for as long as its GPUs take for the work (tests/bench/finishers.py). What counts is from
the moment of typing to the end of the job that starts first; nothing later changes that end, so
that a replay is over when the job has started (`--to-the-end` waits, and checks). Root only.

    python tests/bench/time_to_finish.py --seeds 2
    python tests/bench/time_to_finish.py --seeds 20 --sandboxes 4 --results finishes.jsonl
    python tests/bench/time_to_finish.py --table finishes.jsonl
"""

import argparse
import dataclasses
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from rv.sandbox.schema import load_profile
from tests.bench.cluster import cluster
from tests.bench.contenders import type_lines
from tests.bench.finishers import FINISHERS, OURS, RIVALS, program
from tests.bench.load import gpus_per_node, shape_of
from tests.bench.paired import BETTER, WORSE, Start, differences, upper_bound
from tests.bench.replay import UnsettledError, Yard
from tests.bench.results import keep
from tests.bench.scenarios import SCENARIOS, Scenario, draw
from tests.bench.time_to_start import PROFILE, TYPED_AFTER, Task, read_starts, scheduler_cycle


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What one sandbox has to do; `horizon` is in seconds from the typing to the end."""

    number: int
    tasks: tuple[Task, ...]
    horizon: float
    results: str
    to_the_end: bool
    contenders: tuple[str, ...]


def furnish(yard: Yard) -> None:
    """Lay out the yard, with a program that computes."""
    yard.furnish()
    path = yard.home / "bin" / "torchrun"
    path.write_text(program(str(yard.stamps)), encoding="utf-8")


def replay(
    yard: Yard, task: Task, contender: str, wanted: Scenario, share: Share
) -> dict[str, object]:
    """Empty the sandbox, load it, type, and wait for the command; the evidence comes along."""
    yard.empty()
    began = time.time()
    later = yard.load(wanted.jobs)
    lines = FINISHERS[contender](yard)
    settled = TYPED_AFTER if wanted.jobs else 0.0
    phase = Random(f"{task}/{contender}").uniform(0, scheduler_cycle())
    time.sleep(max(0.0, began + settled + phase - time.time()))
    queue = yard.queue()
    typed = type_lines(yard, lines)
    yard.send_later(later, typed.at)
    stamp = yard.first_start(typed.at + share.horizon)
    seconds = stamp.at + stamp.takes_s - typed.at if stamp else share.horizon
    if stamp and share.to_the_end:
        time.sleep(max(0.0, typed.at + seconds - time.time()))
    result = Start(
        scenario=task.scenario,
        seed=task.seed,
        contender=contender,
        seconds=seconds,
        censored=stamp is None,
    )
    return dataclasses.asdict(result) | {
        "started": stamp.at - typed.at if stamp else None,
        "where": f"{stamp.partition} {stamp.nodes}" if stamp else "",
        "lines": [" ".join(line) for line in lines],
        "said": typed.said(),
        "queue": queue,
    }


def work(share: Share) -> None:
    """Do a share on a sandbox of its own, and write each replay's line when it is there."""
    profile = load_profile(str(PROFILE))
    with cluster(str(PROFILE)) as target:
        yard = Yard(target=target, home=Path(os.environ["XDG_STATE_HOME"]).parent / "yard")
        furnish(yard)
        yard.no_share_left()
        for task in share.tasks:
            wanted = draw(task.scenario, task.seed, shape_of(profile), gpus_per_node(profile))
            for contender in Random(str(task)).sample(share.contenders, len(share.contenders)):
                _note(share, _patient_replay(yard, task, contender, wanted, share))
        yard.empty()


def _patient_replay(
    yard: Yard, task: Task, contender: str, wanted: Scenario, share: Share
) -> dict[str, object]:
    """A load that did not settle is no result: it is made anew, twice at most."""
    for _ in range(2):
        try:
            return replay(yard, task, contender, wanted, share)
        except UnsettledError as reason:
            print(f"once more: {task}: {contender}: {reason}", file=sys.stderr, flush=True)
    return replay(yard, task, contender, wanted, share)


def _note(share: Share, result: dict[str, object]) -> None:
    with Path(share.results).open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    print(
        f"{share.number}: {result['scenario']}, seed {result['seed']}, {result['contender']}:"
        f" {result['seconds']:.1f} s {result['where']}",
        file=sys.stderr,
        flush=True,
    )


def print_table(finishes: Sequence[Start]) -> bool:
    """Print every scenario's means and ratios; whether rv keeps what it promises."""
    print(f"{'SCENARIO':20}{'CONTENDER':18}{'SEEDS':>6}{'MEAN':>7}{'MEDIAN':>8}{'LATE':>6}", end="")
    print(f"{'RV / IT':>9}{'RV MINUS IT':>13}{'UPPER 95%':>11}")
    ratios: dict[str, dict[str, float]] = {}
    finishes = _whole_seeds(finishes)
    for scenario in dict.fromkeys(finish.scenario for finish in finishes):
        means: dict[str, float] = {}
        for contender in dict.fromkeys(finish.contender for finish in finishes):
            of = [f for f in finishes if (f.scenario, f.contender) == (scenario, contender)]
            means[contender] = statistics.fmean(f.seconds for f in of)
            row = f"{scenario:20}{contender:18}{len(of):6}{means[contender]:7.1f}"
            row += f"{statistics.median(f.seconds for f in of):8.1f}{sum(f.censored for f in of):6}"
            if contender != OURS:
                found = differences(finishes, scenario, OURS, contender)
                row += f"{means[OURS] / means[contender]:9.2f}{statistics.fmean(found):+13.1f}"
                row += f"{upper_bound(found):+11.1f}"
            print(row)
        ratios[scenario] = {rival: means[OURS] / means[rival] for rival in RIVALS if rival in means}
    return _print_verdict(ratios)


def _whole_seeds(finishes: Sequence[Start]) -> list[Start]:
    """Leave out seeds that were broken off, and order the contenders as they are listed."""
    seen = {(f.scenario, f.seed, f.contender) for f in finishes}
    took_part = [name for name in FINISHERS if any(f.contender == name for f in finishes)]
    whole = [
        finish
        for finish in finishes
        if all((finish.scenario, finish.seed, name) in seen for name in took_part)
    ]
    return sorted(whole, key=lambda finish: took_part.index(finish.contender))


def _print_verdict(ratios: dict[str, dict[str, float]]) -> bool:
    """Say where rv is worst and best, each against the rival that does best there."""
    worst = {scenario: max(of.values()) for scenario, of in ratios.items()}
    ordered = sorted(worst, key=lambda scenario: worst[scenario])
    print(
        f"mean finish over the best rival's: best in {ordered[0]}: {worst[ordered[0]]:.2f},",
        end=" ",
    )
    print(f"worst in {ordered[-1]}: {worst[ordered[-1]]:.2f}")
    better = [scenario for scenario in ordered if worst[scenario] <= BETTER]
    print(
        f"better than the best rival by 20 % or more in {len(better)}: {', '.join(better) or '-'}"
    )
    late = [scenario for scenario in ordered if worst[scenario] > WORSE]
    print(f"worse than a rival by more than 2 % in {len(late)}: {', '.join(late) or '-'}")
    return len(better) > 1 and not late


def main() -> int:
    """Run what the options say; 1 where rv does not keep what it promises."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2, help="of each scenario")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--sandboxes", type=int, default=1, help="at once")
    parser.add_argument("--horizon", type=float, default=420.0, help="seconds")
    parser.add_argument("--to-the-end", action="store_true", help="wait for each command's end")
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--contenders", nargs="+", choices=FINISHERS, default=[OURS, *RIVALS])
    parser.add_argument("--results", type=Path, default=Path("time_to_finish.jsonl"))
    parser.add_argument("--table", type=Path, help="only print the table of such a file")
    options = parser.parse_args()
    if options.table:
        return _report(read_starts(options.table))
    if os.getuid():
        parser.error("root only: the load is other users'")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    tasks = [Task(scenario=name, seed=seed) for seed in seeds for name in options.scenarios]
    shares = [
        Share(
            number=number,
            tasks=tuple(tasks[number :: options.sandboxes]),
            horizon=options.horizon,
            results=str(options.results),
            to_the_end=options.to_the_end,
            contenders=tuple(options.contenders),
        )
        for number in range(min(options.sandboxes, len(tasks)))
    ]
    with multiprocessing.get_context("spawn").Pool(len(shares)) as pool:
        pool.map(work, shares, chunksize=1)
    return _report(read_starts(options.results))


def _report(finishes: Sequence[Start]) -> int:
    """Keep whole seeds for the page, and print the table."""
    keep("time_to_finish", "finishes", map(dataclasses.asdict, _whole_seeds(finishes)))
    return 0 if print_table(finishes) else 1


if __name__ == "__main__":
    sys.exit(main())
