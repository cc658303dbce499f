"""Xids and SXids from the kernel's log, where this user may read it: most sites keep it to root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections import Counter

from contract.xids import SwitchXid, Xid, parse_xids, read_xid

KMSG = "/dev/kmsg"
JOURNAL = [
    "journalctl", "--dmesg", "--quiet", "--no-pager", "--output=short-monotonic", "--lines=20000",
]  # fmt: skip
DMESG = ["dmesg", "--kernel"]
RECORD = 8192  # bytes: the most that one record of the kernel's log has
READING_S, ASKING_S = 5.0, 10.0


class KernelLog:
    """The Xids and SXids that come between `start` and `new`."""

    def __init__(self) -> None:
        self.source, self._before = "", Counter[str]()

    def start(self) -> None:
        """Take the first log that can be read, and note what is in it already."""
        for source in ("kmsg", "journal", "dmesg"):
            lines = _lines(source)
            if lines is not None:
                self.source, self._before = source, Counter(lines)
                return

    def new(self) -> list[Xid | SwitchXid]:
        """Return those that came since; none where nothing can be read."""
        lines = (_lines(self.source) if self.source else None) or []
        read = (read_xid(line) for line in (Counter(lines) - self._before).elements())
        return [xid for xid in read if xid is not None]


def _lines(source: str) -> list[str] | None:
    """Return a log's lines of Xids and SXids; None where it cannot be read, or is empty."""
    text = _kmsg() if source == "kmsg" else _said(JOURNAL if source == "journal" else DMESG)
    return parse_xids(text) if text else None


def _said(command: list[str]) -> str:
    """Return what a program prints; "" where it is absent, fails, or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=ASKING_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")


def _kmsg() -> str:
    """Read all records that the kernel has, a read each; "" where that is not allowed."""
    records, deadline_s = [], time.monotonic() + READING_S
    with contextlib.suppress(OSError):
        descriptor = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
        try:
            while time.monotonic() < deadline_s:
                try:
                    records.append(os.read(descriptor, RECORD).decode(errors="replace"))
                except BrokenPipeError:
                    continue  # this record was overwritten: the next one is there
        finally:
            os.close(descriptor)
    return "".join(records)
