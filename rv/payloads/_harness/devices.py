"""The GPUs a job was promised, those that torch sees, and which of them to test.

A GPU that was given and is not there is a failure. No GPU asked for is a skip. Neither ever
becomes a quiet run on the CPU: that is for those who ask for it.
"""

from __future__ import annotations

import importlib
import os
import time
import warnings
from typing import TYPE_CHECKING, Any

from contract.nvidia import bare, serial_numbers
from contract.verdicts import NotPassed

from .model_names import same_model

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from .report import Report

NOTHING = ("", "-1", "NoDevFiles", "void", "none")
VECTOR_MATH = ("sqrt", "exp", "log", "tanh", "erf", "sin", "cos")
PROMISES = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")


def load_torch() -> tuple[Any, str]:
    """Import torch; return (None, why) where there is none or it is broken."""
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # numpy is not needed
    try:
        torch = importlib.import_module("torch")
    except Exception as error:
        return None, str(error).partition("\n")[0] or type(error).__name__
    _call_once(torch)
    return torch, ""


def _call_once(torch: Any) -> None:
    """Call the functions of MKL that a payload's threads may call first.

    MKL chooses the kernel of each in its first call. Where several threads make that call, one may
    compute its part with a kernel of low accuracy (pytorch#188792), which looked like a replica
    that differs from the others after the first step of Adam.
    """
    for name in VECTOR_MATH:
        function = getattr(torch, name, None)
        if function is not None:
            function(torch.ones(64))


def require_numpy(torch: Any) -> None:
    """Raise NotPassed (ERROR `no_numpy`) where torch finds no numpy, or one it was not built for.

    Without this check a rank would die in the middle of a collective, which looks like a network
    fault to the others.
    """
    try:
        torch.zeros(1).numpy()
    except (RuntimeError, ImportError) as error:
        raise NotPassed("ERROR", "no_numpy", f"torch cannot use numpy: {error}") from error


def promised_gpus() -> int:
    """Count the GPUs that this node should give: by rv's variable, else by Slurm's ids."""
    count = os.environ.get("RV_GPUS", "")
    if count.isdecimal():
        return int(count)
    for name in PROMISES:
        value = os.environ.get(name, "")
        if value not in NOTHING:
            return len(value.split(","))
    return int(os.environ.get("SLURM_GPUS_ON_NODE", "0") not in ("", "0"))


def choose(report: Report, torch: Any, why_not: str, options: argparse.Namespace) -> list[str]:
    """Return the devices to test, described in the report; a rank of several gets its own.

    Raises NotPassed: SKIP `no_gpu`, FAIL `gpu_not_visible`, ERROR `no_torch`; FAIL `fake_gpu`
    where a GPU is a must.
    """
    if options.device == "cpu":
        return ["cpu"]
    promised = promised_gpus()
    is_required = options.device == "cuda" or options.require_gpu
    if promised and os.environ.get("RV_FAKE_GPUS") == "1":
        return _fake(report, promised, is_required=is_required)
    devices = _real(report, torch, why_not, promised or int(is_required))
    _compare_names(report, options.requested_gpu)
    report.add("device", "PASS", device=",".join(devices))
    return devices


def _real(report: Report, torch: Any, why_not: str, expected: int) -> list[str]:
    """Return the GPUs that torch sees, which must be as many as expected."""
    if torch is None and expected:
        reason = f"{expected} GPU(s) given but no torch: {why_not}"
        raise NotPassed("ERROR", "no_torch", reason)
    report.devices = [] if torch is None else _described(torch, expected)
    if report.ranks.local_rank == 0:
        _show(report.devices)
    _require(report.devices, expected, torch)
    if not report.devices:
        raise NotPassed("SKIP", "no_gpu", "no GPU was asked for, and there is none")
    return _own([f"cuda:{index}" for index in range(len(report.devices))])


def _fake(report: Report, promised: int, *, is_required: bool) -> list[str]:
    """Return the CPU in place of a sandbox's GPUs, unless a real GPU is a must."""
    if is_required:
        raise NotPassed("FAIL", "fake_gpu", f"sandbox: {promised} fake GPU(s), no real one")
    note = f"sandbox: {promised} fake GPU(s), checked on CPU"
    print(f"[ENV] *** {note} ***")
    report.add("device", "SKIP", code="fake_gpu", reason=note, device="cpu")
    return ["cpu"]


def _described(torch: Any, expected: int) -> list[dict[str, Any]]:
    """Describe the GPUs that CUDA sees; a driver that wakes up slowly gets three tries."""
    for _ in range(2):
        if torch.cuda.device_count() >= expected or not torch.version.cuda:
            break
        time.sleep(1)
    found = [describe(torch, index) for index in range(torch.cuda.device_count())]
    return _with_serials(found) if os.environ.get("LOCAL_RANK", "0") == "0" else found


def _with_serials(devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the serial number of each GPU's board: a UUID is on no sticker. None where unknown."""
    known = serial_numbers() if devices else {}
    return [device | {"serial": known.get(bare(device["uuid"] or ""))} for device in devices]


def _show(devices: list[dict[str, Any]]) -> None:
    for device in devices:
        print("[ENV] " + "  ".join(f"{name} {value}" for name, value in device.items()))


def _require(devices: list[dict[str, Any]], expected: int, torch: Any) -> None:
    """Raise NotPassed where fewer GPUs are visible than expected; of MIG slices CUDA shows one."""
    is_mig = any(device["mig"] for device in devices)
    if len(devices) >= (min(expected, 1) if is_mig else expected):
        return
    cuda = torch.version.cuda
    build = f"built for CUDA {cuda}" if cuda else "built without CUDA"
    why = _cuda_says(torch) if cuda and not devices else ""
    reason = f"torch sees {len(devices)} of {expected} promised GPU(s); it is {build}"
    raise NotPassed("FAIL", _invisible(torch, why), f"{reason}: {why}" if why else reason)


def _invisible(torch: Any, why: str) -> str:
    """Return the code of GPUs that torch does not see: the environment's fault, or the node's."""
    if not torch.version.cuda and not getattr(torch.version, "hip", None):
        return "torch_without_cuda"
    if "too old" in why or "forward compat" in why:
        return "driver_mismatch"
    return "gpu_not_visible"


def _cuda_says(torch: Any) -> str:
    """Ask CUDA why it shows no GPU: counting them hides an old driver behind a 0."""
    try:
        torch.cuda.init()
    except Exception as error:
        return str(error).partition("\n")[0]
    return ""


def _own(devices: list[str]) -> list[str]:
    """Return all devices, or under torchrun the one of this rank."""
    if "LOCAL_RANK" not in os.environ:
        return devices
    return [devices[int(os.environ["LOCAL_RANK"]) % len(devices)]]


def _compare_names(report: Report, requested: str) -> None:
    """Warn where a GPU is not the model that was asked for: partitions may be mixed."""
    names = {device["name"] for device in report.devices}
    strange = [name for name in names if not same_model(requested, name)]
    if requested and strange:
        reason = f"asked for {requested}, got {', '.join(sorted(strange))}"
        report.add("requested_gpu", "WARN", code="gpu_mismatch", reason=reason)


def describe(torch: Any, index: int) -> dict[str, Any]:
    """Return one GPU's properties as the driver reports them."""
    device = torch.cuda.get_device_properties(index)
    return {
        "index": index,
        "name": device.name,
        "uuid": str(getattr(device, "uuid", "")) or None,
        "pci_domain_id": getattr(device, "pci_domain_id", None),
        "pci_bus_id": getattr(device, "pci_bus_id", None),
        "pci_device_id": getattr(device, "pci_device_id", None),
        "mig": _mig(device.name),
        "memory_bytes": device.total_memory,
        "capability": f"{device.major}.{device.minor}",
        "sm_count": device.multi_processor_count,
    }


def in_smi_order(described: list[dict[str, Any]], labels: Iterable[str]) -> list[str]:
    """Put `cuda:1`, `cuda:0` into the order of `nvidia-smi -L`, which is that of PCI addresses.

    CUDA counts the fastest GPU first, or as CUDA_VISIBLE_DEVICES has them.
    """
    parts = ("pci_domain_id", "pci_bus_id", "pci_device_id", "index")
    places = {f"cuda:{one['index']}": [one.get(part) or 0 for part in parts] for one in described}
    return sorted(labels, key=lambda label: places.get(label, [0]))


def _mig(name: str) -> dict[str, str] | None:
    """Read the profile from `NVIDIA A100-SXM4-80GB MIG 1g.10gb`."""
    _, mig, profile = name.partition("MIG ")
    return {"profile": profile.strip()} if mig else None
