"""`rv accept`: test what a cluster gives, through the launcher that its users use."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rv.accept.avoided import DAYS
from rv.accept.catalogue import DEFAULT_TIME, PAYLOADS, Profile, chosen
from rv.cli.common import ClusterOption, JsonOption, show_help_without_command
from rv.cli.defaults import with_request_options
from rv.cli.options import RequestOptions
from rv.cli.report import report
from rv.errors import ErrorKind, RvError
from rv.models.quantities import parse_duration
from rv.ui import console


class Form(StrEnum):
    """What a run is written as."""

    JUNIT = "junit"
    CSV = "csv"
    JSONL = "jsonl"


app = typer.Typer(
    help="Acceptance: test GPUs and nodes, judge and keep the results.",
    invoke_without_command=True,
    callback=show_help_without_command,
    rich_markup_mode=None,
)

ProfileOption = Annotated[Profile, typer.Option("--profile", help="How thorough.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="A warning is a failure: exit 1.")]
InjectOption = Annotated[
    list[str] | None,
    typer.Option("--inject", metavar="FAULT", help="Make a fault, to see the payloads find it."),
]
SkipOption = Annotated[
    int, typer.Option("--skip-exit-code", metavar="0|77", help="The code where all was skipped.")
]


@app.command("list")
def list_payloads(*, json: JsonOption = False) -> None:
    """List the payloads: what each tests, and which profile runs it."""
    from rv.ui.acceptance import payloads_document, payloads_text

    names = _bundled()
    if json:
        console.emit_json(payloads_document(PAYLOADS, names))
    else:
        console.answer(*payloads_text(PAYLOADS, names))


@with_request_options
def run(
    *,
    options: RequestOptions,
    payloads: Annotated[
        list[str] | None, typer.Argument(metavar="PAYLOAD", help="Only these; all unless given.")
    ] = None,
    profile: ProfileOption = Profile.SMOKE,
    nodes: Annotated[
        str,
        typer.Option("--nodes", metavar="NODES", help="A job on each of these nodes: see sweep."),
    ] = "",
    inject: InjectOption = None,
    strict: StrictOption = False,
    skip_exit_code: SkipOption = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")] = False,
) -> None:
    """Race for GPUs as any user does, run the payloads there, and judge what they measured."""
    from dataclasses import replace

    from rv.accept import command as lines
    from rv.cli import launching
    from rv.cli.judging import finish

    which = chosen(payloads or (), profile, _bundled())
    if nodes:
        from rv.cli import sweeping

        if dry_run:
            raise RvError(
                ErrorKind.USAGE,
                "--dry-run plans one job, not --nodes",
                hint="leave one of them out",
            )
        wish = sweeping.Wish(
            payloads=which,
            profile=profile,
            nodes=nodes,
            faults=tuple(inject or ()),
            strict=strict,
            skip_exit_code=skip_exit_code,
        )
        sweeping.sweep(options, wish)
        return
    options = replace(options, time=options.time or DEFAULT_TIME[profile])
    command = lines.command(which, profile, inject or ())
    if dry_run:
        launching.dry_run(options, command)
        return
    raced = launching.race(options, command, detach=False, stops_unclaimed=True)
    if raced is not None:
        finish(raced, which, profile, options, strict=strict, skip_exit_code=skip_exit_code)


app.command("run")(run)


@with_request_options
def sweep(
    *,
    options: RequestOptions,
    payloads: Annotated[
        list[str] | None, typer.Argument(metavar="PAYLOAD", help="Only these; all unless given.")
    ] = None,
    profile: ProfileOption = Profile.SMOKE,
    nodes: Annotated[
        str, typer.Option("--nodes", metavar="NODES", help="Only these: a1,b[2-4].")
    ] = "",
    state: Annotated[
        str, typer.Option(metavar="STATE,…", help="Only nodes in such a state: idle, mixed.")
    ] = "",
    max_jobs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Jobs in the queue at once, 256 at most.")
    ] = 200,
    deadline: Annotated[
        str, typer.Option(metavar="TIME", help="Slurm drops jobs that cannot end by then.")
    ] = "",
    avoid_days: Annotated[
        int, typer.Option(min=0, metavar="N", help="Leave nodes that fail out for so long.")
    ] = DAYS,
    resume: Annotated[
        str, typer.Option(metavar="SWEEP", help="Go on with a sweep: its id, or last.")
    ] = "",
    inject: InjectOption = None,
    strict: StrictOption = False,
) -> None:
    """Run the payloads on each of many nodes, one exclusive job a node, and compare the nodes."""
    from rv.cli import sweeping

    wish = sweeping.Wish(
        payloads=chosen(payloads or (), profile, _bundled()),
        profile=profile,
        nodes=nodes,
        states=state,
        deadline=parse_duration(deadline) if deadline else None,
        max_jobs=max_jobs,
        days=avoid_days,
        resume=resume,
        faults=tuple(inject or ()),
        strict=strict,
    )
    sweeping.sweep(options, wish)


app.command("sweep")(sweep)
app.command("report")(report)


@app.command()
def avoid(
    *,
    forget: Annotated[
        str, typer.Option("--forget", metavar="NODES", help="Send jobs to these nodes again.")
    ] = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show the nodes that plans leave out because they failed, as a text for the admins."""
    from rv.accept import avoided
    from rv.accept.failing import admin_text
    from rv.cli import caller
    from rv.slurm.hostlist import expand
    from rv.ui.acceptance import avoided_document

    here = caller.current_caller(cluster)
    key = here.cluster.key
    if forget:
        avoided.update(key, (), frozenset(expand(forget)), here.now_s)
    known = avoided.load(key, here.now_s)
    if json:
        console.emit_json(avoided_document(known))
    else:
        console.answer(admin_text(known, here.cluster.label))


@app.command("compare")
def compare_runs(
    before: Annotated[str, typer.Argument(metavar="A", help="A run, a sweep, or a path.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    *,
    json: JsonOption = False,
) -> None:
    """Compare two runs: which numbers moved, and which verdicts changed."""
    from rv.accept.compare import compare
    from rv.accept.find import find
    from rv.accept.judgement import measured_of
    from rv.ui.trends import comparison_document, comparison_text

    first, second = find(before), find(after)
    found = compare(measured_of(first), measured_of(second), (first.results, second.results))
    if json:
        console.emit_json(comparison_document(found))
    else:
        console.answer(*comparison_text(found))


@app.command("export")
def export_run(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run, a sweep, a path, or last.")],
    *,
    form: Annotated[Form, typer.Option("--format", help="Which form.")] = Form.JUNIT,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to; - for stdout.")
    ] = "-",
) -> None:
    """Write a run, judged, as JUnit XML, CSV or JSON lines."""
    from rv.accept.export import as_csv, as_junit
    from rv.accept.find import find
    from rv.accept.history import as_jsonl
    from rv.accept.judgement import judged, measured_of

    found = find(run)
    if form is Form.JSONL:
        text = as_jsonl(measured_of(found))
    else:
        text = (as_csv if form is Form.CSV else as_junit)(judged(found))
    _write(text, output)


@app.command("history")
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
    from rv.accept.history import as_jsonl, history
    from rv.accept.store import records
    from rv.accept.trends import trends
    from rv.ui.trends import runs_document, runs_text, trends_document, trends_text

    if runs:
        kept = records()
        console.emit_json(runs_document(kept)) if json else console.answer(*runs_text(kept))
        return
    measured = history().all(gpu=gpu)
    if export:
        _write(as_jsonl(measured), export)
        return
    found = trends(measured)[: worst or None]
    if json:
        console.emit_json(trends_document(found))
    else:
        console.answer(*trends_text(found))


baseline = typer.Typer(
    help="What GPUs should reach.",
    invoke_without_command=True,
    callback=show_help_without_command,
    rich_markup_mode=None,
)
app.add_typer(baseline, name="baseline")


@baseline.command("show")
def show_baselines(
    *,
    gpu: Annotated[str, typer.Option("--gpu", metavar="GPU", help="Only of this model.")] = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show every reference with its source; of two for the same the first counts."""
    from rv.accept.judgement import baselines
    from rv.cli import caller
    from rv.ui.trends import baselines_document, baselines_text

    known = baselines(caller.current_caller(cluster).cluster.key if cluster else "")
    model = known.model(gpu) if gpu else None
    values = [v for v in known.values if not gpu or v.gpu == (model.name if model else gpu)]
    if json:
        console.emit_json(baselines_document(values))
    else:
        console.answer(*baselines_text(values))


@baseline.command("make")
def make_baselines(*, cluster: ClusterOption = "", json: JsonOption = False) -> None:
    """Make golden values of this cluster from the history of at least three clean nodes."""
    from rv.accept import avoided
    from rv.accept.golden import LEAST_NODES, golden
    from rv.accept.history import history
    from rv.accept.judgement import baselines, golden_file
    from rv.cli import caller

    here = caller.current_caller(cluster)
    key = here.cluster.key
    measured = [each for each in history().all() if each.cluster == key]
    bad = {entry.node for entry in avoided.load(key, here.now_s)}
    text, count = golden(measured, baselines(""), bad, here.now_s)
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
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        why = error.strerror or str(error)
        raise RvError(
            ErrorKind.STAGE, f"cannot write {path}: {why}", hint="name another file"
        ) from error


def _bundled() -> frozenset[str]:
    from rv import bundle

    return frozenset(name.removesuffix(".py") for name in bundle.payload_names())


def register(parent: typer.Typer) -> None:
    """Add `accept` and its own commands."""
    parent.add_typer(app, name="accept")
