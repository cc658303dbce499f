"""Compiled templates are kept from one command to the next, and never believed to be newer."""

from pathlib import Path

import jinja2
import pytest

from rv.render.templates import Compiler, Templates
from rv.workflow.templates import KeptTemplates

PARTS = {"a.j2": "{% include 'b.j2' %} {{ 1 + 1 }}", "b.j2": "{{ x|q }}"}


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where they are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "rv" / "templates" / "compiled"


def rendered(parts: dict[str, str] | None = None) -> str:
    """Render as a command does that begins anew."""
    compiler = Compiler(Templates((parts or PARTS).__getitem__, KeptTemplates()))
    text = compiler.environment.get_template("a.j2").render(x="it's")
    compiler.keep_code()
    return text


EXPECTED = "'it'\"'\"'s' 2"


def test_a_template_is_compiled_by_the_first_command_alone(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes longer than all planning; and the file is not written again."""
    assert rendered() == EXPECTED
    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    first = kept.stat().st_ino
    with monkeypatch.context() as broken:
        broken.delattr(jinja2.Environment, "compile")
        assert rendered() == EXPECTED
    assert kept.stat().st_ino == first


def test_a_template_that_has_changed_is_compiled_again() -> None:
    """The user's own may change at any time; what it includes too."""
    rendered()
    assert rendered(PARTS | {"b.j2": "{{ x|q }}!"}) == EXPECTED.replace("s'", "s'!")
    assert rendered() == EXPECTED


@pytest.mark.parametrize("damage", ["cut off", "changed", "empty", "a folder"])
def test_a_file_that_is_damaged_is_none(kept: Path, damage: str) -> None:
    """It is compiled as before."""
    rendered()
    data = kept.read_bytes()
    if damage == "a folder":
        kept.unlink()
        kept.mkdir()
    else:
        changed = bytes([data[40] ^ 1])
        kept.write_bytes(
            {"cut off": data[:-9], "changed": data[:40] + changed + data[41:], "empty": b""}[damage]
        )
    assert rendered() == EXPECTED


@pytest.mark.parametrize("planted", ["file", "folder", "link"])
def test_what_others_may_have_written_is_not_run(kept: Path, planted: str) -> None:
    """Only a file of this user's, in a folder of this user's."""
    rendered()
    assert set(KeptTemplates().load()) == set(PARTS)
    compiled = kept.read_bytes()
    if planted == "file":
        kept.chmod(0o666)
    elif planted == "folder":
        kept.parent.chmod(0o777)
    else:
        kept.unlink()
        elsewhere = kept.parent.parent / "elsewhere"
        elsewhere.write_bytes(compiled)
        kept.symlink_to(elsewhere)
    assert KeptTemplates().load() == {}


def test_another_version_of_jinja2_compiles_anew(
    kept: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its code is for itself alone."""
    rendered()
    assert KeptTemplates().load()
    other = tmp_path / "compiler.py"
    other.write_text("# another\n")
    monkeypatch.setattr("jinja2.compiler.__file__", str(other))
    assert KeptTemplates().load() == {}


def test_a_cache_that_cannot_be_written_fails_nothing(tmp_path: Path) -> None:
    """A file is where its folder would be."""
    (tmp_path / "rv").write_text("")
    assert rendered() == EXPECTED
