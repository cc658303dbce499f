"""What is seen while it burns: a line on the console, and a file for those who ask later."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from _harness import files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _telemetry import Reading

EVERY, EVERY_ON_PAPER = 1.0, 10.0  # seconds between lines, on a terminal and in a log


class Live:
    """Shows the state of all devices at a pace that people can read."""

    def __init__(self, heartbeat: Path, say: Callable[[str, str], None]) -> None:
        self._start, self._say, self._heartbeat = time.monotonic(), say, heartbeat
        self._shown = self._kept = -1e9
        self._every = EVERY if sys.stdout.isatty() else EVERY_ON_PAPER

    def show(self, devices: list[dict[str, Any]]) -> None:
        """Show and keep the state, if it is time; each device is `state()`'s dictionary."""
        now = time.monotonic()
        elapsed = now - self._start
        if now - self._kept >= EVERY:
            self._kept = now
            document = {"at": time.time(), "elapsed_s": round(elapsed, 1), "devices": devices}
            files.write(self._heartbeat, document)
        if now - self._shown >= self._every:
            self._shown = now
            self._say("STRESS", f"{elapsed:.0f} s  " + "  |  ".join(map(line, devices)))


def state(name: str, reading: Reading, **work: Any) -> dict[str, Any]:
    """Put together what a device says of itself and what its burn says."""
    return {
        "device": name,
        "utilisation": reading.utilisation,
        "temperature_c": reading.temperature_c,
        "power_w": reading.power_w,
        "sm_mhz": reading.sm_mhz,
        **work,
    }


def line(device: dict[str, Any]) -> str:
    """Give one device's state for people; `--` is what it does not tell."""

    def figure(name: str, unit: str) -> str:
        value = device.get(name)
        return f"{'--' if value is None else format(value, '.0f')} {unit}"

    parts = [
        device["device"],
        figure("utilisation", "%"),
        figure("temperature_c", "C"),
        figure("power_w", "W"),
        figure("sm_mhz", "MHz"),
    ]
    if device.get("tflops") is not None:
        parts.append(f"{device['tflops']:.4g} TFLOPS")
    if device.get("products") is not None:
        parts.append(f"{device['products']} products")
    return "  ".join([*parts, f"errors {device.get('errors', 0)}"])
