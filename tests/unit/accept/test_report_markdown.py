"""Markdown of a cluster's text: as GitHub and GitLab render it, it stays that text."""

import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from rv.accept.report.ticket import tickets
from rv.accept.report.write import as_markdown, ticket_markdown
from rv.accept.results import RunResult, Status, TestResult
from rv.accept.runs import Run, RunRecord
from tests.unit.accept.made_pages import page

LINKED = re.compile(
    r"(?<![\w`])@\w"  # GitHub's and GitLab's users and teams
    r"|[\w.+-]+@[\w-]+\.\w"  # GFM's e-mail addresses
    r"|\w://\S|\bwww\.\S|\b(?:mailto|xmpp):\S"  # GFM's and GitLab's bare links
    r"|[#!$&]\d|[~%][\w\"]",  # issues, merge requests, snippets, epics, labels, milestones
    re.IGNORECASE,
)
"""What becomes a link after Markdown was rendered: a backslash is no help there."""
HOSTILE = (
    "see https://evil.example/login or www.evil.example @ops-team ops@evil.example "
    "mailto:ops ~~all is well~~ ~well~ #12 !12 ~bug &copy; &12 <b>x</b> ![i](http://e/x.png) | *a*"
)


class Rendered(HTMLParser):
    """The elements of a rendered text, and what a reader reads."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        renderer = MarkdownIt("commonmark").enable(["table", "strikethrough"])
        self.feed(renderer.render(markdown))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def ticket_of(text: str) -> str:
    """Write a ticket of one test that gives this reason."""
    test = TestResult(name="x", status=Status.FAIL, reason=text, host="n1")
    result = RunResult(test_type="check", status=Status.FAIL, hostname="n1", tests=(test,))
    run = Run(record=RunRecord(race_id="r", cluster="c"), results=(result,))
    return ticket_markdown(tickets(run))


def report_of(text: str) -> str:
    """Write a report that says the text everywhere."""
    return as_markdown(page(text))


@pytest.mark.parametrize("write", [ticket_of, report_of])
def test_hostile_text_becomes_no_markup_and_no_link(write: Callable[[str], str]) -> None:
    hostile, plain = Rendered(write(HOSTILE)), Rendered(write("plain"))
    assert hostile.tags == plain.tags
    shown = hostile.text.partition("To see it again")[0]
    assert LINKED.findall(shown) == []
    assert "~~all is well~~" in shown.replace("\u200b", "")


@given(st.text(alphabet="ab1w.:/@~#!$&%;<>\\`*_{}[]|()^\"'- ", max_size=40))
@example(HOSTILE)
@example("HTTPS://a WWW.a a@b.c ftp://x rdar://y")
@example("&amp; &#64;ops \\@ops \\~\\~a")
def test_whatever_the_text_a_reader_reads_it_and_nothing_in_it_is_a_link(text: str) -> None:
    line = f"x {' '.join(text.split())} x"
    rendered = Rendered(ticket_of(line))
    cells = rendered.text.partition("To see it again")[0]

    assert rendered.tags <= {"h1", "h2", "ul", "li", "table", "thead", "tbody", "tr", "th", "td",
                             "pre", "code", "p"}  # fmt: skip
    assert " ".join(line.split()) in cells.replace("\u200b", "")
    assert not LINKED.search(cells)
