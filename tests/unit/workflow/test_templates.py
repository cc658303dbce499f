"""Compiled templates are kept from one command to the next, and never taken for newer ones."""

from pathlib import Path

import jinja2
import pytest

from rv.render.templates import Templates, environment
from rv.workflow.templates import _kept_in

PARTS = {"a.j2": "{% include 'b.j2' %} {{ 1 + 1 }}", "b.j2": "{{ x|q }}"}
EXPECTED = "'it'\"'\"'s' 2"


def rendered(folder: Path, parts: dict[str, str] | None = None) -> str:
    """Render as a command does that begins anew."""
    _kept_in.cache_clear()
    templates = Templates((parts or PARTS).__getitem__, _kept_in(folder).compiled)
    return environment(templates).get_template("a.j2").render(x="it's")


def test_a_template_is_compiled_by_the_first_command_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes longer than all planning."""
    folder = tmp_path / "kept"
    assert rendered(folder) == EXPECTED
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.delattr(jinja2.Environment, "compile")
    assert rendered(folder) == EXPECTED


def test_a_template_that_has_changed_is_compiled_again(tmp_path: Path) -> None:
    """The user's own may change at any time; what it includes too."""
    rendered(tmp_path)
    assert rendered(tmp_path, PARTS | {"b.j2": "{{ x|q }}!"}) == EXPECTED.replace("s'", "s'!")
    assert rendered(tmp_path) == EXPECTED


@pytest.mark.parametrize("data", [b"", b"j2", b"j2\x80\x05K\x05.\x80\x05J\x00\x00", b"garbage"])
def test_a_damaged_file_is_compiled_anew(tmp_path: Path, data: bytes) -> None:
    """Cut off, or something else."""
    rendered(tmp_path)
    files = list(tmp_path.iterdir())
    assert len(files) == len(PARTS)
    for file in files:
        file.write_bytes(data)
    assert rendered(tmp_path) == EXPECTED


@pytest.mark.parametrize("length", range(0, 200, 7))
def test_a_file_that_was_cut_off_is_compiled_anew(tmp_path: Path, length: int) -> None:
    """Wherever."""
    rendered(tmp_path)
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:length])
    assert rendered(tmp_path) == EXPECTED


def test_what_others_may_write_is_not_run(tmp_path: Path) -> None:
    """A folder that others may write to keeps nothing, and nothing in it is read."""
    folder = tmp_path / "kept"
    rendered(folder)
    folder.chmod(0o777)
    _kept_in.cache_clear()
    assert _kept_in(folder).compiled is None
    link = tmp_path / "link"
    folder.chmod(0o700)
    link.symlink_to(folder)
    assert _kept_in(link).compiled is None


def test_a_folder_that_cannot_be_made_fails_nothing(tmp_path: Path) -> None:
    """A file is where it would be; and a full disk keeps no code."""
    (tmp_path / "file").write_text("")
    assert rendered(tmp_path / "file" / "kept") == EXPECTED
    folder = tmp_path / "kept"
    folder.mkdir(mode=0o500)
    assert rendered(folder) == EXPECTED
