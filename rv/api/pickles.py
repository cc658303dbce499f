"""What travels between a client and a job: a line of JSON that anybody can read, then a pickle.

The line says what went wrong where the pickle cannot be read. cloudpickle is imported where a
function is sent; who only reads needs the standard library.
"""

import json
import os
import pickle
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeVar

from rv.api.errors import UncompletedJobError
from rv.dataclass import dataclass

SUBMITTED: Final = "call/submitted.pkl"
"""The call as it was submitted, below the race's directory."""

GOES_ON: Final = "checkpoints/submitted.pkl"
"""The call with which an interrupted one goes on."""

RAISED: Final = 1
"""The code with which a call ends that left an exception as its result."""


def result_file(rank: int) -> str:
    """Name the file of a task's result, below the race's directory."""
    return f"results/{rank}.pkl"


@dataclass(frozen=True, kw_only=True, slots=True)
class CallHeader:
    """What a job needs to know before it can read the call: `path` are the folders of modules."""

    tasks_per_node: int
    nodes: int
    path: Sequence[str]
    python: str
    stderr_to_stdout: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultHeader:
    """How a call ended; `traceback` is "" where it returned."""

    traceback: str = ""
    has_value: bool = True


Header = TypeVar("Header", CallHeader, ResultHeader)


def dumps(header: CallHeader | ResultHeader, value: Any) -> bytes:
    """Return the file of a call or of a result. Raises what pickling raises."""
    import cloudpickle

    body: bytes = cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return json.dumps(asdict(header)).encode() + b"\n" + body


def read_call_header(data: bytes) -> CallHeader:
    """Read the first line of a call. Raises `UncompletedJobError` for what is none."""
    return _read(data, CallHeader)


def read_result_header(data: bytes) -> ResultHeader:
    """Read the first line of a result. Raises `UncompletedJobError` for what is none."""
    return _read(data, ResultHeader)


def unpickled(data: bytes) -> Any:
    """Unpickle: whatever the pickle says is done, so it must be the user's own file."""
    body = memoryview(data)[data.index(b"\n") + 1 :]  # no copy: it may be large
    return pickle.loads(body)  # noqa: S301 - checked by who calls this


def this_python() -> str:
    """The version that a pickle of this process needs: 3.11."""
    return ".".join(map(str, sys.version_info[:2]))


def write_private(path: Path, data: bytes) -> None:
    """Write a file of this user alone, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)


def _read(data: bytes, kind: type[Header]) -> Header:
    try:
        return kind(**json.loads(data[: data.index(b"\n")]))
    except (TypeError, ValueError, RecursionError) as error:
        raise UncompletedJobError("it is no file of rv's, or damaged") from error
