#!/usr/bin/env python3
"""What a payload says of a GPU that somebody else uses: planted, on the first GPU of this machine.

    python tests/bench/contention.py                       # about four minutes on one H100
    python tests/bench/contention.py --payloads check --keep DIR

Needs an NVIDIA GPU, torch, and no Slurm. Each payload runs alone, then beside a process that
multiplies matrices all the time, then beside one that holds most of the memory. A line a run:
verdict, codes, class, seconds, what the driver said, the part of the time the payload got, and its
rate by the clock beside a plain loop here. Ends with 1 unless the clean runs have no alarm and the
others the right class.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "rv" / "payloads"))

from _processes.processes import has_first_numbers

PAYLOADS = Path(sys.path[0])

COMMANDS = {
    "check": ["check.py", "--dtypes", "bf16,fp8"],
    "check --quick": ["check.py", "--quick"],
    "stress": ["stress.py", "--engine", "torch", "--duration", "25"],
    "allreduce": ["allreduce.py", "--quick"],
}
BUSY = """
import torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
b = torch.empty_like(a)
torch.mm(a, a, out=b)
torch.cuda.synchronize()
print("ready", flush=True)
while True:
    for _ in range(20):
        torch.mm(a, a, out=b)
    torch.cuda.synchronize()
"""
HOLDS = """
import time, torch
free, total = torch.cuda.mem_get_info()
held = torch.ones(int(free * 0.7), dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True)
time.sleep(3600)
"""
BARE = """
import time, torch
n = {side}
a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
b = torch.empty_like(a)
for _ in range(50): torch.mm(a, a, out=b)
torch.cuda.synchronize()
rounds = max(20, int(2e15 / 2 / n**3))
start = time.perf_counter()
for _ in range(rounds): torch.mm(a, a, out=b)
torch.cuda.synchronize()
print(2 * n**3 * rounds / (time.perf_counter() - start) / 1e12)
"""
PLANTS = {"clean": "", "busy all the time": BUSY, "70 % of the memory held": HOLDS}


def main() -> int:
    """Run every payload beside every plant."""
    parser = argparse.ArgumentParser(description="Who else is on the GPU: planted, and found?")
    parser.add_argument("--payloads", default=",".join(COMMANDS), help="of " + ", ".join(COMMANDS))
    parser.add_argument("--keep", help="folder for results and output")
    options = parser.parse_args()
    folder = Path(options.keep or tempfile.mkdtemp(prefix="rv-contention-"))
    folder.mkdir(parents=True, exist_ok=True)
    show_driver()
    wrong = 0
    for plant, program in PLANTS.items():
        for payload in options.payloads.split(","):
            with planted(program):
                bare = plain_loop(4096) if payload.startswith("check") else None
                done = run(payload, folder / f"{payload}-{plant}".replace(" ", "_"))
            is_right = told(plant, done)
            wrong += not is_right
            show(payload, plant, done, bare, is_right)
    print(f"wrong verdicts: {wrong}; results in {folder}")
    return int(wrong > 0)


def show_driver() -> None:
    """Print what nvidia-smi says before anything runs, and whether processes can be seen."""
    query = ["--query-gpu=index,name,driver_version,memory.used,utilization.gpu,mig.mode.current"]
    print(smi(*query))
    print(
        f"first process namespace: {has_first_numbers()}, NVML: {find_spec('pynvml') is not None}"
    )
    with planted(HOLDS):
        said = smi("--query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name")
        print(f"beside a process that holds memory nvidia-smi lists: {said or 'nobody'}")


def smi(*words: str) -> str:
    """Ask nvidia-smi."""
    command = ["nvidia-smi", *words, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except OSError as error:
        return str(error)
    return (done.stdout + done.stderr).strip()


@contextmanager
def planted(program: str) -> Iterator[None]:
    """Let another process be on the GPU, from when it says that it is."""
    if not program:
        yield
        return
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", "the plant did not start"
            yield
        finally:
            process.kill()


def plain_loop(side: int) -> float:
    """TFLOPS of bf16 products in a loop that nothing interrupts, in a process of its own."""
    command = [sys.executable, "-c", BARE.format(side=side)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def run(payload: str, folder: Path) -> dict[str, Any]:
    """Run a payload; its result, with the seconds that it took."""
    folder.mkdir(exist_ok=True)
    script, *words = COMMANDS[payload]
    command = [sys.executable, str(PAYLOADS / script), *words, "--report-dir", str(folder)]
    start = time.monotonic()
    with (folder / "out").open("w") as out:
        code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT).returncode
    path = folder / script.replace(".py", "_result.json")
    if not path.exists():
        print((folder / "out").read_text()[-2000:])
        raise SystemExit(f"{payload} left no result")
    result: dict[str, Any] = json.loads(path.read_text())
    last = (folder / "out").read_text().splitlines()[-1]
    return {**result, "code": code, "last": last, "seconds": time.monotonic() - start}


def told(plant: str, done: dict[str, Any]) -> bool:
    """Whether the verdict is right: no alarm alone, and beside others CONTENTION and no HARDWARE."""
    failed = [test for test in done["tests"] if test["status"] == "FAIL"]
    classes = {test["class"] for test in failed}
    if plant == "clean":
        bad = {t["code"] for t in done["tests"] if t["status"] in ("WARN", "FAIL", "ERROR")}
        return not bad - {"no_reference"}
    return classes == {"CONTENTION"}


def show(
    payload: str, plant: str, done: dict[str, Any], bare: float | None, is_right: bool
) -> None:
    """Print a run: a line of its verdict, one of what was seen, one for each speed."""
    bad = {
        (t["code"], t["class"]) for t in done["tests"] if t["status"] in ("WARN", "FAIL", "ERROR")
    }
    word = "ok   " if is_right else "WRONG"
    print(
        f"{word} {payload:14} {plant:24} exit {done['code']} {done['seconds']:.0f} s  {done['last']}"
    )
    print(f"        codes: {sorted(bad, key=str)}")
    for test in done["tests"]:
        if test["name"] == "contention":
            print(f"        {test['status']} {test['reason'] or 'nobody else'} {test['details']}")
        for metric in test["metrics"]:
            if metric["unit"] == "TFLOPS":
                show_speed(test, metric, bare)


def show_speed(test: dict[str, Any], metric: dict[str, Any], bare: float | None) -> None:
    """Print a rate by the clock, the median beside it, and a plain loop's where it is the same."""
    rate, median = metric["value"], metric["median"]
    beside = ""
    if bare and (metric.get("dtype"), metric.get("shape")) == ("bf16", "4096x4096x4096"):
        beside = f", {rate / bare:.3f} of the {bare:.1f} of a plain loop in a process of its own"
    own = [m["value"] for m in test["metrics"] if m["name"] == "bare_ratio"]
    within = f", {own[0]:.3f} of its own plain loop" if own else ""
    size = metric.get("shape") or test["details"].get("size")
    print(
        f"        {test['name']} {size}: {rate:.1f} TFLOPS by the clock, median {median:.1f}",
        end="",
    )
    print(f" ({rate / median:.3f}){within}{beside}")


if __name__ == "__main__":
    sys.exit(main())
