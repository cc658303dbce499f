"""A burn in the background (`--detach`, `--status`, `--stop`), and its state while it runs."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _harness import files
from _processes import processes, programs

if TYPE_CHECKING:
    from collections.abc import Callable

    from _telemetry import Reading


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags, which must be read before anything else is."""
    parser.add_argument("--detach", action="store_true", help="burn in the background until --stop")
    parser.add_argument("--status", action="store_true", help="show the burn in the background")
    parser.add_argument("--stop", action="store_true", help="stop the burn in the background")
    parser.add_argument("--pid-file", help="who burns (default: stress.pid in the report folder)")


def controlled(argv: list[str]) -> int | None:
    """Do what one of the flags asks; None where none is given and the burn is to be run here."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_flags(parser)
    parser.add_argument("--report-dir", default=os.environ.get("RV_OUTPUT_DIR") or ".")
    options, _ = parser.parse_known_args(argv)
    folder = Path(options.report_dir)
    pid_file = Path(options.pid_file or folder / "stress.pid")
    try:
        if options.stop:
            return _stop(pid_file)
        if options.status:
            return _status(pid_file, folder)
        return _detach(argv, pid_file, folder) if options.detach else None
    except (programs.NotStopped, OSError) as error:
        print(f"[STRESS] {error}")
        return 99


def _stop(pid_file: Path) -> int:
    stopped = programs.stop(pid_file)
    print(f"[STRESS] stopped process {stopped.pid}; its result is beside its log")
    return 0


def _status(pid_file: Path, folder: Path) -> int:
    """Say whether it burns, and the last that was seen of it."""
    from .background import line

    known = programs.read_pid_file(pid_file)
    running = known is not None and processes.is_alive(known)
    print(f"[STRESS] {f'running as process {known.pid}' if known and running else 'not running'}")
    try:
        seen = json.loads((folder / "stress_heartbeat.json").read_text())
    except (OSError, ValueError):
        seen = {"devices": [], "elapsed_s": 0}
    for device in seen["devices"]:
        print(f"[STRESS] {seen['elapsed_s']:.0f} s  {line(device)}")
    return 0 if running else 1


def _detach(argv: list[str], pid_file: Path, folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-u", sys.argv[0], *(word for word in argv if word != "--detach")]
    known = programs.detach([*command, "--endless"], pid_file, folder / "stress.log")
    print(f"[STRESS] Started continuous stress (PID: {known.pid}), log {folder / 'stress.log'}")
    print(f"[STRESS] Stop it with --stop --report-dir {folder}")
    return 0


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
