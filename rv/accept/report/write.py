"""Write a report: a page as HTML, which needs nothing beside it, and as Markdown."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rv.accept.history import history
from rv.accept.report.charts import draw
from rv.accept.report.page import Page
from rv.accept.report.places import figures_of, number, place_of, where
from rv.accept.report.series import charts
from rv.accept.report.ticket import Ticket, tickets
from rv.accept.report.trend_rows import trend_rows
from rv.accept.run import judged, require_one_cluster
from rv.accept.runs import Run, RunRecord
from rv.accept.store import find_run
from rv.errors import ErrorKind, RvError
from rv.files import write_atomically
from rv.slurm.printable import printable
from rv.transport.private_directories import own_directory

if TYPE_CHECKING:
    from jinja2 import Environment

HTML: Final = "report.html"
MARKDOWN: Final = "report.md"
_SEEN: Final = {"most": 40, "most_gpus": 16, "most_runs": 12}
"""Nodes, GPUs and runs that are seen at once; the others are folded."""
_MARKUP: Final = re.compile(r"([\\`*_{}\[\]|#~])")
_LINKED: Final = re.compile(
    r"""@(?=\w)|:(?=//)|\bwww(?=\.)|\b(?:mailto|xmpp)(?=:)|[#!$&](?=\d)|[~%](?=[\w"])""",
    re.IGNORECASE,
)
"""What makes links of words in GitHub and GitLab: people, addresses, issues, labels and the like.

They look for these in the rendered text, where a backslash or an entity is gone.
"""
_BREAK: Final = "\u200b"
"""A space without width: it parts what would be a link, and nobody sees it."""


def report_on(
    runs: Sequence[str], folder: Path, title: str, when: datetime
) -> tuple[str, bool, list[str]]:
    """Write a report of kept runs; return its verdict, whether it has charts, and what is not read.

    Raises `RvError(USAGE)` for what is no run, `RvError(STAGE)` where it cannot be written.
    """
    kept = _judged_runs(runs)
    results = [result for run in kept for result in run.results]
    labels = dict.fromkeys(run.record.label or run.record.race_id for run in kept)
    measured = history().all()
    page = Page(
        title=title or f"Acceptance of {', '.join(labels)}",
        about=", ".join(filter(None, (_about(run.record) for run in kept))),
        when=when,
        runs=results,
        charts=charts(results, measured),
        trends=trend_rows(results, measured),
    )
    return page.verdict, write(page, folder), [fault for run in kept for fault in run.faults]


def _judged_runs(names: Sequence[str]) -> list[Run]:
    found = [find_run(name) for name in names]
    require_one_cluster(found)
    return [judged(run) for run in found]


def ticket_text(runs: Sequence[str]) -> str:
    """Write what failed in kept runs as Markdown for a ticket: a section for each bad node."""
    return ticket_markdown([each for name in runs for each in tickets(judged(find_run(name)))])


def ticket_markdown(found: Sequence[Ticket]) -> str:
    """Write tickets as Markdown."""
    return _compact(_environment().get_template("ticket.md.j2").render(tickets=found))


def _about(record: RunRecord) -> str:
    """Say which run it was, and of which profile; "" for results that rv did not keep."""
    if not record.cluster:
        return ""
    profile = f"{record.profile} " if record.profile else ""
    asked = f" of {record.asked}" if record.asked else ""
    kind = "sweep" if record.race_id.startswith("sweep-") else "run"
    return f"{profile}{kind} {record.race_id}{asked}"


def write(page: Page, folder: Path) -> bool:
    """Write both files; return whether the charts are in: they need matplotlib.

    Raises `RvError(STAGE)` for a folder that cannot be written.
    """
    try:
        text, has_charts = as_html(page), True
    except ImportError:
        text, has_charts = as_html(replace(page, charts=())), False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with own_directory(folder) as own:
            for name, content in ((HTML, text), (MARKDOWN, as_markdown(page))):
                write_atomically(own / name, content)
    except OSError as error:
        why = f"{error.strerror or error}, on {error.filename or folder}"
        hint = "--output DIR writes it elsewhere"
        raise RvError(ErrorKind.STAGE, f"the report cannot be written: {why}", hint=hint) from error
    return has_charts


def as_html(page: Page) -> str:
    """Write the page as one HTML document: no script, and nothing fetched.

    Raises `ImportError` where there is something to draw and matplotlib is not installed.
    """
    from markupsafe import Markup

    # Drawn here from numbers and escaped text, so that it may stand in the page as it is.
    drawings = [(chart, Markup(draw(chart))) for chart in page.charts]  # noqa: S704
    return _environment().get_template("page.html.j2").render(page=page, drawings=drawings, **_SEEN)


def as_markdown(page: Page) -> str:
    """Write the page as Markdown, without its charts."""
    text = _environment().get_template("page.md.j2").render(page=page)
    return _compact(text)


def _compact(text: str) -> str:
    """Leave out the empty lines that a template made: inside of tables, and beyond one."""
    rows = re.sub(r"\|\n\n(?=\|)", "|\n", text)
    lists = re.sub(r"(?<=\n)(- .*)\n\n(?=- )", r"\1\n", rows)
    return re.sub(r"\n{3,}", "\n\n", lists).strip() + "\n"


def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("rv.accept.report", "."),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = {"figures": figures_of, "where": where, "place": place_of, "number": number}
    environment.filters |= filters | {"cell": _cell, "line": printable}
    return environment


def _cell(text: object) -> str:
    """Text that stays in its cell, and means nothing to Markdown and those who render it."""
    line = _LINKED.sub(rf"\g<0>{_BREAK}", " ".join(str(text).split()))
    safe = _MARKUP.sub(r"\\\1", line.replace("&", "&amp;").replace("<", "&lt;"))
    return safe.replace(_BREAK, "&#8203;")
