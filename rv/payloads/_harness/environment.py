"""What a job was given: versions, precision switches and the variables that matter."""

from __future__ import annotations

import os
import platform
import socket
import sys
from pathlib import Path
from typing import Any

_SHOWN = """
    OMP_NUM_THREADS TOKENIZERS_PARALLELISM MASTER_ADDR MASTER_PORT NNODES NODE_RANK
    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
    RV_RACE RV_STRATEGY RV_GPU RV_GPUS RV_WORLD_SIZE RV_CHECKPOINT_DIR RV_OUTPUT_DIR
    HF_HOME TORCH_HOME TRITON_CACHE_DIR VLLM_CACHE_ROOT UV_CACHE_DIR PIP_CACHE_DIR WANDB_DIR
"""
SHOWN = _SHOWN.split()
FAMILIES = ("NCCL_", "CUDA_", "SLURM_")
SECRETS = ("TOKEN", "JWT", "KEY", "SECRET", "PASSWORD")


def environment(torch: Any) -> dict[str, Any]:
    """Describe the process and its software; `torch` may be None."""
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "torch": torch.__version__ if torch else None,
        "cuda": torch.version.cuda if torch else None,
        "nccl": _nccl(torch),
        "cudnn": torch.backends.cudnn.version() if torch else None,
        "driver": _driver(),
        "os": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)),
        "precision": precision(torch) if torch else None,
        "vars": variables(),
    }


def precision(torch: Any) -> dict[str, Any]:
    """Record the switches that change what a product is: TF32 and reduced-precision sums."""
    matmul = torch.backends.cuda.matmul
    return {
        "allow_tf32": torch.get_float32_matmul_precision() != "highest",
        "fp32_precision": torch.get_float32_matmul_precision(),
        "bf16_reduced_precision_reduction": matmul.allow_bf16_reduced_precision_reduction,
        "fp16_reduced_precision_reduction": matmul.allow_fp16_reduced_precision_reduction,
    }


def variables() -> dict[str, str]:
    """Pick the variables worth keeping: named ones and three families, never a secret."""

    def kept(name: str) -> bool:
        family = name.startswith(FAMILIES) and not any(word in name for word in SECRETS)
        return name in SHOWN or family

    return {name: value for name, value in sorted(os.environ.items()) if kept(name)}


def show(env: dict[str, Any]) -> None:
    """Print it with the prefix `[ENV]`; Slurm's many variables only go into the result."""
    facts = {name: value for name, value in env.items() if not isinstance(value, dict)}
    print(f"[ENV] host {socket.gethostname()}")
    print("[ENV] " + "  ".join(f"{name} {value}" for name, value in facts.items()))
    for name, value in env["vars"].items():
        if name in SHOWN or name in {"CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID"}:
            print(f"[ENV] {name}={value}")


def _nccl(torch: Any) -> str | None:
    if torch is None or not torch.cuda.is_available():
        return None
    try:
        return ".".join(str(part) for part in torch.cuda.nccl.version())
    except Exception:
        return None


def _driver() -> str | None:
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return None
