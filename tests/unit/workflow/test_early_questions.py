"""What a command asks a login node first, answered whole, in part, or not at all."""

import gzip
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from rv.slurm.cache import SnapshotCache
from rv.transport import LOST
from rv.transport.remote_shell import Answer, Question, RemoteShell
from rv.workflow.cluster import Early
from rv.workflow.early_questions import EarlyQuestions, ask, draw_marks


class Shell:
    """A shell that is told its answer."""

    answer: Answer

    def ask(self, _script: str, *, timeout_s: float) -> Question:
        """Take the question."""
        assert timeout_s
        return Question(b"", timeout_s, b"")

    def wait(self, _question: Question) -> Answer:
        """Answer."""
        return self.answer


@pytest.fixture(name="shell")
def _shell() -> Shell:
    return Shell()


@pytest.fixture(name="questions")
def _questions(shell: Shell) -> EarlyQuestions:
    own = cast("RemoteShell", shell)
    return ask(Early.RACES_AND_QUEUE, "root=/r\n", own, draw_marks(), "env")


@pytest.fixture(name="cache")
def _cache(tmp_path: Path) -> SnapshotCache:
    return SnapshotCache(directory=tmp_path / "rv", key="k")


def ended(questions: EarlyQuestions, *parts: tuple[bytes, int, int]) -> bytes:
    """What these parts print: output, exit code, and the second at which each ended."""
    mark = questions.marks.parts
    return b"".join(out + f"{mark}{code} {at_s}{mark}".encode() for out, code, at_s in parts)


def is_kept(cache: SnapshotCache) -> bool:
    """Whether whoever asks next is given an answer about the queue."""
    return cache.load("queue", timedelta(minutes=1)) is not None


def files(questions: EarlyQuestions, archive: bytes) -> bytes:
    """What the part about races prints, for a user without any."""
    return questions.marks.races.encode().join([b"", b"/r", b"", b"", b"", archive])


def test_all_parts(shell: Shell, questions: EarlyQuestions, cache: SnapshotCache) -> None:
    """The login, an empty queue, and no races."""
    empty = f"{questions.marks.queue} end 0\n".encode()
    out = ended(questions, (b"login", 0, 0), (empty, 0, 1), (files(questions, b""), 0, 1))
    shell.answer = 0, out, b"a warning"

    assert questions.about() == (0, b"login", b"a warning")
    listing = questions.listing(cache)
    assert listing is not None
    assert (listing.root, listing.directories) == ("/r", ())
    assert is_kept(cache)


def test_a_damaged_archive_is_none(
    shell: Shell, questions: EarlyQuestions, cache: SnapshotCache
) -> None:
    """The files are asked for again."""
    archive = bytearray(gzip.compress(bytes(range(256)) * 40))
    archive[20:40] = b"\xff" * 20
    out = ended(questions, (b"", 0, 0), (b"", 1, 0), (files(questions, bytes(archive)), 0, 0))
    shell.answer = 0, out, b""

    assert questions.listing(cache) is None
    assert not is_kept(cache)  # squeue failed at once: it is asked again


@pytest.mark.parametrize(
    ("code", "seconds", "is_silent"),
    [(124, 0, True), (0, 20, True), (0, 0, False), (LOST, 0, False)],
)
def test_a_controller_that_is_silent(
    shell: Shell, questions: EarlyQuestions, cache: SnapshotCache,
    code: int, seconds: int, is_silent: bool,
) -> None:  # fmt: skip
    """It is not asked again at once; one that failed, or that nobody heard, is."""
    queue = [(b"", 1, seconds)] if seconds or not code else []
    shell.answer = code, ended(questions, (b"login", 0, 0), *queue), b""

    assert questions.about()[:2] == (0, b"login")
    assert questions.listing(cache) is None
    assert is_kept(cache) == is_silent
