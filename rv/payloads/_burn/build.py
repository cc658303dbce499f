"""Getting a gpu-burn: one that is there, or one compiled from sources that are there."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SOURCE = "https://github.com/wilicc/gpu-burn"
COMMIT = "3c1b147de187fb82b3ac9bc0913317cdb47e37fe"  # 2026-05-27: compiles for CUDA 11 to 13
SOURCES = ("*.cpp", "*.cu", "Makefile")
COMMON = ("usr/local/cuda/bin", "opt/cuda/bin")
VERSIONED = ("usr/local/cuda-*/bin", "opt/nvidia/hpc_sdk/*/*/cuda/bin", "opt/cuda-*/bin")
ERROR_LINE = re.compile(r"\b(error|fatal)\b[^:]*:|cannot find|No such file")
COMPILE_WITHIN_S = 300.0


class Unavailable(Exception):  # noqa: N818 - told to the user
    """There is no gpu-burn, for this reason."""


@dataclass(frozen=True)
class Toolkit:
    """An nvcc and its CUDA version."""

    nvcc: Path
    version: tuple[int, ...]


def find_gpu_burn(
    environ: Mapping[str, str], capability: str, root: Path = Path("/"), *, fetch: bool = False
) -> tuple[Path | None, list[str]]:
    """Find gpu-burn, else compile it for a compute capability such as `9.0`.

    Return the program, or None, and notes for the user on how it was looked for.
    """
    notes: list[str] = []
    home = Path(environ.get("HOME", "/nonexistent")) / "gpu-burn"
    program = _installed(environ, home)
    try:
        if program is None:
            toolkit = find_toolkit(environ, _driver_cuda(), root)
            _require_tools(environ)
            source = _source(environ, home, fetch=fetch)
            version = ".".join(map(str, toolkit.version))
            notes += [f"CUDA toolkit found: {toolkit.nvcc} ({version})"]
            notes += ["Build tools found (gcc, make)", "Compiling gpu-burn from source"]
            program = _compile(source, toolkit, capability, environ)
            notes.append("Successfully compiled gpu-burn")
    except Unavailable as error:
        return None, [*notes, str(error)]
    return program, [*notes, f"Binary: {program}"]


def _installed(environ: Mapping[str, str], home: Path) -> Path | None:
    """Find a compiled one: on PATH, else in the home folder; its kernel must lie beside it."""
    for name in ("gpu_burn", "gpu-burn"):
        on_path = shutil.which(name, path=environ.get("PATH", ""))
        if on_path:
            return Path(on_path).resolve()
    program = home / "gpu_burn"
    return program if os.access(program, os.X_OK) and program.is_file() else None


def find_toolkit(
    environ: Mapping[str, str], driver: tuple[int, ...] | None, root: Path = Path("/")
) -> Toolkit:
    """Find an nvcc that the driver can run programs of; the first named one, else the newest.

    Raises Unavailable with the folders that were looked into.
    """
    on_path = shutil.which("nvcc", path=environ.get("PATH", ""))
    candidates = [Path(on_path)] if on_path else []
    candidates += [folder / "nvcc" for folder in _folders(environ, root)]
    for nvcc in candidates:
        version = _version(nvcc)
        if version and (driver is None or version[:1] <= driver[:1]):  # minor versions are free
            return Toolkit(nvcc, version)
    tried = ["PATH", *map(str, _folders(environ, root))]
    listed = "\n".join(f"   - {folder}" for folder in tried)
    raise Unavailable(f"CUDA toolkit (nvcc) not found in:\n{listed}")


def _folders(environ: Mapping[str, str], root: Path) -> Iterator[Path]:
    """Name the folders that may hold nvcc, best first: what the user named, then where it lies."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if environ.get(name):
            yield Path(environ[name]) / "bin"
    yield from (root / folder for folder in COMMON)
    for pattern in VERSIONED:
        yield from sorted(root.glob(pattern), key=_numbers, reverse=True)


def _numbers(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(folder))]


def _version(nvcc: Path) -> tuple[int, ...] | None:
    if not nvcc.is_file():
        return None
    try:
        ended = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    release = re.search(r"release (\d+)\.(\d+)", ended.stdout)
    return tuple(map(int, release.groups())) if release else None


def _driver_cuda() -> tuple[int, ...] | None:
    """Ask the driver for the newest CUDA that it runs, such as (13, 0); None without a driver."""
    try:
        number = ctypes.c_int()
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number)) != 0:
            return None
    except OSError:
        return None
    return number.value // 1000, number.value % 1000 // 10


def _require_tools(environ: Mapping[str, str]) -> None:
    path = environ.get("PATH", "")
    lacking = [tool for tool in ("gcc", "make") if not shutil.which(tool, path=path)]
    if lacking:
        raise Unavailable(f"cannot compile gpu-burn without {' and '.join(lacking)}")


def _source(environ: Mapping[str, str], home: Path, *, fetch: bool) -> Path:
    """Find the sources, or clone them. Raises Unavailable."""
    named = environ.get("GPU_BURN_SOURCE")
    for folder in ([Path(named)] if named else []) + [home]:
        if (folder / "Makefile").is_file() and any(folder.glob("*.cu")):
            return folder
    target = _cache(environ) / f"source-{COMMIT}"
    try:
        if fetch and not target.is_dir():
            _clone(target)
    except (OSError, subprocess.SubprocessError):
        fetch = False
    if not fetch:
        raise Unavailable(f"no sources of gpu-burn in $GPU_BURN_SOURCE or {home} ({SOURCE})")
    return target


def _clone(target: Path) -> None:
    """Fetch the one commit that was looked at, whatever the repository has by now."""
    draft = tempfile.mkdtemp(dir=target.parent)
    for words in (["init"], ["fetch", "--depth=1", SOURCE, COMMIT], ["checkout", COMMIT]):
        command = ["git", "-C", draft, words[0], "--quiet", *words[1:]]
        subprocess.run(command, check=True, timeout=120, capture_output=True)
    Path(draft).rename(target)


def _compile(source: Path, toolkit: Toolkit, capability: str, environ: Mapping[str, str]) -> Path:
    """Compile a copy of the sources, once for each toolkit and capability. Raises Unavailable.

    It is made in a draft folder, which gets its name when it is whole.
    """
    key = hashlib.sha256(f"{capability} {toolkit.version}".encode())
    for pattern in SOURCES:
        for file in sorted(source.glob(pattern)):
            key.update(file.read_bytes())
    folder = _cache(environ) / key.hexdigest()[:16]
    if (folder / "gpu_burn").is_file():
        return folder / "gpu_burn"
    draft = Path(tempfile.mkdtemp(dir=folder.parent))
    shutil.copytree(source, draft, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
    path = f"{toolkit.nvcc.parent}:{environ.get('PATH', '')}"
    cuda = toolkit.nvcc.resolve().parent.parent
    try:
        made = subprocess.run(
            ["make", f"COMPUTE={capability}", f"CUDAPATH={cuda}"], cwd=draft, text=True,
            env={**environ, "PATH": path}, timeout=COMPILE_WITHIN_S,
            check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"gpu-burn does not compile: {error}") from error
    if made.returncode or not (draft / "gpu_burn").is_file():
        raise Unavailable(f"gpu-burn does not compile: {_first_error(made.stdout)}")
    try:
        draft.rename(folder)
    except OSError:  # somebody else's build of the same was first
        shutil.rmtree(draft)
    return folder / "gpu_burn"


def _first_error(text: str) -> str:
    lines = text.strip().splitlines() or ["make said nothing"]
    return next((line for line in lines if ERROR_LINE.search(line)), lines[-1])


def _cache(environ: Mapping[str, str]) -> Path:
    """Return the folder of builds on this node's own disk, which must be this user's alone."""
    folder = Path(environ.get("TMPDIR") or tempfile.gettempdir()) / f"rv-gpu-burn-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return Path(tempfile.mkdtemp())
    return folder
