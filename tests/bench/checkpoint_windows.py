"""Work that can resume, in backfill windows and by one long job: from typing to its end.

Every node is busy for minutes but one, which a job that Slurm has planned leaves idle for four. The
request asks for eight minutes, so that one job cannot have that window; its segments can. A seed takes
a quarter of an hour. Root only: the load is other users'.

    python tests/bench/checkpoint_windows.py --seeds 2
"""

import argparse
import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from random import Random
from typing import Final

from rv.sandbox.schema import load_profile
from tests.bench.cluster import RV, cluster
from tests.bench.contenders import CPUS_PER_GPU, Lines, type_lines
from tests.bench.load import LoadJob, Role, Shape, gpus_per_node, shape_of
from tests.bench.replay import REPOSITORY, Yard
from tests.bench.results import Figure, note

PROFILE: Final = Path(__file__).with_name("starts.yaml")
WINDOW_MINUTES: Final = 4
BUSY_S: Final = (300.0, 360.0)
ASKED_MINUTES: Final = 8
STEPS: Final = 150
"""Seconds of work: more than the segment that fits the window can do."""

HORIZON_S: Final = 600.0
_COMMAND: Final = f"{sys.executable} resume.py {STEPS}"


def load(dice: Random, shape: Shape, size: int) -> list[LoadJob]:
    """One node idle before a planned job, every other one busy."""
    window = dice.choice(sorted(shape))
    jobs = []
    for partition, nodes in shape.items():
        here = partition == window
        minutes = WINDOW_MINUTES if here else ASKED_MINUTES
        for node in nodes[: len(nodes) - here]:
            seconds = WINDOW_MINUTES * 60 - 4 if here else dice.uniform(*BUSY_S)
            jobs.append(
                LoadJob(partition=partition, node=node, gpus=size, minutes=minutes, seconds=seconds)
            )
    planned = LoadJob(
        partition=window, gpus=size, nodes=len(shape[window]), minutes=2, seconds=20,
        role=Role.PLANNED,
    )  # fmt: skip
    return [*jobs, planned]


def typed(yard: Yard, size: int) -> dict[str, Lines]:
    """What each contender types."""
    request = ["--gpu", str(size), "--time", f"{ASKED_MINUTES}m", "--checkpoint"]
    partitions = ",".join(sorted(yard.free_gpus()))
    sbatch = [
        "sbatch", f"--partition={partitions}", "--nodes=1", f"--gres=gpu:{size}",
        f"--cpus-per-gpu={CPUS_PER_GPU}", "--mem-per-gpu=1G", f"--time={ASKED_MINUTES}",
        "--output=/dev/null", "--no-requeue", "--wrap", _COMMAND,
    ]  # fmt: skip
    return {
        "rv --checkpoint": [[*RV, "up", *request, "--run", _COMMAND, "-d"]],
        "one long job": [sbatch],
    }


def finish_s(yard: Yard, jobs: list[LoadJob], lines: Lines) -> float:
    """Empty, load, type, and wait for the last step; the horizon where it did not come."""
    yard.empty()
    for name in ("steps", "step", "over"):
        (yard.work / name).unlink(missing_ok=True)
    yard.load(jobs)
    began = type_lines(yard, lines)
    until = began.at + HORIZON_S
    while time.time() < until and _steps(yard) < STEPS:
        time.sleep(0.5)
    print(began.said(), file=sys.stderr)
    return min(time.time() - began.at, HORIZON_S)


def _steps(yard: Yard) -> int:
    log = yard.work / "steps"
    return len(set(log.read_text(encoding="utf-8").split())) if log.exists() else 0


def main() -> None:
    """Print both times and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=1)
    options = parser.parse_args()
    profile = load_profile(str(PROFILE))
    shape, size = shape_of(profile), gpus_per_node(profile)
    found: dict[str, list[float]] = {}
    with cluster(str(PROFILE)) as target:
        yard = Yard(target=target, home=Path(os.environ["XDG_STATE_HOME"]).parent / "yard")
        yard.furnish()
        yard.no_share_left()
        shutil.copy(REPOSITORY / "examples" / "resume.py", yard.work)
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            jobs = load(Random(seed), shape, size)
            for name, lines in typed(yard, size).items():
                seconds = finish_s(yard, jobs, lines)
                print(f"checkpoint_windows: seed {seed}, {name}: {seconds:.0f} s", flush=True)
                found.setdefault(name, []).append(seconds)
        yard.empty()
    means = {name: statistics.fmean(seconds) for name, seconds in found.items()}
    ratio = means["rv --checkpoint"] / means["one long job"]
    print(f"checkpoint_windows: {options.seeds} seeds, ratio {ratio:.2f}")
    seeds = f"{options.seeds} seed{'s' if options.seeds > 1 else ''}"
    what = f"until {STEPS} s of work are done, `--checkpoint` beside one long job ({seeds})"
    note("checkpoint_windows", [Figure(what=what, value=ratio, unit="times", most=1.0)])


if __name__ == "__main__":
    main()
