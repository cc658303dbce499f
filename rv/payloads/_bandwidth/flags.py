"""The flags of membw.py."""

from __future__ import annotations

import argparse
import re

from .patterns import BITS

PARTS = ("stream", "host", "peer", "pcie", "patterns")
SHIFTS = {False: 64, True: 8}
"""Walking positions: a word has 64."""
UNITS = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this payload's flags."""
    parser.add_argument("--parts", type=_parts, default=list(PARTS), help="comma-separated")
    parser.add_argument(
        "--memory", type=_memory_word, help="to test: 90%% of what is free, 8G, 512M or MiB"
    )
    parser.add_argument("--shifts", type=int, help="walking positions (64; --quick 8)")
    parser.add_argument("--serial", action="store_true", help="one GPU after the other")
    parser.add_argument(
        "--floor", type=_floor, action="append", default=[], metavar="NAME=GB/s",
        help="fail below: stream_copy=3800, h2d_pinned=45, …",
    )  # fmt: skip


def check_flags(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Fill in what depends on other flags."""
    options.floors = dict(options.floor)
    if options.shifts is None:
        options.shifts = SHIFTS[options.quick]
    if not 1 <= options.shifts <= BITS:
        parser.error(f"--shifts is from 1 to {BITS}")


def _parts(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no part {unknown[0]!r}: {', '.join(PARTS)}")
    return names


def _memory_word(text: str) -> str:
    if not re.fullmatch(r"\d+(\.\d+)?[%KMGT]|[1-9]\d*", text, re.IGNORECASE):
        raise argparse.ArgumentTypeError(f"{text!r} is not like 90%, 8G, 512M or 1000 (MiB)")
    return text


def _floor(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=GB/s") from None


def sized(text: str, free: int) -> int:
    """Read `90%`, `8G`, `512M` or a number of MiB."""
    number, unit = text[:-1], text[-1].upper()
    if unit == "%":
        return int(free * float(number) / 100)
    return int(text) * UNITS[""] if unit.isdecimal() else int(float(number) * UNITS[unit])
