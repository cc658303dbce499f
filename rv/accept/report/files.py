"""The files of a report, written whole or not at all."""

from dataclasses import replace
from pathlib import Path

from rv.accept.report.page import Page
from rv.accept.report.write import as_html, as_markdown
from rv.errors import ErrorKind, RvError
from rv.files import write_atomically

HTML = "report.html"
MARKDOWN = "report.md"


def write(page: Page, folder: Path) -> bool:
    """Write both files; give whether the pictures are in: they need matplotlib.

    Raises `RvError(STAGE)` for a folder that cannot be written.
    """
    try:
        text, has_pictures = as_html(page), True
    except ImportError:
        text, has_pictures = as_html(replace(page, charts=())), False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in ((HTML, text), (MARKDOWN, as_markdown(page))):
            write_atomically(folder / name, content)
    except OSError as error:
        why = error.strerror or str(error)
        raise RvError(
            ErrorKind.STAGE,
            f"the report cannot be written: {why}, on {error.filename or folder}",
            hint="--output DIR writes it elsewhere",
        ) from error
    return has_pictures
