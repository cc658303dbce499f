"""The PCIe link a GPU has while it works: idle ones drop to a slower generation to save power."""

from __future__ import annotations

import subprocess
from typing import NamedTuple

FIELDS = (
    "pcie.link.gen.current",
    "pcie.link.gen.max",
    "pcie.link.width.current",
    "pcie.link.width.max",
)


class Pcie(NamedTuple):
    """Generation and width, now and at most."""

    gen: int
    gen_max: int
    width: int
    width_max: int


def read(uuid: str, timeout: float = 10.0) -> Pcie | None:
    """Ask nvidia-smi about one GPU; None where it is absent, slow, or does not say (MIG)."""
    name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    words = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        asked = subprocess.run(
            [*words, f"--id={name}"], capture_output=True, text=True, timeout=timeout, check=True
        )
        return Pcie(*(int(word) for word in asked.stdout.strip().split(",")))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return None


def complaint(link: Pcie) -> str:
    """Say what is less than it can be; "" where nothing is."""
    found = []
    if link.width < link.width_max:
        found.append(f"x{link.width} of x{link.width_max} lanes")
    if link.gen < link.gen_max:
        found.append(f"generation {link.gen} of {link.gen_max}")
    return ", ".join(found)
