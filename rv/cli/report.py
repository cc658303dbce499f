"""`rv accept report`: what acceptance runs found, as a page to look at."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from rv.cli.common import JsonOption
from rv.ui import console


def report(
    *,
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN", help="Races, folders or files of results. Default: the latest."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where to write it.")
    ] = Path("rv-report"),
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="Its heading.")] = "",
    json: JsonOption = False,
) -> None:
    """Write what runs found as one HTML page, which needs nothing beside it, and as Markdown."""
    from rv.accept.history import history
    from rv.accept.judgement import judged
    from rv.accept.report.compose import compose
    from rv.accept.report.files import HTML, MARKDOWN, write
    from rv.accept.report.series import charts
    from rv.accept.store import load

    found = [judged(load(word)) for word in runs or ("last",)]
    results = [result for run in found for result in run.results]
    page = compose(
        results,
        title=title or f"Acceptance of {', '.join(dict.fromkeys(r.record.label for r in found))}",
        when=datetime.now(UTC),
        charts=charts(results, history().all()),
    )
    has_pictures = write(page, output)
    if json:
        files = {"html": str(output / HTML), "markdown": str(output / MARKDOWN)}
        console.emit_json({"verdict": page.verdict, "pictures": has_pictures, **files})
        return
    console.say(f"{page.verdict}: {output / HTML} and {MARKDOWN} beside it")
    if not has_pictures:
        console.say("without pictures: they need matplotlib, pip install 'rv-slurm[report]'")
