"""Manual pages: one of each command, which man reads without a warning."""

import subprocess

import pytest

from rv.cli.command_tree import walk
from rv.cli.help import parameter_rows
from rv.cli.manual import pages

PAGES = dict(pages())


def warnings_of(text: str) -> str:
    """What groff has to say about a page, with all its warnings on."""
    argv = ["groff", "-man", "-ww", "-Tutf8"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=True)
    assert done.stdout
    return done.stderr


def test_each_command_has_a_page_with_all_its_options() -> None:
    names = set()
    for words, command, context in walk():
        name = "-".join(["rv", *words.split()])
        names.add(f"{name}.1")
        for spelt, _ in parameter_rows(command, context, "option").values():
            wanted = spelt.replace("-", "\\-").replace("…", "\\[u2026]")
            assert f"\n.B {wanted}\n" in PAGES[f"{name}.1"]
    assert PAGES.keys() == names


def test_groff_reads_them_without_a_warning() -> None:
    """All at once: it takes a second."""
    assert warnings_of("".join(PAGES.values())) == ""
    assert all(text.isascii() for text in PAGES.values())


@pytest.mark.parametrize("planted", [".XX unknown\n", "\\[nonesuch]\n"])
def test_a_warning_is_seen(planted: str) -> None:
    assert "warning" in warnings_of(PAGES["rv.1"] + planted)
