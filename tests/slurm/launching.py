"""Run `rv` as a user does, on a sandbox, and read what its races left behind."""

import json
import os
import pwd
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rv import sandbox
from tests.ssh.login_node import OVER, LoginNode

REPOSITORY = Path(__file__).parents[2]
MODELS = {
    "v100": ("Tesla V100-SXM2-32GB", 32768),
    "rtx3090": ("NVIDIA GeForce RTX 3090", 24576),
    "a6000": ("NVIDIA RTX A6000", 49140),
    "a40": ("NVIDIA A40", 46068),
    "a100": ("NVIDIA A100-SXM4-80GB", 81920),
    "h100": ("NVIDIA H100 80GB HBM3", 81559),
    "h200": ("NVIDIA H200", 143771),
    "l40s": ("NVIDIA L40S", 46068),
    "a30": ("NVIDIA A30", 24576),
    "a10": ("NVIDIA A10", 23028),
    "l4": ("NVIDIA L4", 23034),
    "b200": ("NVIDIA B200", 183359),
}
"""GRES types with what their nvidia-smi says: product and MiB."""


def group(
    prefix: str, model: str, *, nodes: int = 1, gpus: int = 4, weight: int = 1
) -> dict[str, Any]:
    """Equal nodes of a profile, as in its YAML."""
    product, memory = MODELS[model]
    gres = {"type": model, "count": gpus, "product": product, "memory": memory}
    return {
        "prefix": prefix,
        "count": nodes,
        "cpus": 64,
        "memory": "256G",
        "weight": weight,
        "gres": [gres],
    }


def profile(
    groups: list[dict[str, Any]], partitions: Mapping[str, list[str]] | None = None, **settings: Any
) -> dict[str, Any]:
    """A cluster of these nodes; one partition over all of them unless told."""
    named = partitions or {"gpu": [each["prefix"] for each in groups]}
    return {
        "cluster": "raced",
        "nodes": groups,
        "partitions": [
            {"name": name, "nodes": prefixes, "default": not index, "max_time": "1-0"}
            for index, (name, prefixes) in enumerate(named.items())
        ],
        **settings,
    }


def twelve_models() -> dict[str, Any]:
    """A partition for each of twelve GPU models: twelve strategies for one GPU, all idle.

    Their memory is so unlike that none of them merge.

    The controller starts nothing at submission but in passes, as on busy sites: jobs that came
    together then start together.
    """
    groups = [
        group(f"{model}n", model, gpus=8) | {"memory": f"{round(64 * 1.4**index)}G"}
        for index, model in enumerate(MODELS)
    ]
    passes = {"defer": "", "sched_interval": 1, "batch_sched_delay": 0, "bf_interval": 3}
    return profile(groups, {model: [f"{model}n"] for model in MODELS}, scheduler=passes)


@dataclass(frozen=True, kw_only=True)
class RaceFiles:
    """A race directory after the fact."""

    directory: Path

    @property
    def race_id(self) -> str:
        return self.directory.name

    @property
    def record(self) -> dict[str, Any]:
        return json.loads((self.directory / "race.json").read_text())

    @property
    def submitted(self) -> dict[int, list[int]]:
        """Job ids by submission number."""
        return {
            int(path.stem): [int(word) for word in path.read_text().split()]
            for path in self.directory.glob("jobs/*.id")
        }

    @property
    def begun(self) -> list[int]:
        """The submissions whose script Slurm began to run: it opens the log just before."""
        return sorted(int(path.stem) for path in self.directory.glob("jobs/*.log"))

    @property
    def claimants(self) -> list[str]:
        """The jobs that got as far as trying to claim."""
        return sorted(path.name for path in self.directory.glob("claims/*"))

    @property
    def claim(self) -> dict[str, str]:
        """The claim's fields, with its first line as `owner`; {} where nobody claimed."""
        path = self.directory / "claim"
        if not path.exists():
            return {}
        owner, *rest = path.read_text().splitlines()
        return {"owner": owner} | dict(line.split("=", 1) for line in rest if "=" in line)

    def logs(self) -> str:
        """What the job scripts themselves said."""
        paths = sorted(self.directory.glob("jobs/*.log"))
        return "".join(f"{path.name}: {path.read_text()}" for path in paths)

    def names(self, folder: str) -> list[str]:
        """The marks in a folder."""
        return sorted(path.name for path in self.directory.glob(f"{folder}/[!.]*"))


@dataclass(frozen=True, kw_only=True)
class Rv:
    """`rv` on one sandbox, with race, cache and config folders of its own under `home`."""

    box: sandbox.Sandbox
    home: Path
    prefix: tuple[str, ...] = ()
    more: Mapping[str, str] = field(default_factory=dict)
    user: str = ""

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SLURM_CONF": str(self.box.slurm_conf),
            "RV_RACE_ROOT": str(self.races_root),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            **self.more,
        }

    @property
    def races_root(self) -> Path:
        return self.home / "races"

    @property
    def starts_file(self) -> Path:
        """Where `count_starts` writes."""
        return self.home / "starts"

    @property
    def count_starts(self) -> str:
        """A command that leaves one line for each of its starts."""
        return f'echo "$RV_RACE $SLURM_JOB_ID" >> {self.starts_file}'

    @property
    def starts(self) -> Counter[str]:
        """How often the command started, by race."""
        if not self.starts_file.exists():
            return Counter()
        return Counter(line.split()[0] for line in self.starts_file.read_text().splitlines())

    def client_environment(self, home: Path | None = None) -> Mapping[str, str]:
        """What `rv` is called with; over ssh `home` is that of the logins."""
        if not OVER:
            return self.environment
        inside = home and home.is_relative_to(self.home)
        return login_node(self.home, self.user).environment(
            self.environment, home if inside else self.home
        )

    def launch(self, *arguments: str, cwd: Path | None = None) -> "subprocess.Popen[str]":
        """Start `rv` with these arguments; its output goes to pipes."""
        return subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "rv", *arguments],
            cwd=cwd or self.home,
            env=self.client_environment(cwd),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(
        self, *arguments: str, cwd: Path | None = None, timeout: float = 600
    ) -> "subprocess.CompletedProcess[str]":
        """Run `rv` to its end."""
        with self.launch(*arguments, cwd=cwd) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def slurm(self, *argv: str, check: bool = True) -> str:
        """Run a Slurm command as the tests' own user; its answer."""
        done = subprocess.run(
            argv, env=self.environment, capture_output=True, text=True, timeout=60
        )
        assert not check or done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout if check else done.stdout + done.stderr

    def fill(self, node: str, gpus: int, *options: str) -> str:
        """Keep GPUs of a node busy until cancelled; the id of the job."""
        return self.slurm(
            "sbatch", "--parsable", "-w", node, f"--gres=gpu:{gpus}", "--mem=100", "-o", "/dev/null",
            "--no-requeue", *options, "--wrap", "exec sleep 3600",
        ).strip()  # fmt: skip

    def wait_for_idle_nodes(self) -> None:
        """Until the whole cluster is: a node that still completes a job is passed over."""
        deadline = time.monotonic() + 60
        while states := set(self.slurm("sinfo", "-h", "-o", "%T").split()) - {"idle"}:
            assert time.monotonic() < deadline, f"nodes are still {states}"
            time.sleep(0.1)

    def job_state(self, job: str | int) -> str:
        """A job's state as the queue has it, "" where it has none."""
        return self.slurm(
            "squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T", check=False
        ).strip()

    def queue(self) -> list[str]:
        """The names of rv's jobs in Slurm's queue."""
        return [
            name for name in self.slurm("squeue", "-h", "-o", "%j").split() if name[:3] == "rv-"
        ]

    def files(self) -> list[RaceFiles]:
        """The races, oldest first; not what is only being staged, whose name begins with a dot."""
        records = self.races_root.glob("[!.]*/race.json")
        found = [RaceFiles(directory=path.parent) for path in records]
        return sorted(found, key=lambda files: files.record["submitted_at"])

    def last(self) -> RaceFiles:
        """The latest race."""
        return self.files()[-1]

    def states(self) -> dict[str, dict[str, Any]]:
        """What `rv ps` says, by race."""
        done = self("ps", "-a", "--json")
        assert done.returncode == 0, done.stderr
        return {race["race"]: race for race in json.loads(done.stdout)["races"]}

    def state(self) -> dict[str, Any]:
        """What `rv ps` says of the latest race."""
        return self.states()[self.last().race_id]


_LOGIN_NODES: dict[Path, LoginNode] = {}
_ONE_AT_A_TIME = threading.Lock()


def login_node(home: Path, user: str) -> LoginNode:
    """The login node of who has this home, for as long as the tests run."""
    with _ONE_AT_A_TIME:
        if home not in _LOGIN_NODES:
            _LOGIN_NODES[home] = LoginNode(home / "login", home, OVER, user)
        return _LOGIN_NODES[home]


def end_login_node(home: Path) -> None:
    """End the one of a home that goes."""
    if home in _LOGIN_NODES:
        _LOGIN_NODES.pop(home).stop()


def end_login_nodes() -> None:
    """End all of them: a worker of pytest-xdist does not come to its atexit functions."""
    for home in list(_LOGIN_NODES):
        end_login_node(home)


@contextmanager
def rv_of(user: str, box: sandbox.Sandbox, home: Path, before: Sequence[str] = ()) -> Iterator[Rv]:
    """`rv` as another user of this machine, who has no rights; `before` is run in front of it.

    `home` is theirs, and goes with all that it holds.
    """
    entry = pwd.getpwnam(user)
    home.mkdir(mode=0o755)
    os.chown(home, entry.pw_uid, entry.pw_gid)
    drop = ("setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups")
    more = {
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        yield Rv(box=box, home=home, prefix=(*before, *drop), more=more, user=user)
    finally:
        end_login_node(home)
        shutil.rmtree(home)
