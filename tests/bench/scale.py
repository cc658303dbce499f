"""Parsing and planning a dry run of 4 GPUs on clusters of 1,000 to 30,000 nodes and 5 jobs a node.

Wanted: 10,000 nodes in at most 1 s and 150 MiB, 1,000 nodes in at most 0.25 s. Seconds are the
processor's: what others do on the machine meanwhile does not count, though it slows memory. Each size
has a process of its own, so that one's memory is not another's; growth is that of the same run.

Beside them stands the floor: what Python takes to read the same text, split it into lines, and these
at their separators, and nothing else.
"""

import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from synthetic import SENTINEL, probe_text

from rv.__main__ import COLLECT_AFTER
from rv.config.gpu_models import load_catalogue
from rv.config.strategy_families import load_families
from rv.models.request import Request
from rv.planner import plan, require_feasible
from rv.render.script import sbatch_line
from rv.slurm.probe import build_snapshot
from rv.slurm.script import parse_outputs
from tests.bench.results import Figure, note

SIZES = (1000, 3000, 10_000, 30_000)
JOBS_PER_NODE = 5
WANTED = {1000: (0.25, None), 10_000: (1.0, 150)}
ROUNDS = 5


def measure(path: Path) -> dict[str, float]:
    """Do in this process what a dry run does with a probe's answer, and say what it took."""
    gc.set_threshold(COLLECT_AFTER)  # as the command line does
    catalogue, families = load_catalogue(), load_families()
    text = path.read_bytes().decode("utf-8", errors="replace")
    request = Request(gpus=4)
    began = time.process_time()
    frames = parse_outputs(text, SENTINEL)
    assert frames is not None
    snapshot = build_snapshot(frames, SENTINEL)
    parsed = time.process_time()
    made = plan(request, snapshot, catalogue, families)
    require_feasible(made, request)
    lines = [sbatch_line(job.strategy) for job in made.submissions]
    planned = time.process_time()
    assert lines
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "nodes": len(snapshot.nodes),
        "partitions": len(snapshot.partitions),
        "jobs": len(snapshot.jobs),
        "strategies": len(made.strategies),
        "parse_s": parsed - began,
        "plan_s": planned - parsed,
        "sum_s": planned - began,
        "peak_mib": peak_mib,
        "floor_s": floor_s(text),
    }


def floor_s(text: str) -> float:
    """Split the text into lines, and these into words or columns; the seconds that takes."""
    began = time.process_time()
    for line in text.split("\n"):
        line.split("|" if SENTINEL in line else " ")
    return time.process_time() - began


def apart(nodes: int, folder: Path) -> dict[str, float]:
    """Measure some times, each in a new process; the quickest was disturbed least by others."""
    path = folder / f"{nodes}.txt"
    path.write_text(probe_text(nodes, nodes * JOBS_PER_NODE))
    command = [sys.executable, __file__, str(path)]
    runs = [
        json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        for _ in range(ROUNDS)
    ]
    return min(runs, key=lambda run: run["sum_s"])


def figures(row: dict[str, float]) -> list[Figure]:
    """What a size took, for the page."""
    nodes = int(row["nodes"])
    seconds, mib = WANTED.get(nodes, (None, None))
    what = f"{nodes:,} nodes and {int(row['jobs']):,} jobs"
    return [
        Figure(what=f"{what}: parsed", value=row["parse_s"], unit="s"),
        Figure(what=f"{what}: planned", value=row["plan_s"], unit="s"),
        Figure(what=f"{what}: both", value=row["sum_s"], unit="s", most=seconds),
        Figure(what=f"{what}: memory", value=row["peak_mib"], unit="MiB", most=mib),
        Figure(what=f"{what}: splitting the text alone", value=row["floor_s"], unit="s"),
    ]


def wanted(nodes: int) -> str:
    """Say what a size should take at most."""
    seconds, mib = WANTED.get(nodes, (None, None))
    limits = [f"<= {seconds} s"] if seconds else []
    limits += [f"<= {mib} MiB"] if mib else []
    return f" (want {', '.join(limits)})" if limits else ""


def main() -> None:
    """Print a line for each size, then how much each part grew from the first size to the last."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [apart(nodes, Path(folder)) for nodes in SIZES]
    for row in rows:
        print(
            f"scale: {row['nodes']} nodes, {row['partitions']} partitions, {row['jobs']} jobs, "
            f"{row['strategies']} strategies: parse {row['parse_s']:.3f} s + plan "
            f"{row['plan_s']:.3f} s = {row['sum_s']:.3f} s, {row['peak_mib']:.0f} MiB"
            f"{wanted(int(row['nodes']))}; splitting the text alone {row['floor_s']:.3f} s"
        )
        note("scale", figures(row))
    for small, large in ((rows[0], rows[-1]), *pairwise(rows)):
        parts = ("nodes", "parse_s", "plan_s", "sum_s", "peak_mib")
        factor = (large["sum_s"] / small["sum_s"]) / (large["nodes"] / small["nodes"])
        what = (
            f"{small['nodes']:,} to {large['nodes']:,} nodes: growth of seconds over that of nodes"
        )
        note("scale", [Figure(what=what, value=factor, unit="times")])
        grown = ", ".join(f"{part} x {large[part] / small[part]:.1f}" for part in parts)
        print(f"scale: growth from {small['nodes']} to {large['nodes']} nodes: {grown}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(Path(sys.argv[1]))))
    else:
        main()
