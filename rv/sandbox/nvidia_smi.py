"""The fake nvidia-smi: what each fake node says about its GPUs, and how to make it lie.

The program is POSIX sh over flat files, because a node check runs it in every job: no interpreter
to start. Faults are files too, so they take effect at the next call.
"""

import uuid
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.files import write_atomically
from rv.sandbox.layout import Layout
from rv.sandbox.profile import NodeGroup, Profile

SCRIPT: Final = Path(__file__).parent / "nvidia-smi.sh"


class Fault(StrEnum):
    """What a node's nvidia-smi can be told to do wrong."""

    WRONG_MODEL = "wrong-model"
    MISSING_GPU = "missing-gpu"
    ERROR = "error"
    HANG = "hang"
    BUSY = "busy"


def install(profile: Profile, layout: Layout, marker: str) -> None:
    """Write the programs and each node's GPUs."""
    fake = any(gres.count and not gres.files for group in profile.nodes for gres in group.gres)
    if fake:
        _write(layout.bin / "nvidia-smi", SCRIPT.read_text(encoding="utf-8"), 0o755)
    _write(layout.bin / "task-prolog", _prolog(layout, marker, pretends=fake), 0o755)
    for group in (each for each in profile.nodes if not each.cloud):
        for name in group.names:
            folder = layout.nodes / name
            folder.mkdir(exist_ok=True)
            folder.chmod(layout.nodes.stat().st_mode & 0o777)
            _write(folder / "gpus", "".join(_rows(group, name)), 0o644)


def _prolog(layout: Layout, marker: str, *, pretends: bool) -> str:
    """Slurm runs it before each task and takes the `export` lines into the task's environment.

    With `--export=NONE` PATH may be unset, hence the default. RV_FAKE_GPUS tells payloads that
    the GPUs a job was promised are only pretended, so that they say so and use the CPU.
    """
    path = f"PATH={layout.bin}:${{PATH:-/usr/local/bin:/usr/bin:/bin}}"
    exports = [path, marker, f"SLURM_CONF={layout.slurm_conf}"]
    exports += ["RV_FAKE_GPUS=1"] if pretends else []
    return "".join(["#!/bin/sh\n", *(f'echo "export {export}"\n' for export in exports)])


def _write(path: Path, text: str, mode: int) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _rows(group: NodeGroup, node: str) -> Iterator[str]:
    """One line a GPU: index|uuid|product|MiB|MIG profile|number of slices."""
    index = 0
    for gres in group.gres:
        left = gres.count
        for _ in range(gres.physical):
            slices = min(left, gres.slices) if gres.mig else 0
            left -= slices or 1
            unique = uuid.uuid5(uuid.NAMESPACE_DNS, f"{node}.{index}")
            mig = gres.mig or ""
            yield f"{index}|{unique}|{gres.product}|{gres.memory}|{mig}|{slices}\n"
            index += 1


def set_fault(layout: Layout, node: str, fault: Fault | None) -> None:
    """Make a node's nvidia-smi lie from its next call on, or be honest again."""
    folder = layout.nodes / node
    if not (folder / "gpus").is_file():
        names = ", ".join(sorted(path.name for path in layout.nodes.glob("*")))
        raise RvError(
            ErrorKind.SANDBOX, f"no node {node!r} in this sandbox", hint=f"nodes: {names}"
        )
    path = folder / "fault"
    if fault is None:
        path.unlink(missing_ok=True)
        return
    write_atomically(path, f"{fault.value}\n", mode=0o644)


def faults(layout: Layout) -> dict[str, str]:
    """The nodes that lie now."""
    return {
        path.parent.name: path.read_text(encoding="utf-8").strip()
        for path in sorted(layout.nodes.glob("*/fault"))
    }
