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
]  # fmt: skip
THE_GPU = [
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: uncorrectable ECC error encountered",
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
