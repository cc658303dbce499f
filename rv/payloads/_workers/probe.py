"""What is launched when no other program is named: it validates the GPUs that it is given.

python probe.py --gpu_ids 0,1
python probe.py --force_cpu
"""

from __future__ import annotations

import argparse
import os
import sys


def main() -> int:
    """Say what was given, and try it; 0 if all is well."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu_ids", default="")
    parser.add_argument("--force_cpu", action="store_true")
    parser.add_argument("--on_cpu", action="store_true", help="pretend to have tried")
    options = parser.parse_args()
    ids = [int(word) for word in options.gpu_ids.split(",") if word and not options.force_cpu]
    print(f"Using GPUs: {ids}" if ids else "Using the CPU: no GPU devices", flush=True)
    print(f"CUDA_VISIBLE_DEVICES: {os.environ.get('CUDA_VISIBLE_DEVICES', '')}")
    wrong = [] if options.on_cpu else wrong_devices(ids)
    print(f"error: wrong product on device {wrong[0]}" if wrong else "GPU validation successful")
    return int(bool(wrong))


def wrong_devices(ids: list[int]) -> list[str]:
    """Multiply a little on each of the GPUs, or on the CPU for none."""
    import torch

    devices = [f"cuda:{number}" for number in ids] or ["cpu"]
    products = [torch.ones(256, 256, device=device) @ torch.ones(256, 256, device=device) for
                device in devices]  # fmt: skip
    return [
        device
        for device, product in zip(devices, products, strict=True)
        if (product != 256.0).any().item()
    ]


if __name__ == "__main__":
    sys.exit(main())
