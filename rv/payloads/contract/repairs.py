"""What a driver says must be done to a GPU: in the same words from NVML and from nvidia-smi."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

CHANNEL = "a repair of a memory channel waits for a reset"
TPC = "a repair of a TPC waits for a reset"
UNREPAIRABLE = "memory that cannot be repaired"
SRAM = "more SRAM errors than NVIDIA allows"
RESET = "a reset is required"
PAGE = "a memory page waits for a reset to be retired"

RESET_STATUS, RECOVERY_ACTION = 226, 230  # NVML_FI_DEV_RESET_STATUS, _GET_GPU_RECOVERY_ACTION
ACTIONS = (
    "None", "Reset", "Reboot", "Drain P2P", "Drain and Reset", "Recover IMEX Domain",
    "Bus Reset", "System Reboot",
)  # fmt: skip
"""NVML_GPU_RECOVERY_ACTION_*, by their numbers, as nvidia-smi calls them."""


def asked_for(action: str) -> str:
    """Say that the driver asks for a recovery action."""
    return f"the driver asks for {action!r}"


def told_by_nvml(nvml: Any, card: Any) -> Iterator[str]:
    """Say what NVML tells must be done to a card, not to a MIG slice; nothing of a sound one.

    What a card does not have, a driver or a module is too old for (repairs are told since driver
    580), or this user may not ask is no finding: nvidia-smi tells no more.
    """
    if _answer(nvml, "nvmlDeviceGetRetiredPagesPendingStatus", card):
        yield PAGE
    pending = _answer(nvml, "nvmlDeviceGetRepairStatus", card) or (0, 0)
    yield from (said for said, is_so in zip((CHANNEL, TPC), pending, strict=False) if is_so)
    if _answer(nvml, "nvmlDeviceGetUnrepairableMemoryFlag_v1", card):
        yield UNREPAIRABLE
    if _is_over_threshold(nvml, card):
        yield SRAM
    yield from _recovery(nvml, card)


def _answer(nvml: Any, function: str, *words: Any) -> Any:
    """Call; None where this module, driver or card does not tell."""
    try:
        return getattr(nvml, function)(*words)
    except Exception:
        return None


def _is_over_threshold(nvml: Any, card: Any) -> bool:
    """Whether there are more uncorrectable SRAM errors than NVIDIA allows."""
    try:
        status = nvml.c_nvmlEccSramErrorStatus_v1_t()
        nvml.nvmlDeviceGetSramEccErrorStatus(card, ctypes.byref(status))
    except Exception:
        return False
    return bool(status.bThresholdExceeded)


def _recovery(nvml: Any, card: Any) -> Iterator[str]:
    """Say which recovery the driver asks for; an old one only tells that a reset is required."""
    fields = _answer(nvml, "nvmlDeviceGetFieldValues", card, [RECOVERY_ACTION, RESET_STATUS])
    told = {field.fieldId: field.value.uiVal for field in fields or () if field.nvmlReturn == 0}
    action = told.get(RECOVERY_ACTION, 0)
    if action:
        yield asked_for(ACTIONS[action] if action < len(ACTIONS) else f"action {action}")
    elif told.get(RESET_STATUS):
        yield RESET
