"""Other people's launchers, each in a throw-away virtual environment of its own, from PyPI.

What does not install is left out, with the reason in one plain line.
"""

import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PACKAGES: Final[Mapping[str, str]] = {
    "typer": "typer",
    "submitit": "submitit",
    "torchx": "torchx",
    "sky": "skypilot",
}
"""The package that brings each of them."""

FOLDER: Final = "RV_BENCH_RIVALS"
"""Names the folder of the environments to processes that a bench starts."""

_INSTALL_S: Final = 600


@contextmanager
def installed(names: Iterable[str]) -> Iterator[Mapping[str, Path]]:
    """Install rivals, and take their environments away again; those missing say why on stderr.

    Yields the `bin` folder of each.
    """
    with tempfile.TemporaryDirectory(prefix="rvb-rivals-") as folder:
        before = os.environ.get(FOLDER)
        os.environ[FOLDER] = folder
        try:
            for name in names:
                _install(name, Path(folder) / name)
            yield at_hand()
        finally:
            os.environ.pop(FOLDER)
            if before is not None:
                os.environ[FOLDER] = before


def at_hand() -> Mapping[str, Path]:
    """The `bin` folders of the rivals that a bench around this process has installed."""
    folder = os.environ.get(FOLDER)
    found = sorted(Path(folder).glob("*/installed")) if folder else []
    return {mark.parent.name: mark.parent / "bin" for mark in found}


def versions(bins: Mapping[str, Path]) -> dict[str, str]:
    """The version of each rival's package."""
    ask = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
    return {
        name: subprocess.run(
            [bins[name] / "python", "-c", ask, PACKAGES[name]],
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        for name in bins
    }  # fmt: skip


def _install(name: str, folder: Path) -> None:
    venv.create(folder, with_pip=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "-q", PACKAGES[name]]
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        done = subprocess.run(
            pip, capture_output=True, text=True, timeout=_INSTALL_S, env=os.environ | quiet
        )
    except subprocess.TimeoutExpired:
        print(f"{name} is left out: not installed within {_INSTALL_S} s", file=sys.stderr)
        return
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        print(f"{name} is left out: {last}", file=sys.stderr)
        return
    (folder / "installed").touch()
