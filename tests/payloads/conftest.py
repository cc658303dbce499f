"""Payloads as programs."""

from collections.abc import Iterator

import pytest

from tests.payloads.starting import Launcher


@pytest.fixture(scope="session")
def launch() -> Iterator[Launcher]:
    """Starts the ranks of payloads without importing torch again."""
    pytest.importorskip("torch")
    launcher = Launcher()
    yield launcher
    launcher.close()
