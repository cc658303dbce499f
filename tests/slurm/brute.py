"""Try every way to place a job on an empty sandbox, whatever the planner thinks of it.

Nothing here asks the planner: ways are made from a profile's YAML, and whether one works is what
Slurm does with the job within ten seconds.
"""

import itertools
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rv import sandbox
from rv.models.plan import Strategy
from rv.models.request import Request
from rv.render.script import sbatch_line
from rv.sandbox.profile import Profile

NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
SECONDS = 10
RAN = {"RUNNING", "COMPLETING", "COMPLETED", "PREEMPTED"}
BEHIND_OTHERS = {"None", "Priority", "Resources"}


@dataclass(frozen=True, order=True)
class Way:
    """Where a job would run: what it asks of each node, and in which partition."""

    gres: str
    constraint: str
    partition: str
    nodes: int


@dataclass(frozen=True)
class Attempt:
    """One way, charged to one account and QOS, as `sbatch` gets it."""

    way: Way
    options: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What Slurm made of an attempt: its word for the state, or why it refused."""

    attempt: Attempt
    state: str
    reason: str

    @property
    def ran(self) -> bool:
        return self.state in RAN


def way_of(strategy: Strategy) -> Way:
    """The way that a strategy is."""
    return Way(strategy.gres, strategy.constraint, strategy.partition, strategy.nodes)


def as_planned(strategy: Strategy) -> Attempt:
    """A strategy just as rv prints it."""
    words = shlex.split(sbatch_line(strategy))
    return Attempt(way_of(strategy), tuple(words[1:-1]))


def every_way(profile: Profile, request: Request, constraints: Iterable[str]) -> Iterator[Way]:
    """All GRES types, constraints, partitions and even splits, sensible or not."""
    slices = re.compile(r"\d+g\.\d+gb")
    types = {gres.type or "" for group in profile.nodes for gres in group.gres}
    wanted = {t for t in types if t in request.types or not (request.types or slices.fullmatch(t))}
    kinds = [(f"gpu:{t}" if t else "gpu") for t in sorted(wanted)] if request.gpus else [""]
    partitions = [partition.name for partition in profile.partitions]
    splits = [n for n in range(1, request.gpus + 1) if request.gpus % n == 0] or [1]
    for kind, constraint, partition, nodes in itertools.product(
        kinds, sorted(constraints), partitions, splits
    ):
        gres = f"{kind}:{request.gpus // nodes}" if kind else ""
        yield Way(gres, constraint, partition, nodes)


def attempts(way: Way, profile: Profile, request: Request) -> Iterator[Attempt]:
    """The way with each account and QOS, asking for as little as the request lets it.

    A QOS that costs more than the usual is tried only where the request names it: so does rv.
    """
    time_limit = int(request.walltime.total_seconds() // 60) if request.walltime_given else 1
    options = [
        "-p", way.partition, "-N", str(way.nodes), "--ntasks-per-node=1", "-t", str(time_limit),
        "-c", str(request.cpus or 1), f"--mem={request.memory_mib or 10}M",
        *([f"--gres={way.gres}"] if way.gres else []),
        *(["-C", way.constraint] if way.constraint else []),
    ]  # fmt: skip
    accounts = [account.name for account in profile.accounts] if profile.accounting else [""]
    dear = {qos.name for qos in profile.qos if "UsageFactor" in dict(qos.options)}
    qos = ["", *(name for name in profile.grants if name not in dear)]
    for account, name in itertools.product(
        [request.account] if request.account else accounts, [request.qos] if request.qos else qos
    ):
        charged = [*(["-A", account] if account else []), *(["-q", name] if name else [])]
        yield Attempt(way, (*options, *charged))


class Cluster:
    """An empty sandbox, and nobody as its user."""

    def __init__(self, box: sandbox.Sandbox) -> None:
        self._environment = os.environ | {"SLURM_CONF": str(box.slurm_conf)}

    def try_all(self, tried: Iterable[Attempt]) -> list[Outcome]:
        """Submit all at once, and what then waits behind others once more, by itself.

        Those that run end at once and make room. What waits for a reason of its own has its answer,
        unless others ran meanwhile: they may have filled a limit that all share.
        """
        outcomes = self._outcomes(list(tried))
        self._clear()
        shared = any(found.ran for found in outcomes)
        for position, found in enumerate(outcomes):
            if found.state == "PENDING" and (shared or found.reason in BEHIND_OTHERS):
                (outcomes[position],) = self._outcomes([found.attempt])
                self._clear()
        return outcomes

    def _outcomes(self, tried: list[Attempt]) -> list[Outcome]:
        """Wait until all have run, or for so long; what was refused has no state."""
        jobs = self._submit(tried)
        deadline = time.monotonic() + SECONDS
        while True:
            states = self._states()
            waiting = [job for job in jobs if job.isdigit() and states[job][0] not in RAN]
            if not waiting or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return [
            Outcome(attempt, *states.get(job, ("", job)))
            for attempt, job in zip(tried, jobs, strict=True)
        ]

    def _submit(self, tried: list[Attempt]) -> list[str]:
        """Return a job id for each, or the last line of what sbatch complained of."""
        fixed = ["--parsable", "-D", "/", "-o", "/dev/null", "--no-requeue", "--wrap", "true"]
        lines = (shlex.join(["sbatch", *attempt.options, *fixed]) for attempt in tried)
        script = "".join(f"{line} 2>&1 | tail -n 1\n" for line in lines)
        answers = self._run("bash", "-s", stdin=script).splitlines()
        assert len(answers) == len(tried), answers
        return answers

    def _states(self) -> dict[str, tuple[str, str]]:
        rows = self._run("squeue", "-a", "-h", "-t", "all", "-o", "%i|%T|%r").splitlines()
        fields = (row.split("|", 2) for row in rows)
        return {job: (state, reason) for job, state, reason in fields}

    def _clear(self) -> None:
        """Leave the cluster empty again."""
        self._run("scancel", "--user=nobody")
        deadline = time.monotonic() + 30
        while self._run("squeue", "-a", "-h").strip():
            assert time.monotonic() < deadline, self._run("squeue", "-a")
            time.sleep(0.03)

    def _run(self, *argv: str, stdin: str = "") -> str:
        done = subprocess.run(
            [*AS_NOBODY, *argv],
            env=self._environment,
            cwd="/",
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout
