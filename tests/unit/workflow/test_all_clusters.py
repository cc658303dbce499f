"""Clusters are asked at the same time; what one of them does is nothing to the others."""

import threading
import time

from rv.errors import ErrorKind, RvError
from rv.workflow.all_clusters import ask_each


def test_they_are_asked_at_the_same_time():
    """Each waits until the other is asked."""
    meeting = threading.Barrier(2, timeout=10)
    assert ask_each(["a", "b"], lambda name: (meeting.wait() >= 0, name), 10.0) == {
        "a": (True, "a"), "b": (True, "b"),
    }  # fmt: skip


def test_one_that_is_late_is_left_out_and_one_that_fails_says_why():
    """In time for the others."""
    release = threading.Event()

    def ask(name):
        if name == "late":
            release.wait(30)
        if name == "wrong":
            raise RvError(ErrorKind.CONFIG, "not like this")
        return 1 // (name != "odd")

    began_s = time.monotonic()
    answers = ask_each(["late", "wrong", "odd", "well"], ask, 0.3)
    release.set()
    assert time.monotonic() - began_s < 10
    assert list(answers) == ["late", "wrong", "odd", "well"]
    kinds = [getattr(answers[name], "kind", None) for name in ("late", "wrong", "odd")]
    assert kinds == [ErrorKind.UNREACHABLE, ErrorKind.CONFIG, ErrorKind.INTERNAL]
    assert answers["well"] == 1
