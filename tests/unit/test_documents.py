"""README is short, and no link of a document leads nowhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
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
    assert {path.name for path in DOCUMENTS[2:]} <= names
