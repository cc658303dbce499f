"""What the fault tests share: an `rv` with folders, programs and a cluster of its own."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from rv import sandbox
from rv.sandbox.ports import listener
from tests.ssh.login_node import OVER, LoginNode

ROOT: Final = Path(__file__).parents[2]
PATIENCE_S: Final = 90.0
SEEDS: Final = range(int(os.environ.get("RV_SEEDS", "2")))
COUNTED: Final = 'echo "$RV_ME" >>starts'
"""The start of a command that leaves one line a start, in the working directory."""

READY: Final = {"idle", "mixed", "allocated", "completing"}

_HEAD: Final = """#!/bin/bash
real={real}
at() {{ : >{world}/at.{name}; until [ -e {world}/go.{name} ]; do sleep 0.02; done; }}
calls() {{ echo call >>{world}/calls.{name}; wc -l <{world}/calls.{name}; }}
"""
TINY: Final[Mapping[str, object]] = {
    "cluster": "tiny",
    "kill_wait": 2,
    "nodes": [
        {
            "prefix": prefix,
            "count": 2,
            "cpus": 16,
            "memory": size,
            "gres": [{"type": kind, "count": 4, "product": product, "memory": memory}],
        }
        for prefix, size, kind, product, memory in (
            ("a", "64G", "a100", "NVIDIA A100-SXM4-80GB", 81920),
            ("v", "32G", "v100", "Tesla V100-SXM2-32GB", 32768),
        )
    ],
    "partitions": [
        {"name": "fast", "nodes": ["a"], "default": True, "max_time": "3-0"},
        {"name": "slow", "nodes": ["v"], "max_time": "3-0"},
    ],
}
"""Two partitions of two nodes, so that one GPU is a race of two submissions in two waves.

Their nodes are unlike in memory, or one job would do for both.
"""


def eventually(what: Callable[[], object], timeout: float = PATIENCE_S) -> Any:
    """Wait until a condition holds and return what it then was.

    It asks for half of the time at most: many do, at once, on few cores.
    """
    deadline, pause = time.monotonic() + timeout, 0.02
    while True:
        asked = time.monotonic()
        if last := what():
            return last
        now = time.monotonic()
        assert now < deadline, f"not within {timeout:.0f} s; last seen: {last!r}"
        time.sleep(max(pause, now - asked))
        pause = min(1.2 * pause, 0.2)


def descendants(pid: int) -> list[int]:
    """All processes below a process, its own sessions and groups notwithstanding."""
    try:
        return [process.pid for process in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill(pids: list[int]) -> None:
    """Kill -9, all at once: stopped first, so that nobody notices the death of another."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


@dataclass
class World:
    """One test's cluster, folders, wrapped programs and `rv` processes."""

    box: sandbox.Sandbox
    path: Path
    env: dict[str, str] = field(default_factory=dict)
    clients: list["Client"] = field(default_factory=list)
    ps_answers: list[tuple[float, list[dict[str, Any]]]] = field(default_factory=list)
    """Each answer of `rv ps`, and when it came."""

    healthy_since: float = 0.0
    """Since when every daemon has been there, on the clock of `ps_answers`."""

    last: ExitStack = field(default_factory=ExitStack)
    """What is done when the world is closed."""

    over: str = OVER
    """The ssh that its clients reach the cluster by; none where they run on the login node."""

    def __post_init__(self) -> None:
        self.work.mkdir(parents=True)
        self.bin.mkdir()
        (self.path / "cache").mkdir()
        self.env = os.environ | {
            "SLURM_CONF": str(self.box.slurm_conf),
            "RV_RACE_ROOT": str(self.path / "races"),
            "XDG_CACHE_HOME": str(self.path / "cache"),
            "XDG_CONFIG_HOME": str(self.path / "config"),
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        self.login = LoginNode(self.path / "login", self.work, self.over) if self.over else None
        if self.login:
            self.last.callback(self.login.stop)

    @property
    def client_env(self) -> dict[str, str]:
        """What clients are called with."""
        return self.client_env_with({})

    def client_env_with(
        self, more: Mapping[str, str], home: Path | None = None, enter: Sequence[str] = ()
    ) -> dict[str, str]:
        """The same with more variables; over ssh `home` is that of the logins, and `enter` is run first."""
        env = self.env | more
        return self.login.environment(env, home or self.work, enter) if self.login else env

    @property
    def work(self) -> Path:
        return self.path / "work"

    @property
    def bin(self) -> Path:
        return self.path / "bin"

    # Programs that misbehave on rv's way to Slurm.

    def wrap(self, name: str, body: str) -> None:
        """Put a bash wrapper in front of a program: `$real` is it, `at` says so and waits for `go`."""
        found = subprocess.run(
            ["/usr/bin/env", "which", name], capture_output=True, text=True, check=True
        ).stdout.strip()
        head = _HEAD.format(real=shlex.quote(found), world=shlex.quote(str(self.path)), name=name)
        script = self.bin / name
        script.write_text(f"{head}{body}\n", encoding="utf-8")
        script.chmod(0o755)

    def reached(self, name: str) -> None:
        """Wait until a wrapper is `at` its point."""
        eventually((self.path / f"at.{name}").exists)

    def go(self, name: str) -> None:
        """Let it go on."""
        (self.path / f"go.{name}").touch()

    def calls(self, name: str) -> int:
        """How often a wrapper that counts was called."""
        return len(self.lines(self.path / f"calls.{name}"))

    def override(self, template: str, change: Callable[[str], str]) -> None:
        """Change a template by the user's own copy of it."""
        folder = self.path / "config" / "rv" / "templates"
        folder.mkdir(parents=True, exist_ok=True)
        text = (ROOT / "templates" / template).read_text(encoding="utf-8")
        changed = change(text)
        assert changed != text
        (folder / template).write_text(changed, encoding="utf-8")

    # rv.

    def rv(
        self, *words: str, timeout: float = 120, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run rv to its end."""
        options.setdefault("cwd", self.work)
        env = self.client_env_with(options.pop("env", {}), options["cwd"])
        return subprocess.run(
            [sys.executable, "-m", "rv", *words],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            **options,
        )

    def own_mounts(self, setup: str) -> list[str]:
        """Make mounts that nobody else sees; returns what runs a program among them."""
        mapped = [] if os.getuid() == 0 else ["--map-root-user"]
        ready = self.path / f"mounted{time.monotonic_ns()}"
        script = f"set -e; {setup}; : >{shlex.quote(str(ready))}; exec sleep infinity"
        holder = subprocess.Popen(["unshare", "--mount", *mapped, "bash", "-c", script])
        self.last.callback(holder.wait)
        self.last.callback(holder.kill)
        eventually(lambda: ready.exists() or holder.poll() is not None)
        assert holder.poll() is None, setup
        user = ["--user", "--preserve-credentials"] if mapped else []
        return ["nsenter", f"--target={holder.pid}", "--mount", *user, f"--wd={self.work}"]

    def rv_among(self, enter: Sequence[str], *words: str) -> subprocess.CompletedProcess[str]:
        """Run rv among mounts of its own; over ssh the login node has them."""
        here = [] if self.login else enter
        return subprocess.run(
            [*here, sys.executable, "-m", "rv", *words],
            cwd=self.work, env=self.client_env_with({}, enter=enter), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def ok(self, *words: str, **options: Any) -> str:
        """Run rv, which must succeed, and return its answer."""
        done = self.rv(*words, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *words: str) -> "Client":
        """Start rv in a session of its own, output to files."""
        return self.start_program(sys.executable, "-m", "rv", *words)

    def start_program(self, *argv: str) -> "Client":
        """Start a program as a client is."""
        number = len(self.clients)
        out, err = self.path / f"client{number}.out", self.path / f"client{number}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                argv,
                cwd=self.work,
                env=self.client_env,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        client = Client(process, out, err)
        self.clients.append(client)
        return client

    def ps(self) -> list[dict[str, Any]]:
        """What `rv ps` says of all races, newest first."""
        done = self.rv("ps", "-a", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        races: list[dict[str, Any]] = json.loads(done.stdout)["races"]
        self.ps_answers.append((time.monotonic(), races))
        return races

    def forget_queue(self) -> None:
        """Let the next `rv ps` ask Slurm, and not take the answer that another one kept."""
        for answer in (self.path / "cache").rglob("*.queue"):
            answer.unlink(missing_ok=True)

    def race(self) -> dict[str, Any]:
        """What `rv ps` says of the one race."""
        (race,) = self.ps()
        return race

    def settled(self, *states: str) -> dict[str, Any]:
        """Wait until `rv ps` gives one of these states to the one race."""
        return eventually(lambda: (race := self.race())["state"] in states and race)

    # What really happened.

    def slurm(self, *argv: str, check: bool = True) -> str:
        """Run a Slurm command on the cluster, past all wrappers."""
        env = os.environ | {"SLURM_CONF": str(self.box.slurm_conf)}
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, errors="replace", timeout=60
        )
        assert not check or done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def live_jobs(self) -> list[str]:
        """The names of rv's jobs of this world that wait, run or end now, on the whole cluster."""
        return [row.split()[1] for row in self.rows_of_live_jobs()]

    def wait_for_the_end_of_jobs(self, timeout: float = PATIENCE_S) -> None:
        """Until none is left: Slurm says for a moment of a job that is over that it is completing."""
        eventually(lambda: not self.live_jobs(), timeout)

    def rows_of_live_jobs(self) -> list[str]:
        """Their ids, names, states, reasons and folders.

        A controller that was killed before it saved also puts back jobs of the world before.
        """
        rows = self.slurm("squeue", "-h", "-a", "-t", "PD,R,CF,CG,S", "-o", "%A %j %T %r %Z")
        return [row for row in rows.splitlines() if " rv-" in row and f" {self.path}/" in row]

    def known_jobs(self) -> set[str]:
        """The names of all of this test's jobs that Slurm ever accepted."""
        ids = [path.name for path in self.races()]
        queued = self.slurm("squeue", "-h", "-a", "-t", "all", "-o", "%j").split()
        accounted = self.slurm("sacct", "-X", "-n", "-P", "-o", "JobName%60").split()
        return {
            name
            for name in (*queued, *accounted)
            if name.split("-")[1:2] and name.split("-")[1] in ids
        }

    def races(self) -> list[Path]:
        """The race directories."""
        root = self.path / "races"
        return [p for p in root.glob("*") if not p.name.startswith(".")] if root.exists() else []

    def race_dir(self) -> Path:
        """The one race's directory, when it is there."""
        found: list[Path] = eventually(self.races)
        (directory,) = found
        return directory

    def starts(self) -> int:
        """How often the command was started."""
        return len(self.lines(self.work / "starts"))

    @staticmethod
    def lines(path: Path) -> list[str]:
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def backdate(self, seconds: float = 3600) -> None:
        """Make the race so much older, instead of waiting."""
        self.backdate_race(self.race_dir(), seconds)

    @staticmethod
    def backdate_race(directory: Path, seconds: float = 3600) -> None:
        """Make one of several races older."""
        record = directory / "race.json"
        data = json.loads(record.read_text(encoding="utf-8"))
        data["submitted_at"] -= seconds
        record.write_text(json.dumps(data), encoding="utf-8")
        seen = directory / "unsent"  # as if a client had looked then
        seen.touch()
        os.utime(seen, (time.time() - seconds,) * 2)

    # The cluster's weather.

    def fill(self) -> Callable[[], None]:
        """Occupy every node; returns what frees them."""
        partitions = [
            line.split() for line in self.slurm("sinfo", "-h", "-o", "%R %D").splitlines()
        ]
        jobs = [
            self.slurm(
                "sbatch", "--parsable", "-p", name, "-N", number, "--exclusive", "-o", "/dev/null",
                "--job-name=hog", "--wrap", "exec sleep 3600",
            ).strip()
            for name, number in partitions
        ]  # fmt: skip

        def running() -> bool:
            states = self.slurm("squeue", "-h", "-n", "hog", "-o", "%T").split()
            return states == ["RUNNING"] * len(jobs)

        try:
            eventually(running)
        except AssertionError as error:
            error.add_note(self.slurm("squeue", "-h", "-a", "-o", "%A %j %T %r"))
            raise
        return lambda: do_nothing(self.slurm("scancel", *jobs))

    def drain(self) -> Callable[[], None]:
        """Let no node start anything; returns what ends that."""
        self.nodes("state=drain", "reason=test")
        return self.resume

    def resume(self) -> None:
        """Let all nodes take jobs again, and wait until they do.

        One that came back by itself a moment before is refused its resume.
        """

        kept: list[str] = []

        def ready() -> bool:
            rows = self.slurm("sinfo", "-h", "-N", "-o", "%N %T").splitlines()
            kept[:] = sorted({row for row in rows if row.split()[1] not in READY})
            for row in kept:
                name = row.split()[0]
                self.slurm("scontrol", "update", f"nodename={name}", "state=resume", check=False)
            return not kept

        with suppress(AssertionError):
            eventually(ready)
        assert not kept, f"nodes that take no jobs: {kept}"

    def idle(self) -> None:
        """Wait until no node is in a state of its own."""
        eventually(lambda: set(self.slurm("sinfo", "-h", "-N", "-o", "%T").split()) <= READY)

    def nodes(self, *change: str, prefix: str = "") -> None:
        names = self.slurm("sinfo", "-h", "-N", "-o", "%N").split()
        for name in sorted({name for name in names if name.startswith(prefix)}):
            self.slurm("scontrol", "update", f"nodename={name}", *change)

    def close(self) -> None:
        """Leave the cluster as it was for the next test."""
        for client in self.clients:
            client.kill(whole=True)
        for waiting in self.path.glob("at.*"):  # of a client that was killed alone
            self.go(waiting.name.removeprefix("at."))
        names = set(self.slurm("squeue", "-h", "-a", "-o", "%A").split())
        if names:
            self.slurm("scancel", *names)
            self.slurm("scancel", "-s", "KILL", *names, check=False)
        eventually(lambda: not self.slurm("squeue", "-h", "-a", "-t", "PD,R,CF,CG").strip())
        self.last.close()


def do_nothing(_: object) -> None:
    """Return nothing."""


@dataclass
class Client:
    """One running `rv`."""

    process: "subprocess.Popen[bytes]"
    out_path: Path
    err_path: Path

    @property
    def out(self) -> str:
        return self.out_path.read_text(encoding="utf-8", errors="replace")

    @property
    def err(self) -> str:
        return self.err_path.read_text(encoding="utf-8", errors="replace")

    def says(self, text: str) -> None:
        """Wait until it said something, on either stream."""
        self._await(lambda: text in self.err or text in self.out, text)

    def prints(self, text: str) -> None:
        """Wait until its command's output has come."""
        self._await(lambda: text in self.out, text)

    def _await(self, has_come: Callable[[], bool], text: str) -> None:
        """Wait for a text; who waits in vain reads what came instead."""
        with suppress(AssertionError):
            eventually(lambda: has_come() or self._over())
        assert has_come(), f"{text!r} has not come, but {self.out!r} and {self.err!r}"

    def _over(self) -> bool:
        return self.process.poll() is not None

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """Wait for its end and return its exit code."""
        return self.process.wait(timeout)

    def interrupt(self) -> None:
        """Ctrl-C: the terminal signals the foreground process group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self, *, whole: bool) -> None:
        """Kill -9: the client alone, or with everything that it started."""
        if self.process.poll() is None:
            pids = [self.process.pid]
            if whole:
                os.kill(self.process.pid, signal.SIGSTOP)
                pids += descendants(self.process.pid)
            kill(pids)
        self.process.wait()


def processes_of(job_id: int, box: sandbox.Sandbox) -> Iterator[tuple[int, str]]:
    """The processes of a job: its step daemons, and whatever runs below them.

    From Slurm 23.11 on such a daemon has no environment: it is found by its socket in the spool.
    """
    conf = box.slurm_conf.read_text(encoding="utf-8")
    spool = re.search(r"^SlurmdSpoolDir=(.+)/%n$", conf, re.MULTILINE)
    assert spool
    for path in Path(spool[1]).glob(f"*/*_{job_id}.*"):
        daemon = listener(str(path)) if path.is_socket() else 0
        if daemon:
            yield daemon, f"slurmstepd of {path.name}"
            for pid in descendants(daemon):
                yield pid, "below"
