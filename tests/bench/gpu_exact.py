#!/usr/bin/env python3
"""False alarms of the exact checks: how often sound GPUs are called wrong, over many seeds.

    python tests/bench/gpu_exact.py --repeats 100

Runs on every GPU that it sees, in every number type that each can do; on the CPU where there is
none. Prints checks and alarms of each type, and ends with 1 if there was any alarm.
"""

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "rv" / "payloads"))

from _matmul import exact
from _matmul.dtypes import KINDS, why_not
from contract.verdicts import NotPassed


def main() -> int:
    """Check and count."""
    parser = argparse.ArgumentParser(description="False alarms of the exact checks.")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--size", type=int, default=2048)
    options = parser.parse_args()
    devices = [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cpu"]
    pairs = [(d, k) for d in devices for k in KINDS.values() if not why_not(torch, k, d)]
    checks, alarms = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    for seed in range(options.repeats):
        for device, kind in pairs:
            checks[kind.name] += 1
            try:
                exact.require_exact(torch, kind, device, options.size, seed, spoil=False)
            except NotPassed as alarm:
                alarms[kind.name] += 1
                print(alarm)
    for name, count in checks.items():
        print(f"{name}: checks={count} alarms={alarms[name]}")
    print(f"devices={len(devices)} checks={sum(checks.values())} alarms={sum(alarms.values())}")
    return int(any(alarms.values()))


if __name__ == "__main__":
    sys.exit(main())
