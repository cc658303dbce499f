"""Whose fault an error of CUDA is, by its text: of the software, of others, or of the GPU."""

from __future__ import annotations

VERDICTS = (
    (("no kernel image", "ARCH_MISMATCH"), ("ERROR", "torch_without_arch")),
    (("unsupported toolchain", "driver version is insufficient"), ("FAIL", "driver_mismatch")),
    (("out of memory", "ALLOC_FAILED"), ("FAIL", "out_of_memory")),
    (("busy or unavailable",), ("FAIL", "gpu_busy")),  # in exclusive mode another process has it
)
"""Parts of what cudaGetErrorString and cuBLAS say, and the status and code that they are."""


def verdict(message: str) -> tuple[str, str]:
    """Return the status and the code of an error that CUDA or cuBLAS raised."""
    for texts, outcome in VERDICTS:
        if any(text in message for text in texts):
            return outcome
    return "FAIL", "cuda_error"
