"""A sandbox that is emptied, loaded and typed at, again and again."""

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rv.workflow.cluster import Cluster
from tests.bench.load import LoadJob, Role, sbatch_words

REPOSITORY: Final = Path(__file__).parents[2]
PATIENCE: Final = 60.0
_STAMP: Final = """\
#!/bin/bash
# Stands for the user's program: notes when it starts, and where.
now=${{EPOCHREALTIME/,/.}}
echo "$now $SLURM_JOB_PARTITION $SLURM_JOB_NODELIST" >{folder}/.$BASHPID &&
  mv {folder}/.$BASHPID {folder}/$SLURM_JOB_ID.$BASHPID
"""


class UnsettledError(Exception):
    """The sandbox did not become what a replay needs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stamp:
    """The first start of the command: seconds since the epoch, and where."""

    at: float
    partition: str
    nodes: str


@dataclass(slots=True)
class Yard:
    """One sandbox and the folders of whoever types at it."""

    target: Cluster
    home: Path
    _timers: list[threading.Timer] = field(default_factory=list)

    @property
    def stamps(self) -> Path:
        """Where the command notes its starts."""
        return self.home / "stamps"

    @property
    def work(self) -> Path:
        """The directory in which contenders type: it has the training script."""
        return self.home / "work"

    @property
    def environment(self) -> dict[str, str]:
        """What contenders have in their shell: a torchrun that only says that it started."""
        path = f"{self.home / 'bin'}:{os.environ['PATH']}"
        return dict(os.environ) | {"PATH": path, "PYTHONPATH": str(REPOSITORY)}

    def furnish(self) -> None:
        """Make the folders, the command and its script."""
        for folder in (self.stamps, self.work, self.home / "bin"):
            folder.mkdir(parents=True, exist_ok=True)
        (self.work / "train.py").touch()
        job = self.work / "job.sh"
        job.write_text("#!/bin/bash\nexec torchrun train.py\n", encoding="utf-8")
        program = self.home / "bin" / "torchrun"
        program.write_text(_STAMP.format(folder=self.stamps), encoding="utf-8")
        program.chmod(0o755)

    def slurm(self, *argv: str) -> str:
        """Run one of Slurm's commands and return what it printed. Raises where it fails."""
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd="/")
        if done.returncode:
            raise UnsettledError(f"{' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def empty(self) -> None:
        """Cancel every job, wait until every node is idle, and forget what was learned."""
        for timer in self._timers:
            timer.cancel()
            timer.join()
        self._timers.clear()
        self._wait("an empty cluster", self._is_empty)
        for stamp in self.stamps.iterdir():
            stamp.unlink()
        shutil.rmtree(self.target.cache.directory, ignore_errors=True)
        shutil.rmtree(self.target.race_root, ignore_errors=True)

    def _is_empty(self) -> bool:
        jobs = self.slurm("squeue", "-a", "-h", "-o", "%A %t").split()
        waiting = [job for job, state in zip(jobs[::2], jobs[1::2], strict=True) if state != "CG"]
        if waiting:
            self.slurm("scancel", "--quiet", *dict.fromkeys(waiting))
        states = set(self.slurm("sinfo", "-h", "-N", "-o", "%t").split())
        return not jobs and states == {"idle"}

    def load(self, jobs: Iterable[LoadJob]) -> list[LoadJob]:
        """Submit the jobs that come before the typing, and wait until they are what they must be.

        Returns those that come later.
        """
        first = [job for job in jobs if job.role is not Role.LATER]
        roles = {f"load-{number}": job.role for number, job in enumerate(first)}
        for number, job in enumerate(first):
            self.slurm(*sbatch_words(job, number))
        self._wait("the load", lambda: self._is_settled(roles))
        return [job for job in jobs if job.role is Role.LATER]

    def _is_settled(self, roles: dict[str, Role]) -> bool:
        form = "Name:.20,StateCompact:.4,SchedNodes:.20"
        rows = [line.split() for line in self.slurm("squeue", "-a", "-h", "-O", form).splitlines()]
        seen = {name: (state, planned) for name, state, planned in rows}
        return all(_is_as_wanted(role, *seen.get(name, ("", ""))) for name, role in roles.items())

    def send_later(self, jobs: Iterable[LoadJob], typed_at: float) -> None:
        """Send the others' later jobs in time; `typed_at` is in seconds since the epoch."""
        for number, job in enumerate(jobs):
            words = sbatch_words(job, 100 + number)
            timer = threading.Timer(typed_at + job.after - time.time(), self.slurm, words)
            timer.daemon = True
            self._timers.append(timer)
            timer.start()

    def first_start(self, until: float) -> Stamp | None:
        """Wait for the command's first start; None where there was none at `until` (epoch)."""
        while not (found := self._stamps()) and time.time() < until:
            time.sleep(0.05)
        # A layout of two nodes starts twice: the other's stamp may come first.
        time.sleep(0.1)
        return min(self._stamps() or found, key=lambda stamp: stamp.at, default=None)

    def _stamps(self) -> list[Stamp]:
        found = []
        for path in self.stamps.glob("[0-9]*"):
            at, partition, nodes = path.read_text(encoding="utf-8").split()
            found.append(Stamp(at=float(at), partition=partition, nodes=nodes))
        return found

    def submit(self, line: Sequence[str]) -> str:
        """Type one sbatch line in the work directory; the id of its job."""
        argv = [line[0], "--parsable", *line[1:-1], "--output=/dev/null", line[-1]]
        done = subprocess.run(
            argv, capture_output=True, text=True, cwd=self.work, env=self.environment
        )
        if done.returncode:
            raise UnsettledError(f"{' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def starts_by_job(self) -> dict[str, float]:
        """When each job's command started first, in seconds since the epoch."""
        starts: dict[str, float] = {}
        for path in self.stamps.glob("[0-9]*"):
            at = float(path.read_text(encoding="utf-8").split()[0])
            job = path.name.partition(".")[0]
            starts[job] = min(at, starts.get(job, at))
        return starts

    def queue(self) -> str:
        """The queue as a person would look at it, with Slurm's plans."""
        form = "JobID:.8,Name:.16,UserName:.8,Partition:.24,State:.10,NumNodes:.4,tres-per-node:.20"
        form += ",TimeLimit:.9,TimeLeft:.9,StartTime:.21,SchedNodes:.12,NodeList:.12,Reason:.20"
        return self.slurm("squeue", "-a", "-O", form)

    def free_gpus(self) -> dict[str, int]:
        """How many GPUs are not allocated in each partition, as an expert would add them up."""
        return {name: sum(nodes) for name, nodes in self.free_by_node().items()}

    def free_by_node(self) -> dict[str, list[int]]:
        """How many GPUs are not allocated on each node of each partition."""
        free: dict[str, list[int]] = {}
        for line in self.slurm("scontrol", "show", "node", "-d", "-o").splitlines():
            partition = re.search(r"\bPartitions=(\S+)", line)
            total, used = (_count(key, line) for key in ("Gres", "GresUsed"))
            if partition:
                free.setdefault(partition[1], []).append(total - used)
        return free

    def no_share_left(self) -> None:
        """Give root no share: by fair share everybody else comes first. Wait until Slurm has it."""
        self.slurm("sacctmgr", "-i", "modify", "user", "root", "set", "fairshare=0")
        self._wait("a lower fair share", self._has_least_share)

    def _has_least_share(self) -> bool:
        rows = self.slurm("sshare", "-a", "-h", "-P", "-o", "User,FairShare").splitlines()
        share = {row.split("|")[0]: float(row.split("|")[1] or 0) for row in rows if row[0] != "|"}
        return share["root"] < min(value for user, value in share.items() if user != "root")

    @staticmethod
    def _wait(what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise UnsettledError(f"{what}: not within {PATIENCE:.0f} s")
            time.sleep(0.1)


def _is_as_wanted(role: Role, state: str, planned: str) -> bool:
    if role is Role.RUNS:
        return state == "R"
    return state == "PD" and (role is Role.WAITS or planned not in ("(null)", "N/A", ""))


def _count(key: str, line: str) -> int:
    found = re.search(rf"\b{key}=(\S+)", line)
    return sum(map(int, re.findall(r"gpu(?::[^:,(]+)?:(\d+)", found[1]))) if found else 0
