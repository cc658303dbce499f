"""Whose fault an error of CUDA is, by its text: of the software, of others, or of the GPU."""

from __future__ import annotations

RAISED = (
    "CUDA error", "CUBLAS_STATUS", "CUDA out of memory", "CUDA driver error", "Triton Error [CUDA]",
)  # fmt: skip
"""What torch and Triton put into an error of CUDA or cuBLAS, and torch's own allocator raises."""

VERDICTS = (
    (("no kernel image", "ARCH_MISMATCH", "invalid device function"),
     ("ERROR", "torch_without_arch")),
    (("unsupported toolchain", "driver version is insufficient", "unsupported display driver",
      "not supported in the installed CUDA driver"), ("FAIL", "driver_mismatch")),
    (("out of memory", "ALLOC_FAILED"), ("FAIL", "out_of_memory")),
    (("busy or unavailable",), ("FAIL", "gpu_busy")),  # in exclusive mode another process has it
    (("operation not supported on global/shared",), ("FAIL", "cuda_error")),  # a bad address
    (("CUBLAS_STATUS_NOT_SUPPORTED", "CUBLAS_STATUS_INVALID_VALUE", "CUBLAS_STATUS_LICENSE_ERROR",
      "operation not supported", "invalid argument", "invalid configuration argument",
      "invalid resource handle"), ("ERROR", "could_not_run")),
    # A handle is mostly not made for lack of memory, which cuBLAS does not tell.
    (("CUBLAS_STATUS_NOT_INITIALIZED",), ("ERROR", "could_not_run")),
)  # fmt: skip
"""Parts of what cudaGetErrorString and cuBLAS say, and the status and code that they are.

The first that fits counts. What asks for something that there is not is the program's fault.
"""


def is_raised(message: str) -> bool:
    """Return whether an error is one that CUDA or cuBLAS returned: a torch without CUDA is none."""
    return any(text in message for text in RAISED)


def known(message: str) -> tuple[str, str] | None:
    """Return the status and the code of an error whose text names its cause; None for others."""
    for texts, outcome in VERDICTS:
        if any(text in message for text in texts):
            return outcome
    return None


def verdict(message: str) -> tuple[str, str]:
    """Return the status and the code of an error that CUDA or cuBLAS raised."""
    return known(message) or ("FAIL", "cuda_error")
