"""An error of CUDA is the hardware's only where its text names no other cause."""

import signal
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from _burn import torch_burn
from _burn.verdicts import _judge
from _harness.main import _explained
from _processes import processes

from rv.accept.bad_nodes import bad_nodes
from rv.accept.results import Status
from rv.payloads.contract.codes import CODES
from tests.unit.accept.made_results import gpu, outcome, run_of

NOT_THE_GPU = [
    ("CUDA error: no kernel image is available for execution on the device",
     "ERROR", "torch_without_arch", "SOFTWARE"),
    ("CUDA error: CUBLAS_STATUS_ARCH_MISMATCH when calling `cublasCreate(handle)`",
     "ERROR", "torch_without_arch", "SOFTWARE"),
    ("CUDA error: the provided PTX was compiled with an unsupported toolchain.",
     "FAIL", "driver_mismatch", "SOFTWARE"),
    ("CUDA error: CUDA driver version is insufficient for CUDA runtime version",
     "FAIL", "driver_mismatch", "SOFTWARE"),
    ("CUDA error: out of memory", "FAIL", "out_of_memory", "CONFIG"),
    ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
     "FAIL", "out_of_memory", "CONFIG"),
    ("CUDA error: CUDA-capable device(s) is/are busy or unavailable",
     "FAIL", "gpu_busy", "CONTENTION"),
    ("CUDA error: all CUDA-capable devices are busy or unavailable",
     "FAIL", "gpu_busy", "CONTENTION"),
    ("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmulAlgoGetHeuristic(…)`",
     "ERROR", "could_not_run", "SOFTWARE"),
    ("CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasGemmEx(handle, opa)`",
     "ERROR", "could_not_run", "SOFTWARE"),
    ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
     "ERROR", "could_not_run", "SOFTWARE"),
    ("CUDA error: operation not supported", "ERROR", "could_not_run", "SOFTWARE"),
    ("CUDA error: invalid argument", "ERROR", "could_not_run", "SOFTWARE"),
    ("CUDA error: invalid device function", "ERROR", "torch_without_arch", "SOFTWARE"),
    ("Torch not compiled with CUDA enabled", "ERROR", "could_not_run", "SOFTWARE"),
]  # fmt: skip
THE_GPU = [
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: operation not supported on global/shared address space",
    "CUDA error: uncorrectable ECC error encountered",
    "CUDA driver error: unspecified launch failure",
    "Triton Error [CUDA]: an illegal memory access was encountered",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(handle)`",
]
MORE = "\nCUDA kernel errors might be asynchronously reported at some other API call"


def avoided(status: str, code: str, reason: str) -> list[str]:
    """The nodes that a result with this failure has left out."""
    test = outcome("cuda:0", status=Status(status), code=code, reason=reason)
    result = run_of([test], [gpu(0)], status=test.status)
    return [entry.node for entry in bad_nodes([result], "r1", 0.0, 7)]


@pytest.mark.parametrize(("said", "status", "code", "fault"), NOT_THE_GPU)
def test_what_the_gpu_is_not_to_blame_for_makes_no_node_bad(
    said: str, status: str, code: str, fault: str
) -> None:
    """A torch without the GPU's architecture, another driver, a full GPU, one that others have."""
    found = _explained(RuntimeError(said + MORE))

    assert (found.status, found.code, CODES[found.code].fault) == (status, code, fault)
    assert found.reason == f"RuntimeError: {said}"
    assert avoided(found.status, found.code, found.reason) == []


@pytest.mark.parametrize("said", THE_GPU)
def test_any_other_error_of_cuda_is_the_hardwares(said: str) -> None:
    found = _explained(RuntimeError(said + MORE))

    assert (found.status, found.code) == ("FAIL", "cuda_error")
    assert avoided(found.status, found.code, found.reason) == ["n1"]


class DistBackendError(RuntimeError):
    """As torch names what NCCL returns."""


OF_NCCL = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690, {}, "
    "NCCL version 2.28.9\n{}"
)
REMOTE = OF_NCCL.format("remote process exited or there was a network error", "ncclRemoteError")
USAGE = OF_NCCL.format("invalid usage (run with NCCL_DEBUG=WARN for details)", "ncclInvalidUsage")
FULL = OF_NCCL.format(
    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
    "Failed to CUDA calloc async 608 bytes: Cuda failure 2 'out of memory'",
)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (DistBackendError(REMOTE), "FAIL", "collective_timeout"),
        (RuntimeError(REMOTE), "FAIL", "collective_timeout"),
        (RuntimeError("NCCL communicator was aborted on rank 1."), "FAIL", "collective_timeout"),
        (RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:1"),
         "FAIL", "collective_timeout"),
        (RuntimeError("Application timeout caused pair closure"), "FAIL", "collective_timeout"),
        (DistBackendError(USAGE), "ERROR", "could_not_run"),
        (DistBackendError(FULL), "FAIL", "out_of_memory"),
        (RuntimeError("Distributed package doesn't have NCCL built in"), "ERROR", "could_not_run"),
        (RuntimeError("Unconvertible NCCL type Float8_e4m3fn"), "ERROR", "could_not_run"),
        (ValueError("ProcessGroupNCCL is only supported with GPUs, no GPUs found!"),
         "ERROR", "could_not_run"),
        (TypeError("init_process_group() got an unexpected keyword argument 'timeout'"),
         "ERROR", "could_not_run"),
    ],
)  # fmt: skip
def test_only_a_rank_that_is_lost_makes_a_collective_late(
    error: Exception, status: str, code: str
) -> None:
    """What names NCCL is not the fabric's fault for that."""
    found = _explained(error)

    assert (found.status, found.code) == (status, code)


def burned(said: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Status and code of a burn whose torch raises this."""
    sent: list[dict[str, Any]] = []

    def fail(_: str) -> None:
        raise RuntimeError(said)

    torch = SimpleNamespace(cuda=SimpleNamespace(set_device=fail))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(processes, "die_with_parent", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    job: Any = SimpleNamespace(device="cuda:0", label="cuda:0")
    pipe: Any = SimpleNamespace(send=sent.append)
    torch_burn.work(job, pipe)
    (message,) = sent
    worker: Any = SimpleNamespace(errors=0, state="failed", job=job, **message)
    status, code, _ = _judge(worker)
    return status, code


@pytest.mark.parametrize(("said", "status", "code", "fault"), NOT_THE_GPU)
def test_a_burn_names_the_same_cause(
    monkeypatch: pytest.MonkeyPatch, said: str, status: str, code: str, fault: str
) -> None:
    """A burn that has too little memory could not be run."""
    found = burned(said, monkeypatch)

    assert found == ("ERROR" if code == "out_of_memory" else status, code)
    assert CODES[code].fault == fault
    assert avoided(*found, said) == []


def test_a_burn_still_blames_the_gpu_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert burned(THE_GPU[0], monkeypatch) == ("FAIL", "cuda_error")
    assert burned("no such thing", monkeypatch) == ("ERROR", "could_not_run")
