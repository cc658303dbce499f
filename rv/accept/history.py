"""The history of measurements on this machine: one SQLite file, read and written by many at once.

It lies in the user's data folder, which should not be on NFS, whose locks fail. The
measurements of one run are kept once, however often they are added. Files of an older rv, which did
not keep what was judged bad, are changed when they are opened.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from rv.accept.measurements import RETIRED, SOUND, Measurement
from rv.bundle import acceptance_dir
from rv.errors import ErrorKind, RvError

_COLUMNS: Final = {f.name: f.type for f in fields(Measurement) if f.name != "link_share"}
"""What is kept: of the links only the judge of a run has to know."""
_IDENTITY: Final = (
    "run, cluster, node, gpu_uuid, members, device, payload, test, metric, dtype, shape, world, "
    "nodes, unit"
)
_TYPES: Final[Mapping[Any, str]] = {float: "REAL", int: "INTEGER"}
_ADDED: Final = {"standing": SOUND, "members": ""}
"""Columns that files of older versions lack, and what their rows have in them."""
_VERSION: Final = 3
_BUSY_S: Final = 30.0
_LAST: Final = "\U0010ffff"
"""What is sorted behind whatever a name goes on with."""


class History:
    """The measurements kept in one file. Every method raises `RvError(CONFIG)` for a broken one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, measured: Iterable[Measurement]) -> int:
        """Keep measurements; give how many are new."""
        names, values = ", ".join(_COLUMNS), ", ".join(f":{name}" for name in _COLUMNS)
        statement = f"INSERT OR IGNORE INTO measurements ({names}) VALUES ({values})"  # noqa: S608 - names only
        with self._open() as database:
            before = database.total_changes
            database.executemany(statement, map(asdict, measured))
            return database.total_changes - before

    def repaired(self, cluster: str, nodes: Iterable[str], *, anew: bool) -> int:
        """Retire what was judged bad on nodes; give how many values. With `anew` the sound too."""
        bad = "" if anew else f" AND standing != '{SOUND}'"
        statement = (
            f"UPDATE measurements SET standing = '{RETIRED}' "  # noqa: S608 - constants only
            f"WHERE cluster = ? AND node = ? AND standing != '{RETIRED}'{bad}"
        )
        with self._open() as database:
            before = database.total_changes
            database.executemany(statement, [(cluster, node) for node in nodes])
            return database.total_changes - before

    def all(
        self, *, gpu: str = "", payload: str = "", node: str = "", model: str = ""
    ) -> tuple[Measurement, ...]:
        """Give measurements oldest first; `gpu` is a UUID or the beginning of one."""
        conditions = {
            "gpu = ?": model,
            "gpu_uuid >= ?": gpu,
            "gpu_uuid < ?": gpu and gpu + _LAST,
            "payload = ?": payload,
            "node = ?": node,
        }
        conditions = {clause: value for clause, value in conditions.items() if value}
        where = " AND ".join(["TRUE", *conditions])
        query = f"SELECT {', '.join(_COLUMNS)} FROM measurements WHERE {where} ORDER BY time, run"  # noqa: S608 - names only
        with self._open() as database:
            database.row_factory = sqlite3.Row
            rows = map(dict, database.execute(query, [*conditions.values()]))
            return tuple(Measurement(**{**row, "quick": row["quick"] == "1"}) for row in rows)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction, which waits for those of others."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _make_private(self._path)
            connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
            with closing(connection) as database:
                database.execute("BEGIN IMMEDIATE")
                _prepare(database)
                yield database
                database.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            message = f"the history {self._path} cannot be used: {error}"
            hint = "move it away to begin a new one"
            raise RvError(ErrorKind.CONFIG, message, hint=hint) from error


def history() -> History:
    """Open the user's history."""
    return History(acceptance_dir() / "history.sqlite")


def _make_private(path: Path) -> None:
    """Make the file the user's alone, be it new or of an older rv; SQLite's others follow it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "rb"):
        os.fchmod(descriptor, 0o600)


def _prepare(database: sqlite3.Connection) -> None:
    """Make the tables of a new file, and anew, with what they lack, those of an older rv."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version == _VERSION:
        return
    if version > _VERSION:
        raise sqlite3.DatabaseError(f"it is of a newer rv (format {version})")
    if version:
        database.execute("DROP INDEX IF EXISTS by_gpu")
        database.execute("ALTER TABLE measurements RENAME TO older")
    columns = ", ".join(f"{n} {_TYPES.get(kind, 'TEXT')} NOT NULL" for n, kind in _COLUMNS.items())
    database.execute(f"CREATE TABLE measurements ({columns}, UNIQUE ({_IDENTITY}))")
    database.execute("CREATE INDEX by_gpu ON measurements (gpu_uuid, time)")
    if version:
        _take_over(database)
    database.execute(f"PRAGMA user_version={_VERSION}")


def _take_over(database: sqlite3.Connection) -> None:
    """Copy the rows of an older table, each column that it lacks with what it means there."""
    there = {row[1] for row in database.execute("PRAGMA table_info(older)")}
    given = {name: name if name in there else f"'{_ADDED[name]}'" for name in _COLUMNS}
    names, values = ", ".join(given), ", ".join(given.values())
    database.execute(f"INSERT INTO measurements ({names}) SELECT {values} FROM older")  # noqa: S608 - names only
    database.execute("DROP TABLE older")
