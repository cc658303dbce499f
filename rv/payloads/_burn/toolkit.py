"""Finding the CUDA toolkit: it is on most GPU machines, and on few of their PATHs."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VERSIONED = ("usr/local/cuda-*/bin", "opt/nvidia/hpc_sdk/*/*/cuda/bin", "opt/cuda-*/bin")
COMMON = ("usr/local/cuda/bin", "opt/cuda/bin")


@dataclass(frozen=True)
class Toolkit:
    """An nvcc, its CUDA version, and the folder it is part of."""

    nvcc: Path
    version: tuple[int, ...]

    @property
    def root(self) -> Path:
        """The toolkit's folder, which holds bin, include and lib64."""
        return self.nvcc.resolve().parent.parent


@dataclass(frozen=True)
class Search:
    """What was found, and every folder that was looked into."""

    toolkit: Toolkit | None
    tried: list[str]


def folders(environ: Mapping[str, str], root: Path = Path("/")) -> Iterator[Path]:
    """Name the folders that may hold nvcc, best first: what the user named, then where it lies."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if environ.get(name):
            yield Path(environ[name]) / "bin"
    yield from (root / folder for folder in COMMON)
    for pattern in VERSIONED:
        yield from sorted(root.glob(pattern), key=_numbers, reverse=True)


def find_toolkit(
    environ: Mapping[str, str], driver: tuple[int, ...] | None, root: Path = Path("/")
) -> Search:
    """Find an nvcc that the driver can run programs of; the first named one, else the newest."""
    tried = ["PATH"]
    on_path = shutil.which("nvcc", path=environ.get("PATH", ""))
    candidates = [Path(on_path)] if on_path else []
    for folder in folders(environ, root):
        tried.append(str(folder))
        candidates.append(folder / "nvcc")
    for nvcc in candidates:
        version = _version(nvcc)
        if version and (driver is None or version[:1] <= driver[:1]):  # minor versions are free
            return Search(Toolkit(nvcc, version), tried)
    return Search(None, tried)


def driver_cuda() -> tuple[int, ...] | None:
    """Ask the driver for the newest CUDA that it runs, such as (13, 0); None without a driver."""
    try:
        number = ctypes.c_int()
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number)) != 0:
            return None
    except OSError:
        return None
    return number.value // 1000, number.value % 1000 // 10


def _version(nvcc: Path) -> tuple[int, ...] | None:
    """Ask an nvcc for its version; None where it is not one."""
    if not nvcc.is_file():
        return None
    try:
        done = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    release = re.search(r"release (\d+)\.(\d+)", done.stdout)
    return tuple(map(int, release.groups())) if release else None


def _numbers(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(folder))]
