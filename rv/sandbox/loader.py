"""The background process of `rv sandbox load`: submits sleeping jobs until it is ended.

It knows no limits of the cluster and learns them instead: a job that waits for a QOS is cancelled,
and its partition gets smaller ones, or none for a while. A job that waits for GPUs which others
took meanwhile is cancelled too, and its share goes where GPUs are free.
"""

import os
import pwd
import random
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import field
from datetime import timedelta
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.sandbox import accounting, daemons, processes, records
from rv.sandbox.layout import reachable
from rv.sandbox.processes import path_of
from rv.sandbox.records import Record

ROLE: Final = "loader"
JOB_NAME: Final = "rv-load"
ACCOUNT: Final = "rv-load"
USER: Final = "daemon"
"""Who loads root's sandboxes, so that limits of users and accounts count the users' own jobs."""

PERIOD_S: Final = 1.0
BAN_S: Final = 30.0
SIZES: Final = (1, 1, 2, 4, 8)
Pending = tuple[str, str, int, str]
"""A pending job of the load: id, partition, GPUs, reason."""

UNUSABLE: Final = re.compile(r"State=\S*(DOWN|DRAIN|NOT_RESPONDING|MAINT|FAIL|INVAL)|State=\S*\*")


def start(
    record: Record, *, share: float, shortest: timedelta, longest: timedelta, seed: int
) -> None:
    """Start the loader in the background, in place of one that runs already."""
    if not 0 < share <= 1:
        raise RvError(
            ErrorKind.SANDBOX,
            f"a share of {share:g} of the GPUs",
            hint="between 0 and 1, as in 0.8",
        )
    if not timedelta(0) < shortest <= longest:
        raise RvError(
            ErrorKind.SANDBOX,
            f"jobs of {shortest} to {longest}",
            hint="--min is above 0 and at most --max",
        )
    stop(record)
    user = _user(record)
    if user == USER and record.layout.database.exists():
        accounting.sacctmgr(record, [["add", "account", ACCOUNT]])
        accounting.sacctmgr(record, [["add", "user", USER, f"account={ACCOUNT}"]])
    process = processes.spawn_python(
        "rv.sandbox.loader",
        str(share),
        str(shortest.total_seconds()),
        str(longest.total_seconds()),
        str(seed),
        user,
        env=daemons.environment(record),
        log=record.layout.logs / ROLE,
    )
    records.note(record.layout, ROLE, process)


def stop(record: Record) -> bool:
    """End the loader and its jobs; False when none was on record."""
    if records.process_of(record.layout, ROLE) is None:
        return False
    daemons.stop(record, ROLE)
    user = _user(record)
    argv = [path_of("scancel"), f"--user={user}", f"--name={JOB_NAME}"]
    done = processes.run(argv, env=daemons.environment(record))
    if done.returncode:
        raise RvError(
            ErrorKind.SANDBOX,
            f"the load's jobs could not be cancelled: {done.complaint}",
            hint=f"SLURM_CONF={record.layout.slurm_conf} scancel --user={user} --name={JOB_NAME}",
        )
    return True


def _user(record: Record) -> str:
    """Whose jobs the load is: another user's where the sandbox serves others, else one's own."""
    layout = record.layout
    serves_others = os.getuid() == 0 and reachable(layout.directory) and reachable(layout.run)
    has_other = serves_others and processes.uid_of(USER) is not None
    return USER if has_other else pwd.getpwuid(os.getuid()).pw_name


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A node with GPUs."""

    partition: str
    gpus: int
    free: int


@dataclass(slots=True)
class Loader:
    """What it aims at, and what it has learned."""

    share: float
    shortest_s: float
    longest_s: float
    dice: random.Random
    largest: dict[str, int] = field(default_factory=dict)
    banned_until_s: dict[str, float] = field(default_factory=dict)

    def step(self, nodes: list[Node], waiting: int, now_s: float) -> list[tuple[str, int, int]]:
        """The jobs to submit now_s: partition, GPUs, seconds."""
        busy = sum(node.gpus - node.free for node in nodes)
        lacking = round(self.share * sum(node.gpus for node in nodes)) - busy - waiting
        free = [node for node in nodes if self._may_use(node, now_s)]
        jobs = []
        while lacking > 0 and free:
            node = free.pop(self.dice.randrange(len(free)))
            size = self._size(node, lacking)
            jobs.append((node.partition, size, self._length()))
            lacking -= size
            if node.free > size:
                free.append(Node(partition=node.partition, gpus=node.gpus, free=node.free - size))
        return jobs

    def _may_use(self, node: Node, now_s: float) -> bool:
        return node.free > 0 and self.banned_until_s.get(node.partition, 0) <= now_s

    def _size(self, node: Node, lacking: int) -> int:
        most = min(node.free, lacking, self.largest.get(node.partition, node.free))
        return self.dice.choice([size for size in SIZES if size <= max(most, 1)])

    def _length(self) -> int:
        return max(1, round(self.dice.uniform(self.shortest_s, self.longest_s)))

    def review(self, pending: list[Pending], now_s: float) -> tuple[int, list[str]]:
        """The GPUs that pending jobs will soon have, and the ids of those that wait in vain."""
        waiting = 0
        to_cancel = []
        for job, partition, gpus, reason in pending:
            limited = reason.startswith("QOS") or "Limit" in reason
            if limited:
                self.learn(partition, gpus, now_s)
            if limited or reason == "Resources":
                to_cancel.append(job)
            else:
                waiting += gpus
        return waiting, to_cancel

    def learn(self, partition: str, gpus: int, now_s: float) -> None:
        """A job of this size was refused by a limit there."""
        self.largest[partition] = max(gpus // 2, 1)
        if gpus == 1:
            self.banned_until_s[partition] = now_s + BAN_S


def parse_nodes(text: str) -> list[Node]:
    """The usable GPU nodes of `scontrol show node -d -o`."""
    nodes = []
    for line in text.splitlines():
        partition = re.search(r"\bPartitions=([^\s,]+)", line)
        gpus = _gpus("Gres", line)
        if partition and gpus and not UNUSABLE.search(line):
            free = gpus - _gpus("GresUsed", line)
            nodes.append(Node(partition=partition[1], gpus=gpus, free=free))
    return nodes


def _gpus(key: str, line: str) -> int:
    """Sum `gpu:TYPE:4,gpu:2(IDX:0-1)`; the TRES fields are missing where there is no slurmdbd."""
    match = re.search(rf"\b{key}=(\S+)", line)
    return sum(map(int, re.findall(r"gpu(?::[^:,(]+)?:(\d+)", match[1]))) if match else 0


def parse_waiting(text: str) -> list[Pending]:
    """The load's jobs of `squeue -t PD -o '%i|%P|%b|%r'`."""
    rows = (line.split("|") for line in text.splitlines() if line.count("|") == 3)
    return [
        (job, partition, int(count[1]), reason)
        for job, partition, gres, reason in rows
        if (count := re.search(r":(\d{1,9})$", gres, re.ASCII))
    ]


def _ask(program: str, *args: str, env: Mapping[str, str]) -> str:
    done = processes.run([path_of(program), *args], env=env)
    return done.stdout if done.returncode == 0 else ""


def tick(loader: Loader, env: Mapping[str, str], now_s: float, user: str) -> None:
    """Look once, and submit what is lacking."""
    nodes = parse_nodes(_ask("scontrol", "show", "node", "-d", "-o", env=env))
    queue = _ask(
        "squeue", "-u", user, "-h", "-t", "PD", "-n", JOB_NAME, "-o", "%i|%P|%b|%r", env=env
    )
    waiting, to_cancel = loader.review(parse_waiting(queue), now_s)
    if to_cancel:
        _ask("scancel", *to_cancel, env=env)
    for partition, gpus, seconds in loader.step(nodes, waiting, now_s):
        minutes = -(-seconds // 60)
        _ask(
            "sbatch",
            *([f"--uid={user}"] if user == USER else []),
            f"--job-name={JOB_NAME}",
            f"--partition={partition}",
            f"--gres=gpu:{gpus}",
            f"--time={minutes}",
            "--mem=100",
            "--output=/dev/null",
            "--chdir=/",
            "--no-requeue",
            f"--wrap=exec sleep {seconds}",
            env=env,
        )


def main() -> None:
    """Loop until ended from outside; a controller that is away is asked again."""
    share, shortest, longest = map(float, sys.argv[1:4])
    dice = random.Random(int(sys.argv[4]))  # noqa: S311 - jobs, not secrets
    loader = Loader(share=share, shortest_s=shortest, longest_s=longest, dice=dice)
    env = processes.environment({"SLURM_CONF": os.environ["SLURM_CONF"]})
    while True:
        tick(loader, env, time.monotonic(), sys.argv[5])
        time.sleep(PERIOD_S)


if __name__ == "__main__":
    main()
