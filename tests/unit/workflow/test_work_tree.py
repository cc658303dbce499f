"""Where the work tree is, and what is said where git cannot tell."""

import os
import subprocess
from pathlib import Path

import pytest

from rv.errors import ErrorKind, RvError
from rv.workflow.work_tree import find_top


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A work tree with a folder `src`, and no configuration of git's but its own."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = tmp_path / "my project"
    (made / "src").mkdir(parents=True)
    git("init", made)
    return made


@pytest.fixture
def no_git(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without git."""
    monkeypatch.setenv("PATH", str(top.parent / "nothing"))


def git(*words: str | Path) -> None:
    subprocess.run(["git", *words], check=True, capture_output=True)


def failure(directory: Path) -> RvError:
    """Return what is raised for a folder."""
    with pytest.raises(RvError) as caught:
        find_top(str(directory), "--no-sync")
    assert caught.value.kind is ErrorKind.CONFIG
    return caught.value


def test_a_work_tree_and_a_folder_outside_of_any(top: Path) -> None:
    assert find_top(str(top / "src")) == str(top)
    assert find_top(str(top.parent)) == ""


def test_a_work_tree_of_somebody_else(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git's own word, in whatever language it speaks, and what lets it in, with its name quoted."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    error = failure(top / "src")
    assert "dubious ownership" in error.message
    allow = f"git config --global --add safe.directory '{top}'"
    assert error.hint == f"if you trust it: {allow}"
    (top.parent / "home").mkdir()
    subprocess.run(allow, shell=True, check=True)
    assert find_top(str(top / "src")) == str(top)
    assert find_top(str(top.parent)) == ""


@pytest.mark.usefixtures("no_git")
def test_a_work_tree_without_a_git(top: Path) -> None:
    """Also one whose `.git` is a file, as of a submodule or one of several work trees."""
    assert failure(top / "src").message == "git: No such file or directory"
    (top.parent / "other").mkdir()
    (top.parent / "other" / ".git").write_text("gitdir: elsewhere\n")
    assert failure(top.parent / "other").hint == "install git, or --no-sync"


@pytest.mark.usefixtures("no_git")
def test_no_git_is_no_matter_outside_of_a_work_tree(top: Path) -> None:
    assert find_top(str(top.parent)) == ""


@pytest.mark.usefixtures("no_git")
def test_no_git_is_no_matter_in_a_home(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is never sent, though it be a work tree as a whole."""
    monkeypatch.setenv("HOME", str(top))
    assert find_top(str(top / "src")) == ""


@pytest.mark.parametrize("with_git", [True, False])
def test_the_inside_of_git_is_no_work_tree(
    top: Path, monkeypatch: pytest.MonkeyPatch, with_git: bool
) -> None:
    if not with_git:
        monkeypatch.setenv("PATH", "")
    assert find_top(str(top / ".git" / "refs")) == ""


def test_a_bare_repository_is_no_work_tree(top: Path) -> None:
    """Wherever it lies, and also one that work trees are made of beside it."""
    for folder in (top.parent / "bare", top / "src" / "bare"):
        git("init", "--bare", folder)
        assert find_top(str(folder)) == ""
    git("-C", top, "config", "core.bare", "true")
    assert find_top(str(top)) == ""


def test_an_empty_folder_of_gits_name_is_no_work_tree(top: Path) -> None:
    """Git passes over it, and finds the one above."""
    (top / "src" / ".git").mkdir()
    (top.parent / "other" / ".git").mkdir(parents=True)

    assert find_top(str(top / "src")) == str(top)
    assert find_top(str(top.parent / "other")) == ""


def test_a_work_tree_that_is_broken(top: Path) -> None:
    """As one whose repository was moved."""
    (top.parent / "other").mkdir()
    (top.parent / "other" / ".git").write_text("gitdir: elsewhere\n")
    error = failure(top.parent / "other")
    assert "not a git repository: " in error.message
    assert error.hint.startswith("try: git -C ")
    assert error.hint.endswith(" --show-toplevel, or --no-sync")


def test_a_repository_that_is_named(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By GIT_DIR: it need not lie above the folder."""
    monkeypatch.setenv("GIT_DIR", str(top / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(top))
    assert find_top(str(top.parent)) == str(top)
    monkeypatch.setenv("GIT_DIR", str(top / "gone"))
    assert "not a git repository" in failure(top.parent).message


def test_git_looks_no_further_up_than_it_was_told(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", f"/nowhere:{top}")
    assert find_top(str(top / "src")) == ""
    assert find_top(str(top)) == str(top)
