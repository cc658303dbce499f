"""A sandbox on paper."""

from pathlib import Path

import pytest

from rv.sandbox.records import Record


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """The record of a sandbox in a folder of the test's own, whose folders are there."""
    made = Record(name="x", identity="a0b1", directory=str(tmp_path), run=str(tmp_path / "run"),
                  boot="", profile="", digest="", cluster_name="", users=("nobody",))  # fmt: skip
    made.layout.make()
    return made
