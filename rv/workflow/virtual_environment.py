"""The Python environment that a command runs in: one that is there, or one built from a lock file.

It is built on the login node, before anything is submitted: compute nodes may have no internet.
"""

import re
import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.quantities import short_duration
from rv.slurm.printable import printable
from rv.transport import LOST, ScriptResult, Transport
from rv.workflow.lock_file import LockFile

_SCRIPT: Final = files("rv.workflow") / "scripts" / "virtual_environment.sh"
_ANSWER: Final = re.compile(r"rv-answer ([a-z]+) (.*)")
_KEY: Final = re.compile(r"[0-9a-f]{20}", re.ASCII)
_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "venv": ("virtual environment", "--venv out"),
    "conda": ("conda environment", "--conda out"),
    "image": ("image", "--container out"),
}
_LOOKING_S: Final = 60.0
_BUILDING_S: Final = 3600.0
_MOST_NEAR: Final = 8
_TRIES: Final = 3
_NO_ROOM: Final = ("No space left on device", "Disk quota exceeded")
_UNSAFE, _NO_MODULE, _BUSY, _NO_PYTHON = 45, 46, 47, 48


@dataclass(frozen=True, kw_only=True, slots=True)
class _Built:
    """What the cluster says of the environment of a lock file; `path` is "" before it is built."""

    key: str
    tool: str
    shelf: str
    path: str = ""

    @property
    def short(self) -> str:
        """The key as people see it."""
        return self.key[:6]


def find_environment(
    kind: str, name: str, workdir: str, modules: Sequence[str], transport: Transport
) -> str:
    """Return the path of an environment that is there. `kind` is "venv", "conda" or "image".

    Raises `RvError(CONFIG)`, which names those that are there.
    """
    done = _call(transport, modules, [f"find_{kind}", name, workdir], _LOOKING_S)
    answers = _answers(done)
    if path := answers.get("path"):
        return path[0]
    what, option = _KINDS[kind]
    missing = answers.get("missing", [name])[0]
    near = list(dict.fromkeys(answers.get("near", ())))[:_MOST_NEAR]
    there = f"there is: {', '.join(near)}" if near else f"there is none; make it, or leave {option}"
    raise RvError(ErrorKind.CONFIG, f"no {what} {missing} on the cluster", hint=there)


def build_environment(
    lock: LockFile,
    race_root: str,
    modules: Sequence[str],
    transport: Transport,
    say: Callable[[str], None],
) -> str:
    """Return the folder of the environment of a lock file; build it where it is not there.

    Raises `RvError(STAGE)` for one that cannot be built; nothing of it is left then.
    """
    began_s = time.monotonic()
    built = _look(lock, race_root, modules, transport)
    if built.path:
        say(f"venv {built.short} is there ({lock.name})")
        return built.path
    if built.tool != "uv" and lock.kind in ("uv", "pylock"):
        raise RvError(
            ErrorKind.CONFIG,
            f"{lock.name} is read by uv, which is not on the cluster",
            hint="install uv there, or: uv export --frozen -o requirements.txt",
        )
    say(f"venv {built.short}: {built.tool} installs {lock.name} on the login node …")
    path, is_new = _build(lock, built, race_root, modules, transport)
    took = short_duration_s(time.monotonic() - began_s)
    say(f"venv {built.short} built in {took}" if is_new else f"venv {built.short} is there")
    return path


def short_duration_s(seconds: float) -> str:
    """Write a time in seconds for a person."""
    from datetime import timedelta

    return short_duration(timedelta(seconds=max(1, round(seconds))))


def planned_environment(race_root: str) -> str:
    """Return the path that a plan shows for an environment that nobody has looked for yet."""
    return f"{race_root}/.venvs/HASH/venv"


def _look(lock: LockFile, race_root: str, modules: Sequence[str], transport: Transport) -> _Built:
    words = ["look_for_built", race_root, lock.digest, lock.python]
    answers = _answers(_call(transport, modules, words, _LOOKING_S))
    key, tool, shelf = (answers.get(word, [""])[0] for word in ("key", "tool", "shelf"))
    if not _KEY.fullmatch(key) or not shelf.startswith("/"):
        raise RvError(
            ErrorKind.STAGE, "the login node gave no answer about its Python", hint="rv doctor"
        )
    return _Built(key=key, tool=tool, shelf=shelf, path=answers.get("path", [""])[0])


def _build(
    lock: LockFile, built: _Built, race_root: str, modules: Sequence[str], transport: Transport
) -> tuple[str, bool]:
    """Send the lock file and build; again where the connection was lost: one build goes on."""
    for _ in range(_TRIES):
        sent = f"{built.shelf}/.sent.{secrets.token_hex(8)}"
        transport.create_tree(sent, lock.files)
        place = [race_root, built.shelf, built.key, lock.kind, lock.python, sent]
        words = ["build_venv", *place, f"{_BUILDING_S:.0f}"]
        done = _call(transport, modules, words, _BUILDING_S, may_fail=True)
        answers = _answers(done)
        for word in ("there", "built"):
            if word in answers:
                return answers[word][0], word == "built"
        if done.returncode != LOST:
            transport.remove(sent)
            raise _failed(lock, done)
    raise RvError(
        ErrorKind.UNREACHABLE,
        "the connection was lost while the venv was built",
        hint="again: what is built by then is used",
    )


def _failed(lock: LockFile, done: ScriptResult) -> RvError:
    if done.timed_out:
        why = f"it took more than {short_duration_s(_BUILDING_S)}"
    else:
        lines = [printable(line) for line in done.stderr.splitlines() if line.strip()]
        why = " | ".join(lines[-_MOST_NEAR:]) or "no reason was given"
    remedy = f"correct {lock.name}, or build one there: --venv PATH"
    if any(word in done.stderr for word in _NO_ROOM):
        remedy = "make room, or name another disk with RV_RACE_ROOT=/path"
    return RvError(
        ErrorKind.STAGE,
        f"the venv of {lock.name} cannot be built: {why}",
        hint=f"nothing is left of it; {remedy}",
    )


def _call(
    transport: Transport,
    modules: Sequence[str],
    words: Sequence[str],
    timeout_s: float,
    *,
    may_fail: bool = False,
) -> ScriptResult:
    """Call a function of the script with the job's modules loaded.

    Raises `RvError` for what is wrong with the login node, or, unless it may fail, anything else.
    """
    loading = shlex.join(["load_modules", *modules])
    text = f"{_SCRIPT.read_text()}\n{loading} || exit\n{shlex.join(words)}"
    done = transport.run(text, timeout_s=timeout_s)
    last = printable(done.stderr.strip().rpartition("\n")[2])
    failures = {
        _UNSAFE: (ErrorKind.STAGE, "the folder of venvs is another user's", "RV_RACE_ROOT=/path"),
        _NO_MODULE: (
            ErrorKind.CONFIG,
            f"module load {' '.join(modules)} failed on the login node: {last}",
            "module avail lists them",
        ),
        _BUSY: (ErrorKind.STAGE, "another rv is still building this venv", "again, later"),
        _NO_PYTHON: (
            ErrorKind.CONFIG,
            "there is no python3 on the login node",
            "load one: --modules python; module avail lists them",
        ),
    }
    if done.returncode in failures:
        kind, message, hint = failures[done.returncode]
        raise RvError(kind, message, hint=hint)
    if done.returncode and not may_fail:
        raise RvError(
            ErrorKind.UNREACHABLE, f"no answer about environments: {last}", hint="rv doctor"
        )
    return done


def _answers(done: ScriptResult) -> dict[str, list[str]]:
    answers: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if built := _ANSWER.fullmatch(line):
            answers.setdefault(built[1], []).append(built[2])
    return answers
