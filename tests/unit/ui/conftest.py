"""The terminal of these tests, whatever the one that they are typed at is."""

import pytest


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dumb one has no styles, and 80 columns."""
    monkeypatch.setenv("TERM", "xterm-256color")
