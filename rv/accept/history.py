"""The history of measurements on this machine: one SQLite file, read and written by many at once.

It lies in the user's data folder, which should not be on NFS, whose locks fail. There SQLite's
write-ahead log would damage it, so it has the usual journal, with which one waits for others only
while they read rows or end a change. The measurements of one run are kept once, however often they
are added. Files of an older rv, which did not keep what was judged bad, are changed when they are
opened.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
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
_INDEXES: Final = {"by_gpu": "gpu_uuid, time", "by_node": "node, payload, time"}
"""What is looked up: a GPU, and what the GPUs of a node do together, which has no UUID."""
_VERSION: Final = 3
_ODD: Final = [
    *(f"typeof({n}) != '{_TYPES.get(kind, 'TEXT').lower()}'" for n, kind in _COLUMNS.items()),
    *("abs(value) > 1e100", "abs(time) > 1e100"),
]
_ODD_ROW: Final = f"CASE WHEN {' OR '.join(_ODD)} THEN rowid ELSE 0 END AS odd_row"
"""The number of a row that rv did not write: SQLite keeps a text also in a column of numbers."""
_BUSY_S: Final = 30.0
_LAST: Final = "\U0010ffff"
"""What is sorted behind whatever a name goes on with."""
_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_BROKEN: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


class History:
    """The measurements kept in one file.

    Every method raises `RvError(CONFIG)` for one that is broken, that others use for longer than
    half a minute, or that cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, measured: Iterable[Measurement]) -> int:
        """Keep measurements; give how many are new.

        One that is kept already gets the standing that it has now, unless it is retired.
        """
        rows = [asdict(each) for each in measured]
        names, values = ", ".join(_COLUMNS), ", ".join(f":{name}" for name in _COLUMNS)
        insert = f"INSERT OR IGNORE INTO measurements ({names}) VALUES ({values})"  # noqa: S608 - names only
        same = " AND ".join(f"{name} = :{name}" for name in _IDENTITY.split(", "))
        update = (
            "UPDATE measurements SET standing = :standing "  # noqa: S608 - names only
            f"WHERE {same} AND standing NOT IN (:standing, '{RETIRED}')"
        )
        with self._writing() as database:
            database.executemany(update, rows)
            before = database.total_changes
            database.executemany(insert, rows)
            return database.total_changes - before

    def repaired(self, cluster: str, nodes: Iterable[str], *, anew: bool) -> int:
        """Retire what was judged bad on nodes; give how many values. With `anew` the sound too."""
        bad = "" if anew else f" AND standing != '{SOUND}'"
        statement = (
            f"UPDATE measurements SET standing = '{RETIRED}' "  # noqa: S608 - constants only
            f"WHERE cluster = ? AND node = ? AND standing != '{RETIRED}'{bad}"
        )
        with self._writing() as database:
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
        columns = ", ".join([*_COLUMNS, _ODD_ROW])
        query = f"SELECT {columns} FROM measurements WHERE {where} ORDER BY time, run"  # noqa: S608 - names only
        rows = [dict(row) for row in self._rows(query, [*conditions.values()])]
        if odd := max((row.pop("odd_row") for row in rows), default=0):
            raise _failure(self._path, sqlite3.DataError(f"its row {odd} is damaged"))
        return tuple(Measurement(**{**row, "quick": row["quick"] == "1"}) for row in rows)

    def _rows(self, query: str, values: Sequence[str]) -> list[sqlite3.Row]:
        """Read rows in a transaction that ends before anything is made of them."""
        with self._connected() as database:
            database.row_factory = sqlite3.Row
            database.execute("BEGIN")
            if _version(database) != _VERSION:
                database.execute("COMMIT")
                database.execute("BEGIN IMMEDIATE")
                _prepare(database)
            rows = database.execute(query, values).fetchall()
            database.execute("COMMIT")
        return rows

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction that changes it, which waits for those of others."""
        with self._connected() as database:
            database.execute("BEGIN IMMEDIATE")
            _prepare(database)
            yield database
            database.execute("COMMIT")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _make_private(self._path)
            connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
            with closing(connection) as database:
                yield database
        except (sqlite3.Error, OSError) as error:
            raise _failure(self._path, error) from error


def history() -> History:
    """Open the user's history."""
    return History(acceptance_dir() / "history.sqlite")


def _failure(path: Path, error: Exception) -> RvError:
    """Say what is wrong with the file, and what to do: only a broken one is of no use any more."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of it tells more of the same
    what = f"cannot be used: {error}"
    if code in _BUSY:
        what, hint = f"is busy: {error}", "another rv reads or writes it: run the command again"
    elif isinstance(error, sqlite3.NotSupportedError):
        hint = "update this rv, or set XDG_DATA_HOME to a folder of its own"
    elif isinstance(error, sqlite3.Error) and not code:  # SQLite read it: what it says is wrong
        hint = "restore it from a copy, delete such rows, or move it away to begin a new one"
    elif code in _BROKEN:
        hint = "move it away to begin a new one"
    else:
        hint = "it needs a local disk with free space that you may write; XDG_DATA_HOME moves it"
    return RvError(ErrorKind.CONFIG, f"the history {path} {what}", hint=hint)


def _make_private(path: Path) -> None:
    """Make the file the user's alone, be it new or of an older rv; SQLite's others follow it.

    One that is there is not opened: to close it would end every lock on it that this process has.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)


def _version(database: sqlite3.Connection) -> int:
    """Give the format of the file; 0 for a new one."""
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _prepare(database: sqlite3.Connection) -> None:
    """Make the tables of a new file, and anew, with what they lack, those of an older rv."""
    version = _version(database)
    if version > _VERSION:
        raise sqlite3.NotSupportedError(f"it is of a newer rv (format {version})")
    if version == 0:
        _make_table(database)
    elif version < _VERSION:
        database.execute("ALTER TABLE measurements RENAME TO older")
        _make_table(database)
        _take_over(database)
    for name, columns in _INDEXES.items():
        database.execute(f"CREATE INDEX IF NOT EXISTS {name} ON measurements ({columns})")


def _make_table(database: sqlite3.Connection) -> None:
    columns = ", ".join(f"{n} {_TYPES.get(kind, 'TEXT')} NOT NULL" for n, kind in _COLUMNS.items())
    database.execute(f"CREATE TABLE measurements ({columns}, UNIQUE ({_IDENTITY}))")
    database.execute(f"PRAGMA user_version={_VERSION}")


def _take_over(database: sqlite3.Connection) -> None:
    """Copy the rows of an older table, each column that it lacks with what it means there.

    Its indexes go with it.
    """
    there = {row[1] for row in database.execute("PRAGMA table_info(older)")}
    given = {name: name if name in there else f"'{_ADDED[name]}'" for name in _COLUMNS}
    names, values = ", ".join(given), ", ".join(given.values())
    database.execute(f"INSERT INTO measurements ({names}) SELECT {values} FROM older")  # noqa: S608 - names only
    database.execute("DROP TABLE older")
