"""Send a work tree to the cluster: what changed since the last time, in one stream."""

import hashlib
import io
import os
import shlex
import stat
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.files import write_atomically
from rv.models.code import (
    Code,
    Difference,
    Kind,
    Tree,
    TreeFile,
    difference,
    read_manifest,
    tree_hash,
    write_manifest,
)  # fmt: skip
from rv.slurm.printable import last_line, printable
from rv.transport import LOST, ScriptResult, Transport, require_end
from rv.transport.query_retry import retry_query
from rv.transport.remote_shell import Stream
from rv.transport.storage_errors import why_not_written_there
from rv.workflow.work_tree import WorkTree

_SCRIPT: Final = files("rv.workflow") / "scripts" / "code.sh"
_FIND_S: Final = 60.0
_PIECE_BYTES: Final = 1 << 18
_UNSAFE: Final = 45
_DONE: Final = b"rv-sent"
_FAILED: Final = b"rv-failed"
_MOST_BANNER_LINES: Final = 10_000
_MOST_SAID_BYTES: Final = 4096
_BLOCK: Final = 512
_TAR_ENDS: Final = "Exiting with failure status"
"""What tar says last, after why."""

Report = Callable[[int], None]
"""Called with the bytes of files that were sent since the last call."""


class ChangedMeanwhile(Exception):  # noqa: N818 - a state of the work tree, not an error of rv's
    """A file changed between its hashing and its sending."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """The code as it is on the cluster now, and how much of it was sent."""

    code: Code
    files: int
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Destination:
    """Where the trees of one project lie: a directory there, and what is remembered of it here."""

    store: str
    memory: Path


def destination(race_root: str, project: str, user: str, memory: Path) -> Destination:
    """Name the directory of a project's trees, beside the races; `user` may share that disk."""
    store = f"{race_root}/.code-{user}/{project}"
    return Destination(store=store, memory=memory / hashlib.sha256(store.encode()).hexdigest()[:20])


def project_name(top: str, machine: str) -> str:
    """Name a work tree: its folder's name and a hash of where it is, on which machine."""
    letters = (
        letter if letter.isalnum() and letter.isascii() else "-" for letter in Path(top).name
    )
    where = hashlib.sha256(f"{machine}\0{top}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"{''.join(letters)[:40]}-{where[:8]}"


def last_sent(place: Destination) -> dict[bytes, TreeFile]:
    """Return the tree that was sent there last, an empty one where that is not known."""
    with suppress(OSError, ValueError):
        return read_manifest(place.memory.read_bytes())
    return {}


def send(work: WorkTree, place: Destination, transport: Transport, report: Report) -> Sent:
    """Make the work tree be there. Raises `ChangedMeanwhile`, and `RvError` for what failed."""
    name = tree_hash(work.tree)
    base = last_sent(place)
    base_name = tree_hash(base) if base else ""
    there = _find(place.store, name, base_name, transport)
    checkout = work.checkout
    code = Code(
        project=place.store.rpartition("/")[2],
        tree=name,
        folder="" if checkout.folder == "." else checkout.folder,
        branch=checkout.branch,
        commit=checkout.commit,
        is_dirty=checkout.is_dirty,
        store=place.store,
    )
    if there == name:
        _remember(work.tree, place)
        return Sent(code=code, files=0, size=0)
    if there != base_name:
        base, base_name = {}, ""
    change = difference(base, work.tree)
    _send(work, change, (place.store, name, base_name), transport, report)
    _remember(work.tree, place)
    size = sum(work.tree[path].size for path in change.sent)
    return Sent(code=code, files=len(change.sent), size=size)


def _remember(tree: Tree, place: Destination) -> None:
    with suppress(OSError):  # without it all is sent again
        place.memory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(place.memory, b"".join(write_manifest(tree)), mode=0o600)


def _find(store: str, name: str, base: str, transport: Transport) -> str:
    """Return which of two trees is there, "" for neither."""
    words = shlex.join(["find_tree", store, name, base])
    script = f'. "$RV_FILES"\n{_SCRIPT.read_text()}\n{words}'

    def ask() -> ScriptResult | None:
        done = transport.run(script, timeout_s=_FIND_S)
        return None if done.returncode == LOST else done

    # The last one says why there is no answer.
    done = retry_query(ask) or transport.run(script, timeout_s=_FIND_S)
    if done.returncode == _UNSAFE:
        raise RvError(
            ErrorKind.STAGE,
            f"another user could change your code there: {printable(done.stdout.strip())}",
            hint="name a directory of your own with RV_RACE_ROOT=/path there",
        )
    require_end(done, "the code cannot be sent")
    if done.returncode != 0:
        raise _failure(done.stderr, store)
    return done.stdout.strip()


def _send(
    work: WorkTree,
    change: Difference,
    names: tuple[str, str, str],
    transport: Transport,
    report: Report,
) -> None:
    removed = b"".join(path + b"\0" for path in change.removed)
    call = shlex.join(["receive_tree", *names, str(len(removed))])
    # What it says is read when all is sent, so it must fit into a pipe: tar says why of each file.
    stream = transport.open_stream(
        f"umask 077; set -o pipefail\n{_SCRIPT.read_text()}\n"
        f"if {call} 2>&1 | tail -c {_MOST_SAID_BYTES}; "
        f"then echo; echo {_DONE.decode()}; else echo; echo {_FAILED.decode()}; fi"
    )
    try:
        with suppress(BrokenPipeError, ConnectionError):  # the answer says why
            stream.write(removed)
            for piece in _archive(work, change.sent, report):
                stream.write(piece)
            stream.close_write()
        _require_done(stream, names[0])
    finally:
        stream.close()


def _require_done(stream: Stream, store: str) -> None:
    """Read the answer. Raises `RvError` where the tree was not made."""
    said = ""
    for _ in range(_MOST_BANNER_LINES):
        try:
            line = stream.read_line()
        except OSError as error:
            raise _lost() from error
        if line.strip() == _DONE:
            return
        if not line:
            raise _lost()
        if line.strip() == _FAILED:
            break
        text = line.decode("utf-8", "replace").strip()
        said = said if _TAR_ENDS in text else text or said
    raise _failure(said, store)


def _lost() -> RvError:
    return RvError(
        ErrorKind.UNREACHABLE,
        "the connection was lost while the code was sent: nothing of it is used",
        hint="the same command again",
    )


def _failure(text: str, store: str) -> RvError:
    why = (
        why_not_written_there(text) or printable(last_line(text).rpartition(": ")[2]) or "I/O error"
    )
    return RvError(
        ErrorKind.STAGE,
        f"the code cannot be sent: {why}, on {store}",
        hint="name a writable shared directory with RV_RACE_ROOT=/path there",
    )


def _archive(work: WorkTree, paths: Sequence[bytes], report: Report) -> Iterator[bytes]:
    """Yield a tar archive of the files; it ends with the file that says that it is whole."""
    pending = io.BytesIO()
    for path in paths:
        for piece in _entry(work, path):
            pending.write(piece)
            if pending.tell() >= _PIECE_BYTES:
                yield pending.getvalue()
                pending = io.BytesIO()
        report(work.tree[path].size)
    pending.write(_header(tarfile.TarInfo("whole")))
    pending.write(bytes(2 * _BLOCK))
    yield pending.getvalue()


def _entry(work: WorkTree, path: bytes) -> Iterator[bytes]:
    """Yield a file's header and contents. Raises `ChangedMeanwhile`."""
    file = work.tree[path]
    here = os.path.join(os.fsencode(work.checkout.top), path)
    info = tarfile.TarInfo("files/" + os.fsdecode(path))
    info.mode = 0o600 if file.kind is Kind.FILE else 0o700
    try:
        if file.kind is Kind.LINK:
            info.type, info.linkname = tarfile.SYMTYPE, os.fsdecode(os.readlink(here))
            yield _header(info)
            return
        with open(here, "rb") as source:
            status = os.fstat(source.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size != file.size:
                raise ChangedMeanwhile(os.fsdecode(path))
            info.size, info.mtime = file.size, int(status.st_mtime)
            yield _header(info)
            yield from _contents(source, file, path)
    except OSError as error:
        raise ChangedMeanwhile(os.fsdecode(path)) from error


def _contents(source: io.BufferedReader, file: TreeFile, path: bytes) -> Iterator[bytes]:
    digest = hashlib.sha256()
    left = file.size
    while left:
        piece = source.read(min(left, _PIECE_BYTES))
        if not piece:
            raise ChangedMeanwhile(os.fsdecode(path))
        digest.update(piece)
        left -= len(piece)
        yield piece
    if digest.digest() != file.digest:
        raise ChangedMeanwhile(os.fsdecode(path))
    yield bytes(-file.size % _BLOCK)


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
