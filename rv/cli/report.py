"""What `rv accept` shows of runs that are kept: report, compare, export, history, baseline."""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rv.cli import caller
from rv.cli.parameters import ClusterOption, JsonOption
from rv.cli.typer_commands import group_app
from rv.errors import ErrorKind, RvError
from rv.files import write_own
from rv.ui import console


class Form(StrEnum):
    """The formats that a run is exported in."""

    JUNIT = "junit"
    CSV = "csv"
    JSONL = "jsonl"


class ReportForm(StrEnum):
    """The formats of a report: a page, or the text of a ticket."""

    HTML = "html"
    MD = "md"


baseline = group_app("What GPUs should reach.")


def report(
    *,
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN", help="Runs, sweeps, folders or files of results. Default: the latest."
        ),
    ] = None,
    form: Annotated[
        ReportForm,
        typer.Option("--format", help="A page, or Markdown for a ticket about what failed."),
    ] = ReportForm.HTML,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="The folder of the page, rv-report unless given; of md the file, - for stdout.",
        ),
    ] = "",
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="Its heading.")] = "",
    json: JsonOption = False,
) -> None:
    """Write what runs found: one HTML page, which needs nothing beside it, or a ticket."""
    names = runs or ["last"]
    if form is ReportForm.HTML:
        _write_page(names, Path(output or "rv-report"), title, json=json)
        return
    from rv.accept.report.write import ticket_text

    if json or title:
        raise RvError(
            ErrorKind.USAGE, "a ticket has no --json and no --title", hint="leave them out"
        )
    _write(ticket_text(names), output or "-")


def _write_page(names: list[str], folder: Path, title: str, *, json: bool) -> None:
    """Write the page and its Markdown into a folder, and say the verdict."""
    from rv.accept.report.write import HTML, MARKDOWN, report_on

    verdict, has_charts, faults = report_on(names, folder, title, datetime.now(UTC))
    _say_unread(faults)
    if json:
        files = {"html": str(folder / HTML), "markdown": str(folder / MARKDOWN)}
        console.emit_json({"verdict": verdict, "pictures": has_charts, **files})
        return
    console.say(f"{verdict}: {folder / HTML} and {MARKDOWN} beside it")
    if not has_charts:
        console.say("without charts: they need matplotlib, pip install 'rv-slurm[report]'")


def _say_unread(faults: Sequence[str]) -> None:
    """Say which files of results could not be read: ten of them, and how many more."""
    for fault in faults[:10]:
        console.say(f"not read: {fault}")
    if len(faults) > 10:
        console.say(f"not read: {len(faults) - 10} more")


def compare_runs(
    before: Annotated[str, typer.Argument(metavar="A", help="A run, a sweep, a path, or last.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    *,
    json: JsonOption = False,
) -> None:
    """Compare two runs: which numbers moved, and which verdicts changed."""
    from rv.accept.run import compare_runs
    from rv.ui.trends import comparison_document, comparison_text

    comparison = compare_runs(before, after)
    if json:
        console.emit_json(comparison_document(comparison))
    else:
        console.answer(*comparison_text(comparison))


def export_run(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run, a sweep, a path, or last.")],
    *,
    form: Annotated[Form, typer.Option("--format", help="Output format.")] = Form.JUNIT,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="File to write; - for stdout.")
    ] = "-",
) -> None:
    """Write a judged run as JUnit XML or as CSV parted by |, or its measurements as JSON lines."""
    from rv.accept.export import as_csv, as_jsonl, as_junit
    from rv.accept.run import judged, measured_of
    from rv.accept.store import find_run

    kept = find_run(run)
    _say_unread(kept.faults)
    if form is Form.JSONL:
        text = as_jsonl(measured_of(kept))
    elif form is Form.CSV:
        text = as_csv(judged(kept))
    else:
        text = as_junit(judged(kept))
    _write(text, output)


def show_history(
    *,
    gpu: Annotated[str, typer.Option(metavar="UUID", help="Only this GPU.")] = "",
    worst: Annotated[int, typer.Option(min=0, metavar="N", help="Only the N worst.")] = 0,
    export: Annotated[
        str,
        typer.Option(metavar="FILE", help="Write every measurement as JSON lines; - for stdout."),
    ] = "",
    runs: Annotated[bool, typer.Option("--runs", help="List the runs kept here.")] = False,
    json: JsonOption = False,
) -> None:
    """Show how each GPU's numbers changed, the worst first."""
    from rv.accept.export import as_jsonl
    from rv.accept.history import history
    from rv.accept.kept_records import damaged, records
    from rv.accept.trends import trends
    from rv.ui.trends import runs_document, runs_text, trends_document, trends_text

    if runs:
        kept = records()
        for problem in damaged():
            console.notice(problem)
        console.emit_json(runs_document(kept)) if json else console.answer(*runs_text(kept))
        return
    measured = history().all(gpu=gpu)
    if export:
        _write(as_jsonl(measured), export)
        return
    shown = trends(measured)[: worst or None]
    if json:
        console.emit_json(trends_document(shown))
    else:
        console.answer(*trends_text(shown, gpu))


@baseline.command("show")
def show_baselines(
    *,
    gpu: Annotated[str, typer.Option("--gpu", metavar="GPU", help="Only of this model.")] = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show every reference with its source; of two for the same the first counts."""
    from rv.accept.baselines import baselines_for
    from rv.ui.trends import baselines_document, baselines_text

    baselines = baselines_for(caller.current_caller(cluster).cluster.key if cluster else "")
    values = baselines.of_model(gpu) if gpu else baselines.values
    if json:
        console.emit_json(baselines_document(values))
    else:
        console.answer(*baselines_text(values))


@baseline.command("make")
def make_baselines(*, cluster: ClusterOption = "", json: JsonOption = False) -> None:
    """Make golden values of this cluster from the history of at least three clean nodes."""
    from rv import avoided_nodes
    from rv.accept.baselines import LEAST_NODES, baselines_for, golden, golden_file
    from rv.accept.history import history

    here = caller.current_caller(cluster)
    key = here.cluster.key
    measured = [each for each in history().all() if each.cluster == key]
    avoided = avoided_nodes.reasons(key, here.now_s)
    text, count = golden(measured, baselines_for(""), avoided, here.now_s)
    if not count:
        raise RvError(
            ErrorKind.USAGE,
            f"no GPU of {here.cluster.label} was measured on {LEAST_NODES} clean nodes",
            hint="rv accept sweep --profile accept measures them",
        )
    path = golden_file(key)
    _write(text, str(path))
    if json:
        console.emit_json({"values": count, "file": str(path)})
    else:
        console.answer(f"{count} golden values in {path}")


def _write(text: str, where: str) -> None:
    """Write an answer to a file, or to stdout for -."""
    if where == "-":
        console.answer(text.rstrip("\n"))
        return
    path = Path(where)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_own(path, text)
    except OSError as error:
        why = error.strerror or str(error)
        raise RvError(
            ErrorKind.STAGE, f"cannot write {path}: {why}", hint="name another file"
        ) from error


def register(accept: typer.Typer) -> None:
    """Add these commands to `rv accept`."""
    accept.command("report")(report)
    accept.command("compare")(compare_runs)
    accept.command("export")(export_run)
    accept.command("history")(show_history)
    accept.add_typer(baseline, name="baseline")
