"""The file of the history: who waits for whom, what is told, and what is kept of an older one."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rv.accept import history as module
from rv.accept.history import History
from rv.accept.measurements import CONTENDED, FAULTY, RETIRED, SOUND, Measurement
from rv.errors import RvError
from tests.unit.accept.test_history import measured


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """Two values, in a file for which nobody waits long."""
    monkeypatch.setattr(module, "_BUSY_S", 0.2)
    history = History(tmp_path / "h.sqlite")
    history.add([measured(700), measured(701, "r2", 1.0)])
    return history


@contextmanager
def transaction(path: Path, *statements: str) -> Iterator[None]:
    """Another rv that is in the middle of something."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement).fetchall()
        yield


READING = ("BEGIN", "SELECT count(*) FROM measurements")
CHANGING = ("BEGIN IMMEDIATE", "UPDATE measurements SET value = 1")


# Readers and writers.


def test_a_reader_waits_for_nobody_who_is_about_to_write(kept: History, tmp_path: Path) -> None:
    """It sees what was there before."""
    with transaction(tmp_path / "h.sqlite", *CHANGING):
        assert [each.value for each in kept.all()] == [700, 701]
    with transaction(tmp_path / "h.sqlite", *READING):
        assert len(kept.all()) == 2


def test_a_run_is_written_while_another_rv_makes_values_of_what_it_read(
    kept: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million rows are read in seconds, and made into values in a minute."""

    def made(**row: Any) -> Measurement:
        kept.add([measured(702, f"after {row['run']}", 2.0)])
        return Measurement(**row)

    with monkeypatch.context() as patch:
        patch.setattr(module, "Measurement", made)
        assert len(kept.all()) == 2
    assert len(kept.all()) == 4


@pytest.mark.parametrize("other", [("BEGIN EXCLUSIVE",), CHANGING, READING])
def test_a_busy_file_is_told_as_busy_and_never_to_be_moved_away(
    kept: History, tmp_path: Path, other: tuple[str, ...]
) -> None:
    """Whoever moves it loses the history."""
    with (
        transaction(tmp_path / "h.sqlite", *other),
        pytest.raises(RvError, match=r"h\.sqlite is busy") as caught,
    ):
        kept.add([measured(702, "r3", 2.0)])

    assert caught.value.hint == "another rv reads or writes it: run the command again"
    assert kept.add([measured(702, "r3", 2.0)]) == 1


def test_what_its_owner_cannot_use_is_not_to_be_moved_away_either(tmp_path: Path) -> None:
    """A folder that is full, on NFS without locks, or not to be written."""
    (tmp_path / "file").write_text("")
    with pytest.raises(RvError, match="cannot be used") as caught:
        History(tmp_path / "file" / "h.sqlite").all()
    assert "move it away" not in caught.value.hint

    with closing(sqlite3.connect(tmp_path / "h.sqlite")) as database:
        database.execute("PRAGMA user_version=99")
    with pytest.raises(RvError, match="newer rv") as caught:
        History(tmp_path / "h.sqlite").all()
    assert "move it away" not in caught.value.hint


def test_one_that_opens_it_lets_go_of_no_lock_of_another_thread(tmp_path: Path) -> None:
    """Whoever closes a file gives back every lock on it that the process has."""
    history = History(tmp_path / "h.sqlite")
    history.add([measured(700)])
    with transaction(tmp_path / "h.sqlite", "BEGIN IMMEDIATE"):
        thread = threading.Thread(target=history.all)
        thread.start()
        thread.join()
        assert _is_locked(tmp_path / "h.sqlite")


def _is_locked(path: Path) -> bool:
    """Ask from another process, as locks are a process's."""
    ask = (
        "import sqlite3, sys\n"
        "try: sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')\n"
        "except sqlite3.OperationalError: sys.exit(3)"
    )
    return subprocess.run([sys.executable, "-c", ask, str(path)], check=False).returncode == 3


def test_many_that_open_an_older_file_at_once_change_it_once(tmp_path: Path) -> None:
    """Readers and writers; each has all that was there."""
    path = tmp_path / "h.sqlite"
    _made_older(path)
    counts = list[int]()
    threads = [
        threading.Thread(target=lambda: counts.append(len(History(path).all()))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert counts == [2] * 4
    assert History(path).all()[0] == measured(700)


def _made_older(path: Path) -> None:
    """A file of format 2, which had no `members`."""
    History(path).add([measured(700), measured(701, "r2", 1.0)])
    columns = ", ".join(name for name in module._COLUMNS if name != "members")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(f"CREATE TABLE other AS SELECT {columns} FROM measurements")
        database.execute("DROP TABLE measurements")
        database.execute("ALTER TABLE other RENAME TO measurements")
        database.execute("CREATE INDEX by_gpu ON measurements (gpu_uuid, time)")
        database.execute("PRAGMA user_version=2")


# What a value counts for, once its run is judged again.


@pytest.mark.parametrize(
    ("first", "second"), [(SOUND, FAULTY), (FAULTY, SOUND), (SOUND, CONTENDED)]
)
def test_a_run_that_is_judged_again_has_the_standing_of_the_last_time(
    kept: History, first: str, second: str
) -> None:
    """Its other results came late, say; no row is new."""
    value = measured(702, "r3", 2.0)

    assert kept.add([replace(value, standing=first)]) == 1
    assert kept.add([replace(value, standing=second), measured(703, "r4", 3.0)]) == 1
    assert [each.standing for each in kept.all()] == [SOUND, SOUND, second, SOUND]


def test_what_is_retired_stays_so(kept: History) -> None:
    """It was measured before a repair, however it is judged."""
    kept.repaired("c", ["n1"], anew=True)

    assert kept.add([measured(700), replace(measured(701, "r2", 1.0), standing=FAULTY)]) == 0
    assert {each.standing for each in kept.all()} == {RETIRED}


# Indexes.


@pytest.mark.parametrize(
    "where", ["node = 'n1' AND payload = 'check'", "gpu_uuid >= 'G' AND gpu_uuid < 'H'"]
)
@pytest.mark.parametrize("is_older", [False, True], ids=["of today", "without the index"])
def test_no_question_of_a_run_reads_the_whole_file(
    tmp_path: Path, where: str, is_older: bool
) -> None:
    """Of a GPU, and of a node's GPUs together, which have no UUID; older files gain the index."""
    path = tmp_path / "h.sqlite"
    History(path).add([measured(700)])
    if is_older:
        with closing(sqlite3.connect(path)) as database:
            database.execute("DROP INDEX IF EXISTS by_node")
        History(path).add([])

    with closing(sqlite3.connect(path)) as database:
        query = f"EXPLAIN QUERY PLAN SELECT value FROM measurements WHERE {where}"
        plan = [row[3] for row in database.execute(query)]
    assert [step.split(" (")[0].split()[0] for step in plan] == ["SEARCH"]
