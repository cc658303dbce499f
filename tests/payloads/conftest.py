"""Payloads as programs; and their modules, which lie beside them wherever they are."""

import sys
from collections.abc import Iterator

import pytest

from tests.payloads.starting import PAYLOADS, Launcher

sys.path.insert(0, str(PAYLOADS))


@pytest.fixture(scope="session")
def launch() -> Iterator[Launcher]:
    """Starts the ranks of payloads without importing torch again."""
    pytest.importorskip("torch")
    launcher = Launcher()
    yield launcher
    launcher.close()
