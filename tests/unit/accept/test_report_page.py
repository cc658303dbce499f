"""The report's page: everything is there, and no text of a cluster's becomes markup."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from rv.accept.report.charts import DotChart, LineChart, binary, draw
from rv.accept.report.write import as_html, as_markdown
from rv.accept.results import Status
from tests.unit.accept.made_pages import DOTS, HOSTILE, LINES, page


class Elements(HTMLParser):
    """The elements of a document, in order, and the addresses that they name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [
            value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "data")
        ]


def test_the_page_needs_nothing_beside_it() -> None:
    found = Elements(as_html(page()))
    assert not {"script", "link", "img", "iframe", "object"} & set(found.tags)
    assert all(address.startswith("#") for address in found.addresses)
    assert found.tags.count("svg") == 3, "two charts and the line of a trend"
    assert not re.search(r"url\((?!#)|@import", as_html(page()))


def test_hostile_text_stays_text() -> None:
    plain, hostile = Elements(as_html(page())), Elements(as_html(page(HOSTILE)))
    assert hostile.tags == plain.tags


def test_every_part_of_the_page_has_the_text_of_the_cluster_only_as_text() -> None:
    """Were a part left out of the made page, the test above would say nothing of it."""
    text = as_html(page())
    for part in ("Findings", "Nodes", "Links", "GPUs", "Trends", "Charts", "Every run"):
        assert f"<h2>{part}</h2>" in text
    assert "serial <code>plain" in text
    assert "<b>plain</b>: " not in text
    assert "<b>slow</b> plain to cuda:1" in text


def test_the_verdict_stands_at_the_top() -> None:
    text = as_html(page(verdict=Status.WARN))
    assert text.index('<div class="verdict">WARN') < text.index("<h2>")
    assert as_markdown(page(verdict=Status.WARN)).startswith("# WARN: ")


def test_each_drawing_has_ids_of_its_own() -> None:
    ids = re.findall(r'\bid="([^"]+)"', as_html(page()))
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("chart", [LINES, DOTS], ids=["lines", "dots"])
def test_a_drawing_is_the_same_each_time_and_takes_the_pages_colours(
    chart: LineChart | DotChart,
) -> None:
    assert draw(chart) == draw(chart)
    left = set(re.findall(r"#[0-9a-f]{6}\b", draw(chart)))
    assert left <= {"#000000", "#ffffff"}, "colours that no page can change"
    assert "var(--ink)" in draw(chart)


def test_an_outlier_is_named_in_the_colour_of_failure() -> None:
    assert "n2:0" in draw(DOTS)
    assert "var(--bad)" in draw(DOTS)
    assert "var(--bad)" not in draw(replace(DOTS, outliers=()))


@pytest.mark.parametrize(
    ("chart"),
    [
        replace(LINES, lines=[], reference=None, marks=[], bad=[]),
        replace(DOTS, groups={"bf16": {"n1:0": 0.0}}, outliers=()),
    ],
)
def test_a_chart_of_little_is_drawn_all_the_same(chart: LineChart | DotChart) -> None:
    assert draw(chart).startswith("<svg")


def test_markdown_has_a_row_for_everything_and_cells_stay_whole() -> None:
    text = as_markdown(page(HOSTILE))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    unescaped = [re.sub(r"\\.", "", row).count("|") for row in rows]
    assert unescaped == [7, 7, 7, 5, 5, 5, 5, 7, 7, 7, 7, 7, 7, 7]
    assert "<script" not in text


@pytest.mark.parametrize(
    ("count", "written"), [(8, "8"), (1024, "1K"), (2**20, "1M"), (2**32, "4G"), (2**41, "2T")]
)
def test_sizes_are_written_in_powers_of_1024(count: int, written: str) -> None:
    assert binary(count) == written
