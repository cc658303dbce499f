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


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """A sandbox whose controller is this process."""
    record = Record(name="x", identity="x", directory=str(tmp_path), run=str(tmp_path), boot="",
                    profile="", digest="", cluster_name="")  # fmt: skip
    record.layout.records.mkdir()
    me = Process(pid=os.getpid(), started=started_at(os.getpid()) or 0)
    records.note(record.layout, records.CONTROLLER, me)
    return record


def test_limits_of_gpus_wait_until_the_database_counts_them(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller of 23.11 or newer answers before it has registered its GRES."""
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
