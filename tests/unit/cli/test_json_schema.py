"""docs/rv.schema.json is what rv prints: every field, and no other."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.json_schema import DEFINITIONS, complaints

ROOT = Path(__file__).parents[3]
SNAPSHOT = str(ROOT / "tests/data/snapshots/campus.json")


def rv(*words: str) -> object:
    done = subprocess.run([sys.executable, "-m", "rv", *words], capture_output=True, cwd=ROOT)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("plan", ("up", "--gpu", "8", "--dry-run")),
        ("plan", ("up", "--gpu", "2", "--checkpoint", "--time", "9d", "--dry-run")),
        ("plan", ("up", "--gpu", "1-8", "--work", "12gpuh", "--for", "finish", "--dry-run")),
        ("sweep_plan", ("sweep", "--array", "0-9%2", "--dry-run", "echo {}")),
        ("status", ("status",)),
        ("costs", ("cost", "--gpu", "4")),
        ("error", ("up", "--gpu", "999", "--dry-run")),
        ("error", ("up", "--vram", "80", "--dry-run")),
    ],
)
def test_what_needs_no_cluster(kind: str, words: tuple[str, ...]) -> None:
    assert complaints(kind, rv(*words, "--json", "--snapshot", SNAPSHOT)) == []


def test_a_field_too_few_and_one_too_many_are_seen() -> None:
    error = {"error": {"kind": "usage", "message": "no", "hint": ""}}
    assert complaints("error", error) == []
    assert complaints("error", {"error": {"kind": "usage", "message": "no"}})
    assert complaints("error", {**error, "more": 1})
    assert complaints("error", {"error": {**error["error"], "kind": "other"}})


def test_every_command_with_an_object_is_named() -> None:
    """A definition that no command and no other definition uses is dead."""
    text = (ROOT / "docs/rv.schema.json").read_text(encoding="utf-8")
    for name, definition in DEFINITIONS.items():
        assert "description" in definition or f"#/$defs/{name}" in text, name
