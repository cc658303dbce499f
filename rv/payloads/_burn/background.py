"""A burn in the background (`--detach`, `--status`, `--stop`), and its state while it runs.

`--stop` ends with the burn's own verdict and exit code, also where the burn had ended before.
"""

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
from contract.verdicts import ERROR, EXIT_CODES, WORST_FIRST

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.readings import Reading

KEPT_EVERY_S = 1.0
HEARTBEAT = "stress_heartbeat.json"
STARTING_S = 180.0  # in which a burn that is detached should be seen burning
PRINTED_EVERY_S = 10.0  # in a log; on a terminal as often as it is kept
FIGURES = {"utilisation": "%", "temperature_c": "C", "power_w": "W", "sm_mhz": "MHz"}


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
    parser.add_argument("--report-name", default="stress_result.json")
    options, _ = parser.parse_known_args(argv)
    folder = Path(options.report_dir)
    pid_file = Path(options.pid_file or folder / "stress.pid")
    result = folder / options.report_name
    try:
        if options.stop:
            return _stop(pid_file, result)
        if options.status:
            return _status(pid_file, folder)
        return _detach(argv, pid_file, result) if options.detach else None
    except (programs.NotStopped, OSError) as error:
        print(f"[STRESS] {error}")
        return 99


def _status(pid_file: Path, folder: Path) -> int:
    """Print whether it burns, and its newest state."""
    identity = programs.read_pid_file(pid_file)
    if identity is None or not processes.is_alive(identity):
        identity = None
    print(f"[STRESS] {f'running as process {identity.pid}' if identity else 'not running'}")
    try:
        heartbeat = json.loads((folder / HEARTBEAT).read_text())
    except (OSError, ValueError):
        heartbeat = {"devices": [], "elapsed_s": 0}
    for device in heartbeat["devices"]:
        print(f"[STRESS] {heartbeat['elapsed_s']:.0f} s  {_line(device)}")
    return 0 if identity else 1


def _stop(pid_file: Path, result: Path) -> int:
    """Stop the burn, print its verdict and return its exit code; without a result that is 99."""
    known = programs.read_pid_file(pid_file)
    try:
        stopped = programs.stop(pid_file)
        print(f"[STRESS] stopped process {stopped.pid}; its result is beside its log")
    except programs.NotStopped as error:
        if known is None or not result.exists():
            raise
        print(f"[STRESS] {error}; its result is what it left")
    summary = (files.read(result) or {}).get("summary", {})
    code = summary.get("exit_code")
    if not isinstance(code, int) or summary.get("status") not in WORST_FIRST:
        print(f"[RESULT] ERROR: the burn left no result in {result}, see its log")
        return EXIT_CODES[ERROR]
    reason = f": {summary['reason']}" if summary.get("reason") else ""
    print(f"[RESULT] {summary['status']}{reason}")
    return code


def _detach(argv: list[str], pid_file: Path, result: Path) -> int:
    folder = result.parent
    folder.mkdir(parents=True, exist_ok=True)
    heartbeat = folder / HEARTBEAT
    earlier = programs.read_pid_file(pid_file)
    if earlier is None or not processes.is_alive(earlier):
        for left in (result, heartbeat):  # what an earlier burn left says nothing of this one
            left.unlink(missing_ok=True)
    command = [sys.executable, "-u", sys.argv[0], *(word for word in argv if word != "--detach")]
    identity = programs.detach([*command, "--endless"], pid_file, folder / "stress.log")
    print(f"[STRESS] Started continuous stress (PID: {identity.pid}), log {folder / 'stress.log'}")
    deadline = time.monotonic() + STARTING_S
    while not _burns(heartbeat) and processes.is_alive(identity) and time.monotonic() < deadline:
        time.sleep(0.1)  # stopped before it burns it would have no verdict
    print(f"[STRESS] Stop it with --stop --report-dir {folder}")
    return 0


def _burns(heartbeat: Path) -> bool:
    """Whether no device is still starting."""
    try:
        devices = json.loads(heartbeat.read_text())["devices"]
    except (OSError, ValueError):
        return False
    return all(device.get("state") != "starting" for device in devices)


class Live:
    """Shows the state of all devices at a pace that people can read."""

    def __init__(self, folder: Path, say: Callable[[str, str], None]) -> None:
        self._say, self._heartbeat = say, folder / HEARTBEAT
        self._start_s = time.monotonic()
        self._kept_s = self._printed_s = -1e9
        self._every_s = KEPT_EVERY_S if sys.stdout.isatty() else PRINTED_EVERY_S

    def show(self, devices: list[dict[str, Any]]) -> None:
        """Print and keep the state, if it is time; each device is `state()`'s dictionary."""
        now_s = time.monotonic()
        elapsed_s = now_s - self._start_s
        if now_s - self._kept_s >= KEPT_EVERY_S:
            self._kept_s = now_s
            document = {"at": time.time(), "elapsed_s": round(elapsed_s, 1), "devices": devices}
            files.write(self._heartbeat, document)
        if now_s - self._printed_s >= self._every_s:
            self._printed_s = now_s
            self._say("STRESS", f"{elapsed_s:.0f} s  " + "  |  ".join(map(_line, devices)))


def state(device: str, reading: Reading, **work: Any) -> dict[str, Any]:
    """Put together what a device reports of itself and what its burn reports."""
    figures = {name: getattr(reading, name) for name in FIGURES}
    return {"device": device, **figures, **work}


def _line(device: dict[str, Any]) -> str:
    """Write one device's state for people; `--` is what it does not report."""
    parts = [device["device"]]
    for name, unit in FIGURES.items():
        value = device.get(name)
        parts.append(f"{'--' if value is None else format(value, '.0f')} {unit}")
    if device.get("tflops") is not None:
        parts.append(f"{device['tflops']:.4g} TFLOPS")
    if device.get("products") is not None:
        parts.append(f"{device['products']} products")
    return "  ".join([*parts, f"errors {device.get('errors', 0)}"])
