"""`--detach`, `--status` and `--stop`: a burn that goes on without its terminal."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from _processes import identity, pidfile


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
    except (pidfile.NotStopped, OSError) as error:
        print(f"[STRESS] {error}")
        return 99


def _stop(pid_file: Path) -> int:
    stopped = pidfile.stop(pid_file)
    print(f"[STRESS] stopped process {stopped.pid}; its result is beside its log")
    return 0


def _status(pid_file: Path, folder: Path) -> int:
    """Say whether it burns, and the last that was seen of it."""
    from .live import line

    known = pidfile.read(pid_file)
    running = known is not None and identity.alive(known)
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
    known = pidfile.detach([*command, "--endless"], pid_file, folder / "stress.log")
    print(f"[STRESS] Started continuous stress (PID: {known.pid}), log {folder / 'stress.log'}")
    print(f"[STRESS] Stop it with --stop --report-dir {folder}")
    return 0
