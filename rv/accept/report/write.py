"""A page as HTML, which needs nothing beside it, and as Markdown."""

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from rv.accept.report.charts import draw
from rv.accept.report.page import Page

if TYPE_CHECKING:
    from jinja2 import Environment

_MARKUP: Final = re.compile(r"([\\`*_{}\[\]|#])")


def as_html(page: Page) -> str:
    """Write the page as one HTML document: no script, and nothing fetched.

    Raises `ImportError` where there is something to draw and matplotlib is not installed.
    """
    from markupsafe import Markup

    # Drawn here from numbers and escaped text, so that it may stand in the page as it is.
    drawings = [(chart, Markup(draw(chart))) for chart in page.charts]  # noqa: S704
    return _environment().get_template("page.html.j2").render(page=page, drawings=drawings)


def as_markdown(page: Page) -> str:
    """Write the page as Markdown, without its pictures."""
    text = _environment().get_template("page.md.j2").render(page=page)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"\|\n\n(?=\|)", "|\n", text)).strip() + "\n"


def _environment() -> "Environment":
    from jinja2 import Environment, FunctionLoader, StrictUndefined, select_autoescape

    def read(name: str) -> str:
        return files("rv.accept.report").joinpath(name).read_text(encoding="utf-8")

    environment = Environment(
        loader=FunctionLoader(read),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = _cell
    return environment


def _cell(text: object) -> str:
    """Text that stays in its cell, and means nothing to Markdown."""
    line = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;")
    return _MARKUP.sub(r"\\\1", line)
