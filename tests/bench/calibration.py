"""Do strategies start when rv says? Random requests on sandboxes under a seeded everyday load.

At random moments a snapshot is taken, a random request planned, one strategy of the plan drawn, and
exactly its job submitted. Wanted: of `idle` 95 % start within 30 s; of `hole` 80 % within the
stated window; `planned` is printed with its error. Then how often the p50 and p90 held that rv would
have stated from the trials before. Load and requests: tests/bench/traffic.py.

    tests/bench/run.sh calibration                        # a few minutes
    python tests/bench/calibration.py --sandboxes 4 --minutes 15 --results calibration.jsonl
    python tests/bench/calibration.py --history           # of your own races on this cluster
"""

import argparse
import dataclasses
import json
import multiprocessing
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final

from rv.models.performance import Source
from rv.models.plan import Strategy
from rv.models.request import Request
from rv.render.script import sbatch_line
from rv.sandbox.schema import load_profile
from rv.workflow.command_line import KnownFiles, from_line
from rv.workflow.launch import prepare
from rv.workflow.locate import locate
from rv.workflow.past import load_past
from tests.bench.cluster import cluster
from tests.bench.contenders import COMMAND
from tests.bench.load import LoadJob, gpus_per_node, sbatch_words, shape_of
from tests.bench.quantiles import Held, as_past, held, table
from tests.bench.replay import Yard
from tests.bench.results import Figure, note
from tests.bench.traffic import Question, arrivals, questions
from tests.bench.trials import HOLE_WANTED, IDLE_WANTED, PROMPT, Trial, errors, kept, pick

PROFILE: Final = Path(__file__).with_name("starts.yaml")
WARM_UP: Final = 90.0
"""Seconds of load before the first question: the queues have formed by then."""
DRAIN: Final = 150.0
"""Seconds of load after the last question, in which what waits may start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """What one sandbox goes through."""

    seed: int
    seconds: float
    every: float
    busy: float
    results: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A submitted strategy; `at` is the snapshot's moment, in seconds since the epoch."""

    strategy: Strategy
    question: Question
    job_id: str
    at: float
    queue: str


@dataclass(slots=True)
class Watcher:
    """Lets the load arrive, asks the questions, and keeps what was asked."""

    yard: Yard
    began: float
    asked: list[Asked] = field(default_factory=list)
    unknown: int = 0
    _count: int = 0

    def meet(self, event: LoadJob | Question) -> None:
        """Wait for the moment of an event, and do it."""
        time.sleep(max(0.0, self.began + event.after - time.time()))
        if isinstance(event, LoadJob):
            self._count += 1
            self.yard.slurm(*sbatch_words(event, self._count))
        else:
            self._ask(event)

    def _ask(self, question: Question) -> None:
        self.yard.target.cache.forget()
        at = time.time()
        queue = self.yard.queue()
        request = Request(
            gpus=question.gpus,
            walltime=timedelta(minutes=question.minutes),
            walltime_given=True,
            command=from_line(COMMAND, KnownFiles(is_file=lambda name: name == "train.py")),
        )
        made = prepare(request, self.yard.target, str(self.yard.work), dict(os.environ), at)
        strategy = pick(made.plan.strategies, question.pick)
        if strategy is None:
            self.unknown += 1
            return
        job = self.yard.submit(shlex.split(sbatch_line(strategy)))
        self.asked.append(
            Asked(strategy=strategy, question=question, job_id=job, at=at, queue=queue)
        )

    def trials(self, now: float) -> Iterator[tuple[Asked, Trial]]:
        """What became of everything that was asked."""
        starts = self.yard.starts_by_job()
        for one in self.asked:
            estimate = one.strategy.estimate
            start = starts.get(one.job_id)
            yield (
                one,
                Trial(
                    strategy=one.strategy.id,
                    source=estimate.source,
                    predicted=estimate.start_in.total_seconds() if estimate.start_in else 0.0,
                    window=estimate.window.total_seconds() if estimate.window else None,
                    waited=start - one.at if start else None,
                    watched=now - one.at,
                ),
            )


def go_through(stretch: Stretch) -> int:
    """Live through a stretch, write its trials, and return how many plans had no estimate."""
    profile = load_profile(str(PROFILE))
    dice = Random(stretch.seed)
    end = WARM_UP + stretch.seconds
    load = arrivals(dice, shape_of(profile), gpus_per_node(profile), end + DRAIN, busy=stretch.busy)
    events = [*load, *questions(dice, WARM_UP, end, stretch.every)]
    with cluster(str(PROFILE)) as target:
        yard = Yard(target=target, home=Path(os.environ["XDG_STATE_HOME"]).parent / "yard")
        yard.furnish()
        yard.no_share_left()
        watcher = Watcher(yard=yard, began=time.time())
        for event in sorted(events, key=lambda each: each.after):
            watcher.meet(event)
        found = list(watcher.trials(time.time()))
        yard.empty()
    with Path(stretch.results).open("a", encoding="utf-8") as file:
        for one, trial in found:
            file.write(json.dumps(_row(stretch, one, trial)) + "\n")
    return watcher.unknown


def _row(stretch: Stretch, one: Asked, trial: Trial) -> dict[str, object]:
    about = {"seed": stretch.seed, "asked_after": one.question.after, "gpus": one.question.gpus}
    about |= {"minutes": one.question.minutes, "line": sbatch_line(one.strategy)}
    return dataclasses.asdict(trial) | about | {"queue": one.queue}


def read_trials(path: Path) -> list[Trial]:
    """The trials of a results file."""
    names = [each.name for each in dataclasses.fields(Trial)]
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        Trial(**{name: row[name] for name in names} | {"source": Source(row["source"])})
        for row in rows
    ]


def print_report(trials: Sequence[Trial]) -> bool:
    """Print how often each source kept its word; whether that is as often as wanted."""
    holds = True
    said = {
        Source.IDLE: (f"start within {PROMPT:.0f} s", IDLE_WANTED),
        Source.BACKFILL_WINDOW: ("start inside the stated window", HOLE_WANTED),
    }
    for source, (what, wanted) in said.items():
        found = kept(trials, source)
        waits = sorted(t.waited for t in trials if t.source is source and t.waited is not None)
        holds = holds and found.share >= wanted
        print(f"{source}: {found.kept} of {found.decided} {what}:", end=" ")
        print(f"{found.share:.1%} (want >= {wanted:.0%}){_spread(waits, ' waited')}")
    off = errors(trials)
    still = Counter(t.source for t in trials if t.waited is None)
    print(f"planned: {len(off)} started, {still[Source.PLANNED]} still waited at the end;", end=" ")
    print(f"real minus planned start:{_spread(off, '')}{_spread(sorted(map(abs, off)), '; size')}")
    stated = held(as_past(trials))
    print(table(stated))
    note("calibration", (figure for row in stated for figure in _figures(row)))
    return holds


def _figures(row: Held) -> Iterator[Figure]:
    what = f"`{row.source}`, stated by {'earlier starts' if row.learned else 'the prior'}"
    yield Figure(what=what, value=row.starts, unit="starts", table="all")
    for name, came in (("by its p50, %", row.by_p50), ("by its p90, %", row.by_p90)):
        yield Figure(what=what, value=100 * came / row.starts, unit="starts", table=name)


def _spread(values: Sequence[float], what: str) -> str:
    if not values:
        return ""
    cuts = (
        statistics.quantiles(values, n=10, method="inclusive") if len(values) > 1 else [*values] * 9
    )
    return f"{what} p10 {cuts[0]:+.1f} s, median {cuts[4]:+.1f} s, p90 {cuts[8]:+.1f} s"


def main() -> int:
    """Run what the options say; 1 where an estimate is worse than wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=4.0, help="of questions, on each sandbox")
    parser.add_argument(
        "--sandboxes", type=int, default=3, help="at once, each with a seed of its own"
    )
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=8.0, help="seconds between questions")
    parser.add_argument("--busy", type=float, default=0.8, help="share of the GPUs the load wants")
    parser.add_argument("--results", type=Path, help="a file that the trials are added to")
    parser.add_argument("--report", type=Path, help="only print the report of such a file")
    parser.add_argument(
        "--history",
        nargs="?",
        const="",
        metavar="CLUSTER",
        help="only the p50 and p90 of your races",
    )
    options = parser.parse_args()
    if options.history is not None:
        print(table(held(load_past(locate(options.history, dict(os.environ)).cache))))
        return 0
    if options.report:
        return 0 if print_report(read_trials(options.report)) else 1
    if os.getuid():
        parser.error("root only: the load is another user's")
    results = options.results or Path(tempfile.mkdtemp(prefix="rvb-")) / "calibration.jsonl"
    stretches = [
        Stretch(
            seed=options.first_seed + number,
            seconds=60 * options.minutes,
            every=options.every,
            busy=options.busy,
            results=str(results),
        )
        for number in range(options.sandboxes)
    ]
    with multiprocessing.get_context("spawn").Pool(len(stretches)) as pool:
        unknown = sum(pool.map(go_through, stretches, chunksize=1))
    holds = print_report(read_trials(results))
    print(f"{options.sandboxes * options.minutes:g} minutes of load, seeds", end=" ")
    print(
        f"{stretches[0].seed}-{stretches[-1].seed}; {unknown} plans without any estimate; {results}"
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
