"""`rv sync watch` without a network: it waits, and sends what is there when it is back."""

from types import SimpleNamespace

import pytest

from rv.cli import sync
from rv.errors import ErrorKind, RvError
from rv.models.code import Kind, TreeFile

LOSS = RvError(ErrorKind.UNREACHABLE, "the connection was lost")


class Project:
    """A work tree in which a file changes each time that one looks."""

    def __init__(self, clock: SimpleNamespace, took_s: float) -> None:
        self.looks = 0
        self._clock = clock
        self._took_s = took_s

    def read(self) -> SimpleNamespace:
        """Look."""
        self.looks += 1
        self._clock.now_s += self._took_s
        tree = {b"a": TreeFile(Kind.FILE, b"%032d" % self.looks, 1)}
        return SimpleNamespace(tree=tree, secrets=[".env"])


def watched(monkeypatch: pytest.MonkeyPatch, took_s: float = 0.0) -> list[float]:
    """Watch a work tree whose second sending fails ten times; return how long was waited.

    Each look at the tree takes `took_s`.
    """
    sent: list[float] = []
    waited: list[float] = []
    clock = SimpleNamespace(now_s=0.0)
    goes = iter([None, *[LOSS] * 10, None])

    def send(_project: object, work: SimpleNamespace, *_: object) -> SimpleNamespace:
        clock.now_s += 20.0
        if loss := next(goes):
            raise loss
        sent.append(clock.now_s)
        code = SimpleNamespace(tree=sync.tree_hash(work.tree), version="main")
        return SimpleNamespace(code=code, files=1, size=1)

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        clock.now_s += seconds
        if len(sent) == 2:
            raise KeyboardInterrupt

    own = SimpleNamespace(monotonic=lambda: clock.now_s, sleep=sleep)
    monkeypatch.setattr("rv.cli.sync.time", own)
    monkeypatch.setattr("rv.cli.sync.current_caller", lambda _: SimpleNamespace(cluster=None))
    project = Project(clock, took_s)
    monkeypatch.setattr("rv.cli.sync._require_project", lambda *_: project)
    monkeypatch.setattr("rv.cli.sync.pending", lambda *_: ((), 1))
    monkeypatch.setattr("rv.cli.sync.send_project", send)
    with pytest.raises(KeyboardInterrupt):
        sync.watch()
    return waited


def test_a_lost_connection_ends_no_watch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said once; the waits grow to half a minute, and the outage itself is none of them."""
    waits = watched(monkeypatch)
    said = capsys.readouterr().err.splitlines()
    assert said.count("the connection was lost; trying again until it is there") == 1
    assert len([line for line in said if "not sent" in line]) == 2, said
    assert said[-1] == "synced 1 file (1 B), main"
    assert waits == [1.0, 1.0, 2.0, 4.0, 8.0, 16.0, *[30.0] * 5, 1.0]


@pytest.mark.parametrize(
    ("took_s", "expected_s"), [(0.05, 1.0), (0.5, 5.0), (6.0, 20.0), (3600.0, 20.0)]
)
def test_a_slow_look_does_not_put_off_the_next_for_long(
    monkeypatch: pytest.MonkeyPatch, took_s: float, expected_s: float
) -> None:
    """A look of six seconds, on a busy disk, was followed by none for a minute."""
    waits = watched(monkeypatch, took_s)
    assert (waits[0], waits[-1]) == (pytest.approx(expected_s), pytest.approx(expected_s))
