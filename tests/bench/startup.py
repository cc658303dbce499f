"""How long rv takes to begin, beside importing typer in the same run.

`rv --help` and `rv` alone are to take at most 1.5 as long. Tab is to be answered within 150 ms on a
machine where typer takes 69: 2.2 as long. The cluster is one that nobody could connect to, with as
many names and races as a large one.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import alternate

from rv.slurm.cache import SnapshotCache

CLUSTER = "you@login.invalid"
COMMANDS = {
    "rv --help": (["--help"], 1.5),
    "rv": ([], 1.5),
    "rv stop <Tab>": (["__complete", "fish", "stop", ""], 2.2),
    "rv up -p <Tab>": (["__complete", "fish", "up", "-p", ""], 2.2),
    "rv up -x <Tab>": (["__complete", "fish", "up", "-x", ""], 2.2),
    "rv up --<Tab>": (["__complete", "fish", "up", "--"], 2.2),
    "rv run <Tab>": (["__complete", "fish", "run", ""], 2.2),
}
"""What is typed, and the most of its ratio."""


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


def main() -> None:
    """Print each ratio."""
    with tempfile.TemporaryDirectory() as home:
        plant(Path(home))
        env = os.environ | {"XDG_CACHE_HOME": home, "RV_CLUSTER": CLUSTER}

        def run(*argv: str) -> None:
            command = [sys.executable, *argv]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)

        run("-m", "rv", "__complete", "fish", "")  # makes the table of commands, once
        contenders = {"import typer": lambda: run("-c", "import typer")}
        for name, (words, _) in COMMANDS.items():
            contenders[name] = lambda words=words: run("-m", "rv", *words)
        seconds = alternate(contenders, rounds=15)
    typer_s = seconds["import typer"]
    print(f"startup: import typer {typer_s * 1000:.0f} ms")
    for name, (_, most) in COMMANDS.items():
        ratio = seconds[name] / typer_s
        print(f"startup: {name} {seconds[name] * 1000:.0f} ms, ratio {ratio:.2f} (want <= {most})")


if __name__ == "__main__":
    main()
