"""Where bundled data is found, and what a user's own folder replaces."""

from pathlib import Path

import platformdirs
import pytest

from rv import bundle
from rv.bundle import Kind

ROOT = Path(bundle.__file__).parents[1]


@pytest.mark.parametrize("kind", list(Kind))
def test_bundled_data_is_there(kind):
    """In a checkout beside rv/, in a wheel below it; files either way."""
    names = {entry.name for entry in bundle.bundled(kind).iterdir()}
    assert any(name.endswith((".yaml", ".j2")) for name in names)


def test_entries_are_sorted_and_the_users_replace_the_bundled(tmp_path):
    """By file name; a new name is added."""
    (tmp_path / "strategies").mkdir()
    for name in ("mig.yaml", "zz.yaml", "notes.txt"):
        (tmp_path / "strategies" / name).write_text("mine")
    found = {entry.name: entry for entry in bundle.entries(Kind.STRATEGIES, ".yaml", tmp_path)}
    assert list(found) == sorted(found)
    assert {"single_node.yaml", "zz.yaml"} <= set(found)
    assert "notes.txt" not in found
    assert found["mig.yaml"].read_text() == "mine"
    assert found["single_node.yaml"].read_text() != "mine"


def test_find_searches_the_user_first(tmp_path):
    """None where neither has it, and nothing outside the folder."""
    (tmp_path / "strategies").mkdir()
    (tmp_path / "strategies" / "mig.yaml").write_text("mine")
    found = bundle.find(Kind.STRATEGIES, "mig.yaml", tmp_path)
    assert found is not None
    assert found.read_text() == "mine"
    bundled = bundle.find(Kind.STRATEGIES, "mig.yaml")
    assert bundled is not None
    assert bundled.read_text() != "mine"
    for name in ("nothing.yaml", "../pyproject.toml", "", ".."):
        assert bundle.find(Kind.STRATEGIES, name, tmp_path) is None


def test_a_missing_user_folder_is_no_error(tmp_path):
    """Most users have none."""
    assert len(bundle.folders(Kind.TEMPLATES, tmp_path)) == 1


def test_payloads_by_name():
    """With the suffix or without; private modules are none."""
    for name in bundle.payload_names():
        script = bundle.payload(name.removesuffix(".py"))
        assert script is not None
        assert script.name == name
        assert not name.startswith("_")
    assert bundle.payload("no_such_payload") is None
    assert bundle.payload("__init__") is None
    assert (ROOT / "rv" / "payloads" / "check.py").exists() == (
        "check.py" in bundle.payload_names()
    )


def test_payload_files_hold_the_scripts_and_their_helpers():
    """Whatever a payload imports from beside it travels with it."""
    found = bundle.payload_files()
    folder = ROOT / "rv" / "payloads"
    beside = {str(path.relative_to(folder)) for path in folder.rglob("*.py")} - {"__init__.py"}
    assert set(found) == beside
    assert {*bundle.payload_names(), "_harness/main.py"} <= set(found)
    for name, text in found.items():
        assert text == (ROOT / "rv" / "payloads" / name).read_bytes()


def test_the_users_folder_is_the_platforms(monkeypatch):
    """One function knows where it is."""
    monkeypatch.setattr(platformdirs, "user_config_path", lambda name: Path("/config") / name)
    assert bundle.user_config_dir() == Path("/config/rv")
