"""Getting a gpu-burn: one that is there, or one compiled from sources that are there."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .toolkit import Search, driver_cuda, find_toolkit

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE = "https://github.com/wilicc/gpu-burn"
SOURCES = ("*.cpp", "*.cu", "Makefile")
COMPLAINT = re.compile(r"\b(error|fatal)\b[^:]*:|cannot find|No such file")
PATIENCE = 300.0  # seconds for the compiler


@dataclass
class Found:
    """A gpu-burn that can be run, or none; `notes` tell the user how it was looked for."""

    program: Path | None = None
    notes: list[str] = field(default_factory=list)


def find_gpu_burn(
    environ: Mapping[str, str], capability: str, root: Path = Path("/"), *, fetch: bool = False
) -> Found:
    """Find gpu-burn, else compile it for a compute capability such as `9.0`."""
    found = Found()
    home = Path(environ.get("HOME", "/nonexistent")) / "gpu-burn"
    program = _program(environ, home)
    if program:
        found.program = program
        found.notes.append(f"Binary: {program}")
        return found
    search = find_toolkit(environ, driver_cuda(), root)
    missing = _missing(search, environ)
    if missing:
        found.notes += missing
        return found
    source = _source(environ, home, fetch=fetch)
    if source is None:
        found.notes.append(f"no sources of gpu-burn in $GPU_BURN_SOURCE or {home} ({SOURCE})")
        return found
    _compile(found, search, source, capability, environ)
    return found


def _program(environ: Mapping[str, str], home: Path) -> Path | None:
    """Find a compiled one: on PATH, else in the home folder; its kernel must lie beside it."""
    for name in ("gpu_burn", "gpu-burn"):
        on_path = shutil.which(name, path=environ.get("PATH", ""))
        if on_path:
            return Path(on_path).resolve()
    program = home / "gpu_burn"
    return program if os.access(program, os.X_OK) and program.is_file() else None


def _missing(search: Search, environ: Mapping[str, str]) -> list[str]:
    """Say what compiling lacks; an empty list where nothing is."""
    if search.toolkit is None:
        listed = "\n".join(f"   - {folder}" for folder in search.tried)
        return [f"CUDA toolkit (nvcc) not found in:\n{listed}"]
    path = environ.get("PATH", "")
    lacking = [tool for tool in ("gcc", "make") if not shutil.which(tool, path=path)]
    return [f"cannot compile gpu-burn without {' and '.join(lacking)}"] if lacking else []


def _source(environ: Mapping[str, str], home: Path, *, fetch: bool) -> Path | None:
    named = environ.get("GPU_BURN_SOURCE")
    for folder in ([Path(named)] if named else []) + [home]:
        if (folder / "Makefile").is_file() and any(folder.glob("*.cu")):
            return folder
    return _clone(environ) if fetch else None


def _clone(environ: Mapping[str, str]) -> Path | None:
    """Clone the sources, where a network and git are; None where they are not."""
    target = _cache(environ) / "source"
    if target.is_dir():
        return target
    command = ["git", "clone", "--quiet", "--depth=1", SOURCE, str(target)]
    try:
        subprocess.run(command, check=True, timeout=120, capture_output=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return target


def _compile(
    found: Found, search: Search, source: Path, capability: str, environ: Mapping[str, str]
) -> None:
    """Compile a copy of the sources, once for each toolkit and capability."""
    toolkit = search.toolkit
    assert toolkit is not None
    version = ".".join(map(str, toolkit.version))
    found.notes += [f"CUDA toolkit found: {toolkit.nvcc} ({version})"]
    found.notes += ["Build tools found (gcc, make)", "Compiling gpu-burn from source"]
    folder = _cache(environ) / _key(source, capability, version)
    program = folder / "gpu_burn"
    if not program.is_file():
        why = _make(source, folder, toolkit.root, toolkit.nvcc.parent, capability, environ)
        if why:
            found.notes.append(f"gpu-burn does not compile: {why}")
            return
    found.program = program
    found.notes += ["Successfully compiled gpu-burn", f"Binary: {program}"]


def _make(
    source: Path, folder: Path, root: Path, tools: Path, capability: str, environ: Mapping[str, str]
) -> str | None:
    """Make in a draft folder that gets its name when it is whole; give why it failed."""
    draft = Path(tempfile.mkdtemp(dir=folder.parent))
    shutil.copytree(source, draft, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
    path = f"{tools}:{environ.get('PATH', '')}"
    command = ["make", f"COMPUTE={capability}", f"CUDAPATH={root}"]
    try:
        done = subprocess.run(
            command, cwd=draft, env={**environ, "PATH": path}, text=True, timeout=PATIENCE,
            check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode or not (draft / "gpu_burn").is_file():
        return _complaint(done.stdout)
    try:
        draft.rename(folder)
    except OSError:  # somebody else's build of the same was first
        shutil.rmtree(draft)
    return None


def _complaint(text: str) -> str:
    """Give the compiler's first error; else what make said last."""
    lines = text.strip().splitlines() or ["make said nothing"]
    return next((line for line in lines if COMPLAINT.search(line)), lines[-1])


def _cache(environ: Mapping[str, str]) -> Path:
    """Give the folder of builds on this node's own disk, which must be this user's alone."""
    folder = Path(environ.get("TMPDIR") or tempfile.gettempdir()) / f"rv-gpu-burn-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return Path(tempfile.mkdtemp())
    return folder


def _key(source: Path, *words: str) -> str:
    digest = hashlib.sha256("\0".join(words).encode())
    for pattern in SOURCES:
        for file in sorted(source.glob(pattern)):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
