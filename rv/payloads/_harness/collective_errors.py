"""Whether an error is of a collective that did not come to its end, by its class and its text.

Texts of gloo (`transport/tcp/pair.cc`, `unbound_buffer.cc`), of torch's stores and of NCCL as
torch 2 gives them (`ProcessGroupNCCL.cpp`, `NCCLUtils.cpp`). The word NCCL alone says nothing: a
torch without it, a type that it does not know and a call in the wrong place name it too.
"""

from __future__ import annotations

from . import cuda_errors

LOST = (
    "Timed out waiting", "Connection closed by peer", "Connection reset", "timeout",
    "NCCL error", "NCCL Error", "NCCL communicator was aborted",
)  # fmt: skip
"""What gloo, a store and NCCL say where another rank, or the way to it, is lost."""
MISUSED = ("invalid usage", "Duplicate GPU detected")
"""What NCCL says of a program at fault, beside the texts of `cuda_errors`."""


def verdict(error: Exception) -> tuple[str, str] | None:
    """Return the status and the code of an error of a collective; None where it is none."""
    if not isinstance(error, RuntimeError | ConnectionError):
        return None  # such as the TypeError of an argument called timeout
    text = str(error)
    if not type(error).__name__.startswith("Dist") and not any(word in text for word in LOST):
        return None
    if any(word in text for word in MISUSED):
        return "ERROR", "could_not_run"
    return cuda_errors.known(text) or ("FAIL", "collective_timeout")
