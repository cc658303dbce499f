"""What a payload leaves for the script of its job, which decides the job's exit code by it.

A file for each run that begins, which its verdict replaces: one that was killed has none, and a
second run, or another node's, hides nothing. `outcome.py` reads them.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.schema import RUNS, SCHEMA
from contract.verdicts import EXIT_CODES, PASS

from . import files
from .ranks import node_name
from .report import SLURM

if TYPE_CHECKING:
    from .ranks import Ranks


class Run:
    """One run in a job, noted by its first rank; outside of one nothing is. Writing raises OSError.

    That of a server, or of a burn behind others' work, is never missed: see `excuse`.
    """

    def __init__(self, payload: str, ranks: Ranks) -> None:
        folder = os.environ.get("RV_OUTPUT_DIR") if ranks.rank == 0 else None
        self._path = Path(folder, RUNS, f"{uuid.uuid4()}.json") if folder else None
        slurm = {name: os.environ.get(variable) for name, variable in SLURM.items()}
        self._info = {"test_type": payload, "node": node_name(), "slurm": slurm}

    def begin(self) -> None:
        """Note that it began, and owes a verdict."""
        self._write({})

    def excuse(self) -> None:
        """Note that it owes none: it is ended with the job, or had nothing to run."""
        self.end({"status": PASS, "exit_code": EXIT_CODES[PASS]})

    def end(self, summary: dict[str, Any]) -> None:
        """Note its verdict: the summary of its result."""
        self._write({"summary": summary})

    def _write(self, more: dict[str, Any]) -> None:
        if self._path is not None:
            files.write(self._path, {"schema": SCHEMA, "test_info": self._info, **more})
