"""How long rv takes to begin, beside importing typer in the same run.

`rv --help` and `rv` alone are to take at most 1.5 as long. Tab is to be answered within 150 ms on a
machine where typer takes 69: 2.2 as long. Its cluster is one that nobody could connect to, with as
many names and races as a large one. On the same machine `rv ps` is to take 150 ms and `rv run -d`
300, on a sandbox that is quiet and on which one race has ended.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cluster import RV, cluster
from timing import alternate

from rv.slurm.cache import SnapshotCache

CLUSTER = "you@login.invalid"
ROUNDS = 15
AFAR = {
    "rv --help": (["--help"], 1.5),
    "rv": ([], 1.5),
    "rv stop <Tab>": (["__complete", "fish", "stop", ""], 2.2),
    "rv up -p <Tab>": (["__complete", "fish", "up", "-p", ""], 2.2),
    "rv up -x <Tab>": (["__complete", "fish", "up", "-x", ""], 2.2),
    "rv up --<Tab>": (["__complete", "fish", "up", "--"], 2.2),
    "rv run <Tab>": (["__complete", "fish", "run", ""], 2.2),
}
"""What is typed with the cluster that is not there, and the most of its ratio."""

HERE = {
    "rv ps": (["ps"], 2.2),
    "rv run -d": (["run", "-d", "--gpu", "1", "--time", "5m", "true"], 4.35),
}
"""What is typed with the sandbox, and the most of its ratio."""


def plant(home: Path) -> None:
    """Keep the names of 2,000 nodes and 200 races, as commands before would have."""
    cache = SnapshotCache(directory=home / "rv", key=f"ssh:{CLUSTER}")
    names = {
        "partitions": [f"gpu{at}" for at in range(40)],
        "nodes": [f"node{at:04}" for at in range(2000)],
    }
    cache.store("names", json.dumps(names), "")
    race = {"name": "train", "state": "waits", "command": "torchrun train.py"}
    races = [
        race | {"race_id": f"k3f9a{at:03}", "submitted_at": time.time() - at} for at in range(200)
    ]
    cache.store("races", json.dumps(races), "")


def measure(commands: dict[str, tuple[list[str], float]], env: dict[str, str]) -> None:
    """Print the ratio of each command to importing typer in the same rounds."""

    def run(*argv: str) -> None:
        command = [sys.executable, *argv]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(command, check=True, env=env, **quiet)

    contenders = {"import typer": lambda: run("-c", "import typer")}
    for name, (words, _) in commands.items():
        contenders[name] = lambda words=words: run("-m", "rv", *words)
    alternate(contenders, rounds=1)  # writes bytecode, and the table that completion reads
    seconds = alternate(contenders, rounds=ROUNDS)
    typer_s = seconds["import typer"]
    print(f"startup: import typer {typer_s * 1000:.0f} ms")
    for name, (_, most) in commands.items():
        ratio = seconds[name] / typer_s
        print(f"startup: {name} {seconds[name] * 1000:.0f} ms, ratio {ratio:.2f} (want <= {most})")


def main() -> None:
    """Print all ratios."""
    # An installed rv has its bytecode; a checkout writes it unless it is told not to.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as home:
        plant(Path(home))
        measure(AFAR, os.environ | {"XDG_CACHE_HOME": home, "RV_CLUSTER": CLUSTER})
    with cluster("small"):
        subprocess.run([*RV, "run", "--gpu", "1", "--time", "5m", "true"], check=True)
        measure({"rv ps": HERE["rv ps"]}, dict(os.environ))
        measure({"rv run -d": HERE["rv run -d"]}, dict(os.environ))


if __name__ == "__main__":
    main()
