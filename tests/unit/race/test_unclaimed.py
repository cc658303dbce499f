"""A job that completed while no claim shows: when the clock of the second look begins."""

from dataclasses import replace
from pathlib import Path

import pytest

from rv.models.race import StateFiles
from rv.models.sweep import Sweep
from rv.race.facts import CACHED_S
from rv.race.first_seen import note_unclaimed
from rv.race.recover import _as_next
from rv.transport.local import LocalTransport
from tests.unit.race.test_status import RACE, record

NOW_S = 1_700_000_000.0


def noted(directory: Path, files: StateFiles, sweep: Sweep | None = None) -> StateFiles:
    """The state files after a look that saw job 1 completed."""
    race = replace(RACE, directory=str(directory), sweep=sweep)
    return note_unclaimed(race, files, [record("COMPLETED")], NOW_S, LocalTransport({}))


def test_the_clock_begins_when_a_completed_job_is_first_seen(tmp_path: Path) -> None:
    """And is kept for every other client."""
    assert noted(tmp_path, StateFiles()).unclaimed_since == NOW_S
    assert (tmp_path / "unclaimed").read_text(encoding="ascii") == f"{NOW_S:.0f}\n"


@pytest.mark.parametrize("files", [StateFiles(exhausted=((1, "no GPU"),)), StateFiles(again=(1,))])
def test_a_job_that_rejected_its_node_begins_no_clock(tmp_path: Path, files: StateFiles) -> None:
    """It completes without a claim; the time of another job would be used up by then."""
    assert noted(tmp_path, files).unclaimed_since is None
    assert not (tmp_path / "unclaimed").exists()


def test_a_job_in_whose_place_another_was_sent_begins_no_clock(tmp_path: Path) -> None:
    """It left its node; of a sweep it was one worker of several."""
    files = StateFiles(job_ids=((1, (11, 21)),))
    assert noted(tmp_path, files).unclaimed_since is None
    assert noted(tmp_path, files, sweep=Sweep(tasks=2)).unclaimed_since == NOW_S


def test_where_nothing_can_be_written_nothing_is_waited_for(tmp_path: Path) -> None:
    """Each look would begin the time anew."""
    assert noted(tmp_path / "gone", StateFiles()).unclaimed_since == NOW_S - CACHED_S


def test_only_directives_at_the_top_of_a_script_are_left_out() -> None:
    """A command may hold such lines of its own."""
    top = b"#!/bin/bash\n#SBATCH --hold\n#SBATCH --begin=22:00\n#SBATCH --time=60\n"
    command = b"cat >next.sh <<'END'\n#SBATCH --hold\n#SBATCH --begin=now\nEND\n"

    assert _as_next(top + command, 7) == b"#!/bin/bash\n#SBATCH --time=60\nset -- 7\n" + command
