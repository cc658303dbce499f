"""How long until the command starts: rv against four ways of asking Slurm by hand, and submitit.

Each contender meets the same seeded load on a sandbox that was emptied: from the moment of typing to
the first start of the command, at most a horizon. Root only: the load is other users'.

    tests/bench/run.sh time_to_start                      # a few seeds a scenario
    python tests/bench/time_to_start.py --seeds 20 --sandboxes 4 --results starts.jsonl
    python tests/bench/time_to_start.py --table starts.jsonl
"""

import argparse
import dataclasses
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from rv.sandbox.schema import load_profile
from tests.bench.cluster import cluster
from tests.bench.contenders import CONTENDERS, at_the_start, type_lines
from tests.bench.load import gpus_per_node, shape_of
from tests.bench.paired import Start, compare, differences
from tests.bench.replay import UnsettledError, Yard
from tests.bench.results import keep
from tests.bench.rivals import installed
from tests.bench.scenarios import SCENARIOS, Scenario, draw

PROFILE: Final = Path(__file__).with_name("starts.yaml")
TYPED_AFTER: Final = 7.0
"""Seconds from the load's first job to the typing, so that holes are equally long for all; and up to
a scheduler cycle more, by chance: at a fixed one each contender would meet its own fixed phase."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One scenario and seed, for all contenders in turn."""

    scenario: str
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What one sandbox has to do."""

    number: int
    tasks: tuple[Task, ...]
    horizon: float
    results: str


def replay(
    yard: Yard, task: Task, contender: str, wanted: Scenario, horizon: float
) -> dict[str, object]:
    """Empty the sandbox, load it, type, and wait for the command; the evidence comes along."""
    yard.empty()
    began = time.time()
    later = yard.load(wanted.jobs)
    lines = CONTENDERS[contender](yard, wanted)
    settled = TYPED_AFTER if wanted.jobs else 0.0
    phase = Random(f"{task}/{contender}").uniform(0, scheduler_cycle())
    time.sleep(max(0.0, began + settled + phase - time.time()))
    queue = yard.queue()
    typed = type_lines(yard, lines)
    yard.send_later(later, typed.at)
    stamp = yard.first_start(typed.at + horizon)
    start = Start(
        scenario=task.scenario,
        seed=task.seed,
        contender=contender,
        seconds=min(horizon, stamp.at - typed.at) if stamp else horizon,
        censored=stamp is None,
    )
    return dataclasses.asdict(start) | {
        "typed_after": typed.at - began,
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
        yard.furnish()
        yard.no_share_left()
        for task in share.tasks:
            wanted = draw(task.scenario, task.seed, shape_of(profile), gpus_per_node(profile))
            contenders = at_the_start()
            for contender in Random(str(task)).sample(contenders, len(contenders)):
                _note(share, _patient_replay(yard, task, contender, wanted, share.horizon))
        yard.empty()


def _patient_replay(
    yard: Yard, task: Task, contender: str, wanted: Scenario, horizon: float
) -> dict[str, object]:
    """A load that did not settle is no result: it is made anew, twice at most."""
    for _ in range(2):
        try:
            return replay(yard, task, contender, wanted, horizon)
        except UnsettledError as reason:
            print(f"once more: {task}: {contender}: {reason}", file=sys.stderr, flush=True)
    return replay(yard, task, contender, wanted, horizon)


def _note(share: Share, result: dict[str, object]) -> None:
    with Path(share.results).open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    late = " (horizon)" if result["censored"] else ""
    print(
        f"{share.number}: {result['scenario']}, seed {result['seed']}, {result['contender']}:"
        f" {result['seconds']:.1f} s{late} {result['where']}",
        file=sys.stderr,
        flush=True,
    )


def read_starts(path: Path) -> list[Start]:
    """The replays of a results file."""
    names = [each.name for each in dataclasses.fields(Start)]
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [Start(**{name: row[name] for name in names}) for row in rows]


def print_table(starts: Sequence[Start], cycle: float) -> bool:
    """Print every scenario's waits and differences; whether rv is no worse anywhere."""
    print(f"{'SCENARIO':20}{'CONTENDER':16}{'MEAN':>6}{'MEDIAN':>8}{'LATE':>6}", end="")
    print(f"{'RV MINUS IT':>13}{'UPPER 95%':>11}  RV IS")
    holds = True
    for scenario in dict.fromkeys(start.scenario for start in starts):
        for contender in CONTENDERS:
            mine = [s for s in starts if (s.scenario, s.contender) == (scenario, contender)]
            if not mine:
                continue
            waits = [start.seconds for start in mine]
            late = sum(start.censored for start in mine)
            row = f"{scenario:20}{contender:16}{statistics.fmean(waits):6.1f}"
            row += f"{statistics.median(waits):8.1f}{late:6}"
            if contender != "rv":
                found = compare(differences(starts, scenario, "rv", contender), cycle)
                row += f"{found.mean:+13.2f}{found.upper:+11.2f}  {found.verdict}"
                holds = holds and found.verdict.holds
            print(row)
    seeds = {
        s: sorted({x.seed for x in starts if x.scenario == s}) for s in {x.scenario for x in starts}
    }
    print(
        f"seconds; {len(starts)} replays; seeds "
        + "; ".join(f"{k}: {_span(v)}" for k, v in sorted(seeds.items()))
    )
    print(f"one scheduler cycle: {cycle:g} s; LATE: not started by the horizon, which then counts")
    return holds


def _span(seeds: Sequence[int]) -> str:
    whole = list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]}-{seeds[-1]}" if list(seeds) == whole else ",".join(map(str, seeds))


def scheduler_cycle() -> float:
    """The longer of the two passes of the sandbox's scheduler, in seconds."""
    settings = dict(load_profile(str(PROFILE)).scheduler)
    return max(float(settings["sched_interval"]), float(settings["bf_interval"]))


def shares(options: argparse.Namespace, results: Path) -> Iterable[Share]:
    """Deal scenarios and seeds out, each sandbox some of each scenario."""
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    tasks = [Task(scenario=name, seed=seed) for seed in seeds for name in options.scenarios]
    Random(0).shuffle(tasks)  # eight sandboxes would have one of the eight loads each
    for number in range(options.sandboxes):
        yield Share(
            number=number,
            tasks=tuple(tasks[number :: options.sandboxes]),
            horizon=options.horizon,
            results=str(results),
        )


def main() -> int:
    """Run what the options say; 1 where rv is worse than a rival somewhere."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4, help="of each scenario")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--sandboxes", type=int, default=3, help="at once")
    parser.add_argument("--horizon", type=float, default=90.0, help="seconds")
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument(
        "--results", type=Path, default=Path("time_to_start.jsonl"), help="added to"
    )
    parser.add_argument("--table", type=Path, help="only print the table of such a file")
    options = parser.parse_args()
    if options.table:
        keep("time_to_start", "starts", map(dataclasses.asdict, read_starts(options.table)))
        return 0 if print_table(read_starts(options.table), scheduler_cycle()) else 1
    if os.getuid():
        parser.error("root only: the load is other users'")
    results = options.results or Path(tempfile.mkdtemp(prefix="rvb-")) / "time_to_start.jsonl"
    began = time.monotonic()
    dealt = [share for share in shares(options, results) if share.tasks]
    spawn = multiprocessing.get_context("spawn")
    with installed(["submitit"]), spawn.Pool(len(dealt)) as pool:
        pool.map(work, dealt, chunksize=1)
    print(f"{(time.monotonic() - began) / 60:.0f} minutes on {len(dealt)} sandboxes; {results}")
    keep("time_to_start", "starts", map(dataclasses.asdict, read_starts(results)))
    return 0 if print_table(read_starts(results), scheduler_cycle()) else 1


if __name__ == "__main__":
    sys.exit(main())
