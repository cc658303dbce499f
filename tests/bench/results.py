"""What benches found, as values and as one JSON file; the page of the documentation is made of it."""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

FILE: Final = "RV_BENCH_JSON"
"""The environment variable that names the JSON file; without it nothing is kept."""

_begun: set[str] = set()


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One number that a bench found. `most` is its target, None where there is none.

    Figures of one bench with the same `table` stand in one table, `what` beside `value`.
    """

    what: str
    value: float
    unit: str
    most: float | None = None
    table: str = ""

    @property
    def is_met(self) -> bool:
        """Whether it keeps its target; one without a target does."""
        return self.most is None or self.value <= self.most


def note(bench: str, figures: Iterable[Figure]) -> None:
    """Add figures to the file, if there is one. A bench's first ones replace those of its last run."""
    keep(
        bench,
        "figures",
        (
            {key: value for key, value in asdict(figure).items() if value not in (None, "")}
            for figure in figures
        ),
    )


def keep(bench: str, kind: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows of some kind to a bench's part of the file, as `note` does."""
    name = os.environ.get(FILE)
    if not name:
        return
    path = Path(name)
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"benches": {}}
    if bench not in _begun:
        _begun.add(bench)
        found["benches"][bench] = {"machine": machine()}
    found["benches"][bench].setdefault(kind, []).extend(rows)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def figures_of(found: Mapping[str, Any], bench: str) -> list[Figure]:
    """Read a bench's figures back; none where it was not run."""
    return [Figure(**fields) for fields in found["benches"].get(bench, {}).get("figures", ())]


def machine() -> dict[str, str | int]:
    """Describe the machine, without its name or any path."""
    model = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return {
        "cores": os.cpu_count() or 0,
        "cpu": model[1] if model else "unknown",
        "memory_gib": round(int(memory[1]) / 1024**2) if memory else 0,
        "slurm": _version(["slurmctld", "-V"]),
        "python": _version(["python3", "--version"]),
        "date": datetime.now(UTC).date().isoformat(),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def _version(command: list[str]) -> str:
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "none"
    return said.split()[-1]
