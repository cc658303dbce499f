#!/usr/bin/env python3
"""A first honest check of what a job was given: environment, devices, and an exact matmul.

Stand-alone: stdlib, and torch where there is one. Matrices of +1 and -1 have integer products that
every floating type rounds in one way only, so each element of a product must be exactly equal.
The reference is multiplied on the CPU and proven in 64-bit integers, which share no code with it.

Exit codes: 0 PASS or WARN, 1 FAIL, 2 usage, 99 ERROR (could not check), 130 interrupted.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import platform
import random
import socket
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from _accept import EXIT_CODES, NotPassed, Report  # type: ignore[import-not-found]

SHOWN = """
    CUDA_VISIBLE_DEVICES OMP_NUM_THREADS TOKENIZERS_PARALLELISM
    SLURM_JOB_ID SLURM_JOB_PARTITION SLURM_JOB_NODELIST SLURM_CPUS_PER_TASK SLURM_JOB_GPUS
    RV_RACE RV_STRATEGY RV_GPUS RV_CHECKPOINT_DIR RV_OUTPUT_DIR
    HF_HOME TORCH_HOME TRITON_CACHE_DIR VLLM_CACHE_ROOT UV_CACHE_DIR PIP_CACHE_DIR WANDB_DIR
"""
PROOFS = 24  # random vectors: a wrong reference passes them with a chance of at most 2 ** -24
NO_GPU = ("", "-1", "NoDevFiles", "void", "none")


def promised_gpus() -> int:
    """Count the GPUs this node was to give: rv's own word, else the ids that Slurm handed out."""
    told = os.environ.get("RV_GPUS", "")
    if told.isdecimal():
        return int(told)
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"):
        value = os.environ.get(name, "")
        if value not in NO_GPU:
            return len(value.split(","))
    return int(os.environ.get("SLURM_GPUS_ON_NODE", "0") not in ("", "0"))


def load_torch() -> tuple[Any, str]:
    """Import torch; give (None, why) where there is none or it is broken."""
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # numpy is not needed
    try:
        return importlib.import_module("torch"), ""
    except Exception as error:
        return None, str(error).partition("\n")[0] or type(error).__name__


def check_environment(report: Report, torch: Any) -> None:
    """Print and keep what the job was given."""
    report.env = {
        "python": platform.python_version(),
        "torch": torch.__version__ if torch else None,
        "cuda": torch.version.cuda if torch else None,
        "os": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)),
        "vars": {name: os.environ[name] for name in SHOWN.split() if name in os.environ},
    }
    facts = {name: value for name, value in report.env.items() if name != "vars"}
    print(f"[ENV] host {socket.gethostname()}  executable {sys.executable}")
    print("[ENV] " + "  ".join(f"{name} {value}" for name, value in facts.items()))
    for name, value in report.env["vars"].items():
        print(f"[ENV] {name}={value}")
    report.add("environment", "PASS")


def choose_devices(report: Report, torch: Any, why_not: str) -> list[str]:
    """Give the devices to multiply on; raise where GPUs were promised and cannot be checked."""
    promised = promised_gpus()
    fake = os.environ.get("RV_FAKE_GPUS") == "1"
    if promised and fake:
        note = f"sandbox: {promised} fake GPU(s), checked on CPU"
        print(f"[ENV] *** {note} ***")
        report.add("device", "WARN", "fake_gpu", note, device="cpu")
        return ["cpu"]
    if torch is None and promised:
        raise NotPassed("ERROR", "no_torch", f"{promised} GPU(s) given but no torch: {why_not}")
    visible = 0 if torch is None or fake else visible_gpus(torch, promised)
    report.devices = [describe(torch, index) for index in range(visible)]
    for device in report.devices:
        print("[ENV] " + "  ".join(f"{name} {value}" for name, value in device.items()))
    mig = any(device["mig"] for device in report.devices)  # CUDA shows a process one MIG slice
    if visible < (1 if promised and mig else promised):
        build = (
            f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        )
        seen = f"torch sees {visible} of {promised} promised GPU(s); it is {build}"
        raise NotPassed("FAIL", "gpu_not_visible", seen)
    devices = [f"cuda:{index}" for index in range(visible)] or ["cpu"]
    if "LOCAL_RANK" in os.environ and visible:  # one rank a GPU: each checks its own
        devices = [devices[int(os.environ["LOCAL_RANK"]) % visible]]
    report.add("device", "PASS", device=",".join(devices))
    return devices


def visible_gpus(torch: Any, promised: int) -> int:
    """Ask CUDA how many GPUs it sees; a driver that wakes up slowly gets three tries."""
    for _ in range(2):
        if torch.cuda.device_count() >= promised or not torch.version.cuda:
            break
        time.sleep(1)
    return int(torch.cuda.device_count())


def describe(torch: Any, index: int) -> dict[str, Any]:
    """Tell one GPU by what the driver says of it."""
    device = torch.cuda.get_device_properties(index)
    return {
        "index": index,
        "name": device.name,
        "mig": "MIG" in device.name,
        "memory_bytes": device.total_memory,
        "capability": f"{device.major}.{device.minor}",
        "sm_count": device.multi_processor_count,
        "uuid": str(getattr(device, "uuid", "")) or None,
    }


@functools.lru_cache(maxsize=1)
def reference(torch: Any, size: int, seed: int) -> tuple[Any, Any, Any]:
    """Make two matrices of +1 and -1 and their product, proven in integers by Freivalds' test."""
    generator = torch.Generator().manual_seed(seed)

    def signs(columns: int) -> Any:
        return torch.randint(0, 2, (size, columns), generator=generator) * 2 - 1

    left, right, vectors = signs(size), signs(size), signs(PROOFS)
    product = left.float() @ right.float()
    if not torch.equal(product.to(torch.int64) @ vectors, left @ (right @ vectors)):
        raise NotPassed("FAIL", "wrong_result", "the CPU's own product of integers is wrong")
    return left, right, product


def check_matmul(report: Report, torch: Any, device: str, options: argparse.Namespace) -> None:
    """Compare each type's product on a device with the reference, before and after timing it."""
    on_cpu = device == "cpu"
    size = options.size or (512 if on_cpu else 2048) * (1 if options.quick else 2)
    left, right, expected = reference(torch, size, options.seed)
    for name in ["float32", "float64"] if on_cpu else dtypes(torch, device):
        dtype = getattr(torch, name)
        factors = left.to(device, dtype), right.to(device, dtype)
        wanted = expected.to(dtype)
        test = f"matmul.{name}"
        where: dict[str, Any] = {"device": device, "details": {"size": size}}
        try:
            require_equal(factors, wanted, f"{device} {name}", options.inject)
            metric = measure(torch, device, dtype, size)
            require_equal(factors, wanted, f"{device} {name} after timing", "")
        except NotPassed as outcome:
            report.add(test, outcome.status, outcome.code, outcome.reason, **where)
            print(f"[COMPUTE] {device} {name} {size}x{size}: {outcome.status} {outcome.reason}")
        else:
            report.add(test, "PASS", **where, metrics=[metric])
            speed = f"{metric['value']:,.1f} GFLOP/s, median of {metric['n']}"
            print(f"[COMPUTE] {device} {name} {size}x{size}: exact, {speed}")


def dtypes(torch: Any, device: str) -> list[str]:
    """Name the types worth checking there: bfloat16 is emulated before capability 8."""
    capable = torch.cuda.get_device_capability(device)[0] >= 8
    return ["float32", "float16", "bfloat16"] if capable else ["float32", "float16"]


def require_equal(factors: tuple[Any, Any], wanted: Any, what: str, fault: str) -> None:
    """Multiply, and raise with the first wrong element unless all are right."""
    product = (factors[0] @ factors[1]).cpu()
    if fault == "wrong-product":
        product[1, 2] = -product[1, 2] - 1
    wrong = (product != wanted).nonzero()
    if len(wrong):
        row, column = wrong[0].tolist()
        got, want = product[row, column].item(), wanted[row, column].item()
        seen = f"{what}: {len(wrong)} wrong elements, first [{row}, {column}] = {got}, not {want}"
        raise NotPassed("FAIL", "wrong_result", seen)


def measure(torch: Any, device: str, dtype: Any, size: int) -> dict[str, Any]:
    """Time products of random numbers (zeros draw less power): GFLOP/s = 2 N^3 / t."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)

    def once() -> float:
        start = time.perf_counter()
        torch.mm(a, b, out=out)
        if device != "cpu":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    for _ in range(3):
        once()
    deadline = time.perf_counter() + 0.25
    times = [once() for _ in range(5)]
    while time.perf_counter() < deadline:
        times.append(once())
    rates = [2 * size**3 / seconds / 1e9 for seconds in times]
    spread = {"n": len(rates), "min": min(rates), "max": max(rates), "data": "randn"}
    value = statistics.median(rates)
    return {"name": "gflops", "value": value, "unit": "GFLOP/s", "dir": "higher", **spread}


def check_python(report: Report, why_not: str, options: argparse.Namespace) -> None:
    """Multiply without torch, in Python's own integers: all that can be checked, and said so."""
    size, signs = 48, random.Random(options.seed)  # noqa: S311 - test data
    left, right = (
        [[signs.choice((-1, 1)) for _ in range(size)] for _ in range(size)] for _ in "ab"
    )
    product = [[sum(a * r[j] for a, r in zip(row, right)) for j in range(size)] for row in left]  # noqa: B905 - Python 3.8
    if options.inject == "wrong-product":
        product[1][2] += 2
    for _ in range(PROOFS):
        x = [signs.choice((-1, 1)) for _ in range(size)]
        if times(product, x) != times(left, times(right, x)):
            raise NotPassed("FAIL", "wrong_result", "Python's product of integers is wrong")
    note = f"no torch ({why_not}): only Python's own {size}x{size} integer product was checked"
    print(f"[COMPUTE] {note}")
    report.add("matmul.python", "WARN", "no_torch", note, device="cpu")


def times(matrix: list[list[int]], vector: list[int]) -> list[int]:
    """Multiply a matrix with a vector."""
    return [sum(a * b for a, b in zip(row, vector)) for row in matrix]  # noqa: B905 - Python 3.8


def check(report: Report, options: argparse.Namespace) -> None:
    """Run every test; what stops one is its verdict, and never a traceback."""
    torch, why_not = load_torch()
    test = "environment"
    try:
        check_environment(report, torch)
        test = "device"
        devices = choose_devices(report, torch, why_not)
        test = "matmul"
        if torch is None:
            check_python(report, why_not, options)
        else:
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
            for device in devices:
                test = f"matmul on {device}"
                check_matmul(report, torch, device, options)
    except NotPassed as outcome:
        report.add(test, outcome.status, outcome.code, outcome.reason)
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        broken = "CUDA error" in reason or "CUBLAS_STATUS" in reason
        status, code = ("FAIL", "cuda_error") if broken else ("ERROR", "could_not_run")
        report.add(test, status, code, reason)


def options_from(argv: list[str]) -> argparse.Namespace:
    """Read the flags; ranks of one launch share a folder, so each has a result of its own."""
    rank = f".rank{os.environ.get('RANK', '0')}" if os.environ.get("WORLD_SIZE", "1") != "1" else ""
    parser = argparse.ArgumentParser(description="Check what this job was given.")
    parser.add_argument("--quick", action="store_true", help="smaller matrices")
    parser.add_argument("--size", type=int, help="matrix size (default: by device)")
    parser.add_argument("--seed", type=int, default=0, help="of the matrices")
    parser.add_argument("--report-dir", default=os.environ.get("RV_OUTPUT_DIR", ""))
    parser.add_argument("--report-name", default=f"check_result{rank}.json")
    parser.add_argument("--inject", choices=["wrong-product"], default="", help="test the check")
    options = parser.parse_args(argv)
    if options.size is not None and options.size < 4:
        parser.error("--size must be at least 4")
    return options


def main(argv: list[str]) -> int:
    """Check, write the result where it is wanted, and end with the verdict's exit code."""
    options = options_from(argv)
    report = Report("check", quick=options.quick)
    interrupted = False
    try:
        check(report, options)
    except KeyboardInterrupt:
        interrupted = True
        report.add("check", "ERROR", "interrupted", "interrupted")
    if options.report_dir:
        try:
            report.write(Path(options.report_dir) / options.report_name)
        except OSError as error:
            report.add("report", "ERROR", "not_written", f"no result written: {error}")
    status, reason = report.verdict()
    shown = {"PASS": "PASS", "WARN": f"PASS with a warning: {reason}"}
    print(f"[RESULT] {shown.get(status, f'{status}: {reason}')}", flush=True)
    return 130 if interrupted else EXIT_CODES[status]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
