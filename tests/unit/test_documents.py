"""README is short, and no link of a document leads nowhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", *PAGES]
CODE_PATH = re.compile(r"`((?:examples|tests|rv|templates|strategies)/[\w./-]*)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The headings of a document, as links to them are written."""
    words = (re.sub(r"[^\w\s-]", "", heading.lower()) for heading in HEADING.findall(text))
    return {re.sub(r"\s", "-", word.strip()) for word in words}


def dead_links(path: Path, text: str) -> list[str]:
    """The links to files and headings that are not there; those to other sites are not tried."""
    dead = []
    for link in LINK.findall(text):
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if link.startswith(("http:", "https:")):
            continue
        is_there = target.exists()
        if not is_there or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            dead.append(link)
    return dead


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    assert dead_links(path, path.read_text(encoding="utf-8")) == []


def test_a_dead_link_is_seen() -> None:
    assert dead_links(README, "[a](docs/none.md) [b](LICENSE) [c](#none)") == [
        "docs/none.md",
        "#none",
    ]


def test_a_newcomer_reads_readme_to_its_end() -> None:
    """800 words at most, and every page of docs/ is found from there or from a page that is."""
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= 800
    linked = {name for path in DOCUMENTS for name in LINK.findall(path.read_text(encoding="utf-8"))}
    names = {link.partition("#")[0].rpartition("/")[2] for link in linked}
    assert {path.name for path in PAGES} - {"index.md"} <= names


def missing_paths(text: str) -> list[str]:
    """The paths of this repository that a document names, and that are not there."""
    return [path for path in CODE_PATH.findall(text) if not (ROOT / path).exists()]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_path_is_there(path: Path) -> None:
    """Pages of docs/ name files outside it, and do not link them: a site has only docs/."""
    assert missing_paths(path.read_text(encoding="utf-8")) == []
    assert missing_paths("`examples/none.py` `tests/run.sh`") == ["examples/none.py"]


def build_site(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Build what stands in a folder, strictly."""
    argv = [sys.executable, "-m", "zensical", "build", "--strict"]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True)


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Each page is in it, none leads out of docs/, nothing is loaded from elsewhere, and a dead link is seen."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    done = build_site(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.stem for path in PAGES} - {"index"}
    assert pages == {path.parent.name for path in (tmp_path / "site").glob("*/index.html")}
    for page in (tmp_path / "site").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'(?:src|<link[^>]*href)="https?://', text), page
    for page in PAGES:
        assert "](../" not in page.read_text(encoding="utf-8"), page
    (tmp_path / "docs" / "none.md").write_text("[dead](nowhere.md)", encoding="utf-8")
    assert build_site(tmp_path).returncode != 0
