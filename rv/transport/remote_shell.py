"""A bash on another machine that runs one script after the other, over one stream of bytes.

scripts/loop.sh says what goes over it. The first requests travel in the command that starts the
loop: a server takes no input for a program before it has started it, so that waiting to write would
cost a round trip more.
"""

import base64
import gzip
import os
import shlex
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from rv.errors import ErrorKind, RvError
from rv.transport import LOST, TIMED_OUT, ScriptResult
from rv.transport.login_shell import INPUT, after_login
from rv.transport.terminal_questions import printable

_MARK_BYTES: Final = 16
_MOST_BANNER_BYTES: Final = 1 << 20
_MOST_UNREAD_BYTES: Final = 32 << 10
"""Sent at most before answers are read: a pipe holds more."""

_ROOM_BYTES: Final = 256 << 10
"""The least room for requests and answers on the login node."""

_NO_SHELL: Final = "no shell answered (is there an exit or exec in ~/.bash_profile there?)"

_SCRIPTS: Final = Path(__file__).with_name("scripts")
"""By its path: importlib.resources would import zipfile before the first question is sent."""

_MOST_COMMAND_BYTES: Final = 32 << 10
"""Of requests that travel in a command, before compression: Linux takes 128 KiB for a word."""

_CHUNK: Final = 1000
"""Characters of a word: tcsh takes a few thousand."""

_UNPACK: Final = (
    'PATH=$PATH:/usr/bin:/bin; unset -f printf base64 gzip; printf %s "$@" | base64 -d | gzip -d'
)
# What travels in the command is unpacked while profiles run.
_START: Final = after_login(
    ". /dev/fd/44",
    before=f"exec {INPUT}<&0 44< <({_UNPACK}); ",
    after=" </dev/null",
)


Answer = tuple[int, bytes, bytes]
"""A script's exit code, output and errors."""


class Stream(Protocol):
    """A program on another machine: bytes to its standard input and from its standard output."""

    def write(self, data: bytes) -> None:
        """Send all of it. Raises `OSError`."""

    def read_line(self) -> bytes:
        """Read up to and with a newline, less where it ended. Raises `OSError`."""

    def read(self, size: int) -> bytes:
        """Read so many bytes, fewer where it ended. Raises `OSError`."""

    def read_some(self, size: int) -> bytes:
        """Read what is there, so many bytes at most, none where it ended. Raises `OSError`."""

    def close_write(self) -> None:
        """Say that no more comes: the program reads the end of its input. Raises `OSError`."""

    def close(self) -> None:
        """End it; no error where it has ended."""


@dataclass(eq=False, slots=True)
class Question:
    """A script, its limit and its input; `answer` or `failure` is set when it is known."""

    script: bytes
    timeout_s: float
    data: bytes
    answer: Answer | None = None
    failure: RvError | None = None

    @property
    def size(self) -> int:
        """The bytes of all of it."""
        return len(self.script) + len(self.data)

    @property
    def request(self) -> bytes:
        """What the loop reads."""
        sizes = len(self.script), len(self.data)
        return b"%.3f %d %d\n" % (self.timeout_s, *sizes) + self.script + self.data

    @property
    def as_words(self) -> str:
        """What the command has of it that starts the loop."""
        script = self.script.decode("utf-8", "surrogateescape")
        return f"{self.timeout_s:.3f} {shlex.quote(script)}"


class RemoteShell:
    """Runs scripts, one after the other, over streams that `connect` opens: anew when one is lost.

    Questions that are asked before an answer is waited for are sent at once, in one round trip.
    `connect` is given the command that starts the shell there. It raises `RvError(UNREACHABLE)`,
    and so does the first script. Once there was a connection, one that cannot be made is one that
    was lost. `unset_forms` is an extended regular expression for the variables that no script sees.
    `mark` separates the answers of the first stream; "" draws one, as each other stream does.
    """

    def __init__(self, connect: Callable[[str], Stream], unset_forms: str, mark: str = "") -> None:
        self._connect = connect
        self._unset_forms = unset_forms
        self._stream: Stream | None = None
        self._mark = (mark or new_mark()).encode()
        self._is_ready = False
        self._has_answered = False
        self._unsent: deque[Question] = deque()
        self._unanswered: deque[Question] = deque()
        self._lock = threading.Lock()

    def run(self, script: str, data: bytes = b"", *, timeout_s: float) -> Answer:
        """Return a script's exit code, output and errors; `LOST` where the connection broke.

        What it did before that is not known. A script that ran into its timeout has code 124.
        """
        return self.wait(self.ask(script, data, timeout_s=timeout_s))

    def ask(self, script: str, data: bytes = b"", *, timeout_s: float) -> Question:
        """Return the question, which is sent by `send`, or when an answer is waited for."""
        question = Question(script.encode("utf-8", "surrogateescape"), timeout_s, data)
        with self._lock:
            self._unsent.append(question)
        return question

    def send(self) -> None:
        """Send what was asked, as `wait` does first; what goes wrong is told there."""
        with self._lock, self._losing():
            if self._unsent:
                self._send()

    def first_command(self) -> str:
        """Return the command with which `send` would open a stream now."""
        return self._start_command(_fit_for_a_command(self._unsent))

    def wait(self, question: Question) -> Answer:
        """Return the answer, as `run` does."""
        with self._lock, self._losing():
            while self._unsent:
                self._send()
            while question in self._unanswered:
                self._receive()
        if question.failure:
            raise question.failure
        return question.answer or (LOST, b"", b"")

    def close(self) -> None:
        """End the shell there."""
        with self._lock:
            self._lose(ConnectionError("it was closed"))

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """Answer all questions with what went wrong."""
        try:
            yield
        except (OSError, RvError) as error:
            self._lose(error)
        except BaseException:  # Ctrl-C: the answer would be taken for the next one's
            self._lose(ConnectionError("interrupted"))
            raise

    def _lose(self, error: OSError | RvError) -> None:
        if self._stream:
            with suppress(OSError):
                self._stream.close()
        self._stream, self._mark = None, new_mark().encode()
        is_first = isinstance(error, RvError) and not self._has_answered
        for question in (*self._unanswered, *self._unsent):
            if is_first and isinstance(error, RvError):
                question.failure = error
            else:
                question.answer = LOST, b"", f"the connection was lost: {error}".encode()
        self._unanswered.clear()
        self._unsent.clear()

    def _send(self) -> None:
        """Send what fits unread beside answers: both sides might wait for the other to read."""
        while self._unanswered:
            self._receive()
        sending = [self._unsent.popleft()]
        size = sending[0].size
        while self._unsent and size + self._unsent[0].size <= _MOST_UNREAD_BYTES:
            sending.append(self._unsent.popleft())
            size += sending[-1].size
        self._unanswered.extend(sending)
        if self._stream is None:
            self._is_ready = False
            first = _fit_for_a_command(sending)
            self._stream = self._connect(self._start_command(first))
            sending = sending[len(first) :]
        if sending:
            # Who takes no more may have answered why, such as that there is no room for it.
            with suppress(ConnectionError):
                self._stream.write(b"".join(each.request for each in sending))

    def _receive(self) -> None:
        """Read the answer of the question that was sent first."""
        if self._stream is None:
            raise ConnectionError("it was closed")
        if not self._is_ready:
            self._pass_over_banner(self._stream)
            self._is_ready = True
        answer = self._answer(self._stream)
        self._unanswered.popleft().answer = answer
        self._has_answered = True

    @property
    def environment(self) -> str:
        """The bash lines that make a login's environment that of rv's scripts."""
        forms = f"unset_forms={shlex.quote(self._unset_forms)}\n"
        return forms + _script("environment.sh")

    def _start_command(self, questions: Sequence[Question]) -> str:
        """Return the command that starts the loop, with the operations on files and questions."""
        operations = shlex.quote(_script("files.sh"))
        first = " ".join(question.as_words for question in questions)
        loop = (
            f"{self.environment}mark={self._mark.decode()} least_bytes={_ROOM_BYTES}\n"
            f"rv_operations={operations}\nrv_first=({first})\n{_script('loop.sh')}"
        )
        packed = gzip.compress(loop.encode("utf-8", "surrogateescape"), mtime=0)
        text = base64.b64encode(packed).decode()
        return " ".join([_START, *(text[at : at + _CHUNK] for at in range(0, len(text), _CHUNK))])

    def _pass_over_banner(self, stream: Stream) -> None:
        """Read what profiles and banners print, up to the line of the loop."""
        seen = 0
        while not (line := stream.read_line()).startswith(self._mark):
            seen += len(line)
            if not line or seen > _MOST_BANNER_BYTES:
                raise ConnectionError(_NO_SHELL)
        said = line.removeprefix(self._mark).decode("utf-8", "replace").strip()
        if said != "ready":
            raise RvError(
                ErrorKind.UNREACHABLE,
                f"{printable(said)}, on the login node",
                hint="make room there: df -h, and quota, say what is full",
            )

    def _answer(self, stream: Stream) -> Answer:
        words = stream.read_line().split()
        if len(words) != 4 or words[0] != self._mark:
            raise ConnectionError("the answer was cut off")
        code, out_bytes, err_bytes = map(int, words[1:])
        out, err = stream.read(out_bytes), stream.read(err_bytes)
        if len(out) < out_bytes or len(err) < err_bytes:
            raise ConnectionError("the answer was cut off")
        return code, out, err


def new_mark() -> str:
    """Draw a mark that no answer holds."""
    return f"rv{os.urandom(_MARK_BYTES).hex()}"


def _script(name: str) -> str:
    return (_SCRIPTS / name).read_text(encoding="utf-8")


def _fit_for_a_command(questions: Iterable[Question]) -> list[Question]:
    """Return those at the front that a command can hold; others could read their input there."""
    fitting, size = list[Question](), 0
    for question in questions:
        size += question.size
        if question.data or size > _MOST_COMMAND_BYTES:
            break
        fitting.append(question)
    return fitting


def as_result(answer: Answer) -> ScriptResult:
    """Return an answer as a transport has it."""
    code, out, err = answer
    return ScriptResult(
        returncode=code,
        stdout=out.decode("utf-8", "replace"),
        stderr=err.decode("utf-8", "replace"),
        timed_out=code == TIMED_OUT,
        raw=(out, err),
    )
