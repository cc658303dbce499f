"""Play scenarios on several clusters at once, on each one after the other."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from typing import Final

import pytest
import yaml

from rv import sandbox
from tests.faults.accounting import Row, count_outcome
from tests.faults.scenarios.registry import Scenario
from tests.faults.world import PATIENCE_S, TINY, World, do_nothing
from tests.ssh.login_node import OVER

Prepare = Callable[[World], None]
PROFILE: Final = {
    **TINY,
    "cluster": "runner",
    "cred_expire": 5,
    "slurm_conf": {
        "MessageTimeout": "3",
        "PreemptType": "preempt/qos",
        "PreemptMode": "REQUEUE",
        "Epilog": str(Path(__file__).with_name("epilog.sh")),
    },
    "qos": [
        {"name": "scavenger", "options": {"Preempt": "", "GraceTime": 0}},
        {"name": "graceful", "options": {"Preempt": "", "GraceTime": 4}},
        {"name": "cancellable", "options": {"Preempt": "", "PreemptMode": "cancel"}},
        {"name": "urgent", "options": {"Preempt": "scavenger,graceful,cancellable"}},
    ],
    "grants": ["scavenger", "graceful", "cancellable", "urgent"],
}
"""Two partitions; QOS whose jobs those of another preempt; a requeued job is held for five seconds."""

MEMORIES_S: Final = (900, 2)
"""How long the clusters remember an ended job, in turn: the longest, and Slurm's shortest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A scenario, its random seed, and what is done to its world before.

    `patience` is how long, in seconds, its races may take to settle; `over` is the ssh that clients
    use, none where they run on the login node.
    """

    scenario: Scenario
    seed: int
    prepare: Prepare = do_nothing
    patience: float = PATIENCE_S
    over: str = OVER


@dataclass
class ScenarioRunner:
    """One cluster, and the scenarios that it has played."""

    box: sandbox.Sandbox
    folder: Path
    forgets: bool
    played: int = 0

    def play(self, task: Task) -> Row:
        """Play a scenario to its end and count."""
        self.played += 1
        scenario, seed = task.scenario, task.seed
        folder = self.folder / f"{self.played}-{scenario.name}-{seed}"
        world = World(self.box, folder, over=task.over)
        broke: tuple[str, ...] = ()
        began = time.monotonic()
        try:
            try:
                task.prepare(world)
                scenario.play(world, Random(f"{scenario.name} {seed}"))
            except Exception as error:
                broke = (f"the scenario broke: {error!r}"[:1500],)
            heal(world)
            row = count_outcome(
                world,
                scenario.name,
                seed,
                scenario.ends,
                doubles=scenario.doubles,
                patience=task.patience,
            )
            return replace(row, wrong=broke + row.wrong, seconds=time.monotonic() - began)
        finally:
            heal(world)
            make_honest(world)
            world.close()


def names_asked_for(request: pytest.FixtureRequest) -> list[str]:
    """The `name` of each test of this file that is to be run."""
    return [
        item.callspec.params["name"]
        for item in request.session.items
        if item.path == request.path and isinstance(item, pytest.Function)
    ]


def heal(world: World) -> None:
    """Start what is down, and resume every node."""
    sandbox.up(world.box.name, None)
    world.healthy_since = time.monotonic()
    if set(world.slurm("sinfo", "-h", "-N", "-o", "%T").split()) & {"down", "drained", "draining"}:
        world.resume()


def make_honest(world: World) -> None:
    """Let every node tell of the GPUs that it has."""
    for node in set(world.slurm("sinfo", "-h", "-N", "-o", "%N").split()):
        sandbox.set_fault(world.box, node, None)


def start_runners(
    scenarios: int, folder: Path, home: Path, *, most: int = 4
) -> list[ScenarioRunner]:
    """Bring up a cluster for each scenario, `most` of them at most, and one of each memory."""
    count = max(len(MEMORIES_S), min(scenarios, most))

    def one(number: int) -> ScenarioRunner:
        memory = MEMORIES_S[number % len(MEMORIES_S)]
        spec = {**PROFILE, "min_job_age": memory}
        path = home / f"runner{number}.yaml"
        path.write_text(yaml.safe_dump(spec), encoding="utf-8")
        return ScenarioRunner(
            box=sandbox.up(f"runner{number}", path),
            folder=folder / f"runner{number}",
            forgets=memory < 60,
        )

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def play_all(
    runners: Sequence[ScenarioRunner],
    tasks: Iterable[Task],
    tell: Callable[[Row], None] = do_nothing,
) -> list[Row]:
    """Play scenarios on all clusters at once, each as soon as a cluster that suits it is free."""
    common: SimpleQueue[Task] = SimpleQueue()
    forgetful: SimpleQueue[Task] = SimpleQueue()
    for task in tasks:
        (forgetful if task.scenario.forgets else common).put(task)
    rows: list[Row] = []

    def work(runner: ScenarioRunner) -> None:
        for queue in (*([forgetful] if runner.forgets else []), common):
            with suppress(Empty):
                while True:
                    rows.append(runner.play(queue.get_nowait()))
                    tell(rows[-1])

    with ThreadPoolExecutor(len(runners)) as pool:
        try:
            list(pool.map(work, runners))
        finally:  # Ctrl-C, or a cluster that broke: the others play nothing more
            for queue in (common, forgetful):
                with suppress(Empty):
                    while True:
                        queue.get_nowait()
    return rows
