"""When the accounting of a sandbox can be told what."""

import os
from pathlib import Path

import pytest

from rv.sandbox import accounting, records
from rv.sandbox.processes import Process, started_at
from rv.sandbox.records import Record

# `sacctmgr -n -P show tres format=Type,Name` of Slurm 24.11, before a controller came and after.
BEFORE = "cpu|\nmem|\nenergy|\nnode|\nbilling|\nfs|disk\nvmem|\npages|\n"
AFTER = f"{BEFORE}gres|gpu\n"


def test_limits_of_gpus_wait_until_the_database_counts_them(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller of 23.11 or newer answers before it has registered its GRES."""
    me = Process(pid=os.getpid(), started=started_at(os.getpid()) or 0)
    records.note(record.layout, records.CONTROLLER, me)
    (tmp_path / "before").write_text(BEFORE)
    (tmp_path / "after").write_text(AFTER)
    script = tmp_path / "sacctmgr"
    script.write_text(
        f"#!/bin/sh\ncd {tmp_path}\necho asked >>calls\n"
        "if [ $(wc -l <calls) -lt 3 ]; then cat before; else cat after; fi\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    accounting.wait_for_gpus(record)
    assert (tmp_path / "calls").read_text().split() == ["asked"] * 3
