"""`rv accept`: test what a cluster gives, through the launcher that its users use."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from rv.accept.payload_command import Profile, chosen, refuse_faults_of_pairs, require_faults
from rv.avoided_nodes import DAYS
from rv.cli import caller, drain, report
from rv.cli.defaults import with_request_options
from rv.cli.dry_run import show_plan
from rv.cli.parameters import ClusterOption, JsonOption, Line
from rv.cli.read_nodes import node_names
from rv.cli.typer_commands import group_app
from rv.dataclass import dataclass
from rv.errors import EXIT_INTERRUPTED, ErrorKind, RvError
from rv.payloads.contract.catalogue import PAYLOADS, WALLTIMES, PayloadSpec
from rv.slurm.hostlist import expand
from rv.ui import console
from rv.workflow.cluster import Early
from rv.workflow.options import RequestOptions
from rv.workflow.read_options import build_request

if TYPE_CHECKING:
    from rv.accept.run import Conclusion
    from rv.accept.sweep import SweepOptions
    from rv.cli.launching import Raced

_HOW_TO_JUDGE: Final = (
    "rv accept run --resume {race} waits for it and judges it, rv stop {race} ends it"
)

app = group_app("Acceptance: test GPUs and nodes, judge and keep the results.")

ProfileOption = Annotated[Profile, typer.Option("--profile", help="How thorough.")]
DcgmOption = Annotated[
    int,
    typer.Option("--dcgm", min=0, max=3, metavar="1|2|3", help="Run dcgmi diag -r N before check."),
]
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
    line: Line,
    options: RequestOptions,
    payloads: Annotated[
        list[str] | None, typer.Argument(metavar="PAYLOAD", help="Only these; all unless given.")
    ] = None,
    profile: ProfileOption = Profile.SMOKE,
    inject: InjectOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="All ranks speak, and errors have a traceback.")
    ] = False,
    dcgm: DcgmOption = 0,
    strict: StrictOption = False,
    skip_exit_code: SkipOption = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return at once; --resume judges it later.")
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RACE", help="Wait for a run begun before, and judge it; or last."),
    ] = None,
) -> None:
    """Race for GPUs as any user does, run the payloads there, and judge what they measured."""
    from rv.accept.payload_command import command

    if resume is not None:
        _refuse_with_resume(line)
        _conclude(_awaited(resume, options), options, strict=strict, skip=skip_exit_code)
    which = chosen(payloads or (), profile, _bundled())
    faults = require_faults(inject or (), which)
    refuse_faults_of_pairs(faults)
    options = replace(options, time=options.time or WALLTIMES[profile])
    tests = command(which, profile, faults, ["--verbose"] if verbose else [], dcgm)
    _require_baselines()
    if dry_run:
        show_plan(options, tests)
        return
    from rv.cli import launching

    raced = launching.race(
        options, tests, detach=detach, stops_unclaimed=True, how_to_follow=_HOW_TO_JUDGE
    )
    if raced:
        ended = _EndedRun(raced=raced, profile=profile, payloads=which)
        _conclude(ended, options, strict=strict, skip=skip_exit_code)


app.command("run")(run)


def _refuse_with_resume(line: Line) -> None:
    """Raise `RvError(USAGE)` where more was typed than which run it is, and how to tell of it."""
    if line.typed - {"resume", "cluster", "json", "strict", "skip_exit_code"}:
        problem = "--resume judges a run as it was begun"
        hint = "leave out payloads and every option but --cluster, --json and --strict"
        raise RvError(ErrorKind.USAGE, problem, hint=hint)


def _refuse_mixed(line: Line, payloads: Sequence[str]) -> None:
    """Raise `RvError(USAGE)` for what a sweep that was begun, or one of pairs, does not take."""
    from rv.accept.pairs import PAYLOAD

    given = sorted(line.typed & {"payloads", "profile", "nodes", "state", "pairs"})
    if given and "resume" in line.typed:
        problem = f"--resume goes on with a sweep as it was begun: {', '.join(given)} cannot change"
        hint = "leave that out; without --resume it begins a sweep"
        raise RvError(ErrorKind.USAGE, problem, hint=hint)
    if "pairs" in line.typed and payloads:
        problem = f"a sweep over pairs runs {PAYLOAD} alone"
        raise RvError(ErrorKind.USAGE, problem, hint=f"leave out {', '.join(payloads)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class _EndedRun:
    """A race that ran payloads, and is over."""

    raced: "Raced"
    profile: Profile
    payloads: tuple[PayloadSpec, ...]


def _awaited(name: str, options: RequestOptions) -> _EndedRun:
    """Wait for the end of a run that another client began. Exits where that was interrupted."""
    from rv.accept.resume import find_begun
    from rv.cli import launching
    from rv.race.output import OutputReader
    from rv.ui.progress import Progress
    from rv.workflow.wait import follow_race

    here = caller.current_caller(options.cluster, early=Early.RACES)
    begun = find_begun(name, here.cluster)
    console.say(f"run {begun.race.race_id} on {here.cluster.label}")
    reader = OutputReader(begun.race, here.cluster.transport)
    reader.skip_to_last(0)
    shows = launching.on_terminal(Progress(json_only=options.json), stops=False, may_leave=False)
    try:
        with shows as reporter:
            status = follow_race(begun.race, here.cluster, reporter, reader)
            reporter.finish(status)
    except KeyboardInterrupt:
        race_id = begun.race.race_id
        console.say(f"race {race_id} goes on; {_HOW_TO_JUDGE.format(race=race_id)}")
        launching.leave(begun.race.directory, here, EXIT_INTERRUPTED, json=options.json)
    raced = launching.Raced(status=status, caller=here)
    return _EndedRun(raced=raced, profile=begun.profile, payloads=begun.payloads)


def _conclude(ended: _EndedRun, options: RequestOptions, *, strict: bool, skip: int) -> NoReturn:
    """Fetch the results of a run, judge and show them, and exit by the verdict."""
    from rv.accept.results import exit_code
    from rv.accept.run import conclude, fetch
    from rv.ui.acceptance import run_document, run_text

    cluster, status = ended.raced.caller.cluster, ended.raced.status
    try:
        fetched = fetch(status, ended.payloads, ended.profile, cluster)
        # Not the time when the command began: others may have been judged while it waited.
        conclusion = conclude(fetched, fetched.record.fetched_at)
    except KeyboardInterrupt:
        console.say(f"not judged: rv accept run --resume {status.race.race_id} does it")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _say_all(conclusion.notes)
    if options.json:
        console.emit_json(run_document(conclusion.run))
    else:
        console.answer(*run_text(conclusion.run))
    raise typer.Exit(exit_code(conclusion.run.results, strict=strict, skip=skip))


@with_request_options
def sweep(
    *,
    line: Line,
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
        int, typer.Option(min=1, max=256, metavar="N", help="Jobs in the queue at once.")
    ] = 200,
    avoid_days: Annotated[
        int, typer.Option(min=0, metavar="N", help="Leave nodes that fail out for so long.")
    ] = DAYS,
    resume: Annotated[
        str | None, typer.Option(metavar="SWEEP", help="Go on with a sweep: its id, or last.")
    ] = None,
    pairs: Annotated[
        bool,
        typer.Option("--pairs", help="All-reduce on all pairs of the nodes: which link is slow?"),
    ] = False,
    inject: InjectOption = None,
    strict: StrictOption = False,
    skip_exit_code: SkipOption = 0,
) -> None:
    """Run the payloads on each of many nodes, one exclusive job a node, and compare the nodes."""
    from rv.accept.pairs import PAYLOAD
    from rv.accept.sweep import SweepOptions

    _refuse_mixed(line, payloads or ())
    which = chosen([PAYLOAD] if pairs else payloads or (), profile, _bundled())
    sweep_options = SweepOptions(
        payloads=which,
        profile=profile,
        nodes=expand(nodes),
        partitions=[name for name in options.partition.split(",") if name],
        states=[name for name in state.split(",") if name],
        max_jobs=max_jobs,
        avoid_days=avoid_days,
        faults=require_faults(inject or (), which),
        by_pairs=pairs,
    )
    _sweep(options, sweep_options, resume, strict=strict, skip=skip_exit_code)


app.command("sweep")(sweep)


def _sweep(
    options: RequestOptions,
    sweep_options: "SweepOptions",
    resume: str | None,
    *,
    strict: bool,
    skip: int,
) -> None:
    """Begin or resume a sweep, run it to its end, show a row a node, and exit."""
    from rv.accept.results import exit_code
    from rv.accept.store import load_sweep
    from rv.accept.sweep import Sweeper, as_begun, begin
    from rv.ui.progress import Progress
    from rv.workflow.environments import job_environment, with_environment

    if options.snapshot:
        raise RvError(
            ErrorKind.USAGE, "nothing can be submitted to a snapshot", hint="leave --snapshot out"
        )
    _require_baselines()
    here = caller.current_caller(options.cluster)
    snapshot = here.cluster.take_snapshot()
    if resume is not None:
        begun = load_sweep(resume, here.cluster.key)
        sweep_options = as_begun(sweep_options, begun)
    else:
        begun = begin(sweep_options, here.cluster, snapshot)
    time = options.time or WALLTIMES[sweep_options.profile]
    what = "pairs of nodes" if begun.is_of_pairs else "nodes"
    console.say(f"sweep {begun.sweep_id} of {len(begun.nodes)} {what} on {here.cluster.label}")
    base = build_request(replace(options, time=time), None)
    sweeper = Sweeper(
        options=sweep_options,
        base=with_environment(base, here.cluster, here.workdir, console.notice),
        cluster=here.cluster,
        snapshot=snapshot,
        workdir=here.workdir,
        environment=job_environment(options, here.environ),
        site=options.config.site,
        sink=Progress(json_only=options.json),
        say=console.say,
    )
    try:
        conclusion = sweeper.conclude(begun)
    except KeyboardInterrupt:
        console.say(f"detached: rv accept sweep --resume {begun.sweep_id} goes on")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _say_all(conclusion.notes)
    _show_sweep(conclusion, here.cluster.label, json=options.json)
    raise typer.Exit(exit_code(conclusion.run.results, strict=strict, skip=skip))


def _show_sweep(conclusion: "Conclusion", label: str, *, json: bool) -> None:
    """Show a row a node, and what to tell the administrators of those that are avoided."""
    from rv.accept.bad_nodes import admin_text
    from rv.ui.acceptance import sweep_document, sweep_text

    if json:
        console.emit_json(sweep_document(conclusion.run, conclusion.avoided))
        return
    console.answer(*sweep_text(conclusion.run))
    if conclusion.avoided:
        console.answer("\n" + admin_text(conclusion.avoided, label))


def _say_all(notes: "tuple[str, ...]") -> None:
    for note in notes:
        console.say(note)


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
    from rv import avoided_nodes
    from rv.accept.bad_nodes import admin_text
    from rv.ui.acceptance import avoided_document

    here = caller.current_caller(cluster)
    key = here.cluster.key
    avoided_nodes.require_readable(key)
    if forget:
        names = node_names(forget)
        strangers = sorted(set(names) - set(avoided_nodes.reasons(key, here.now_s)))
        avoided_nodes.forget(key, names, here.now_s)
        if strangers:
            console.notice(f"not avoided before: {', '.join(strangers)}")
    entries = avoided_nodes.load(key, here.now_s)
    if json:
        console.emit_json(avoided_document(entries))
    else:
        console.answer(admin_text(entries, here.cluster.label))


@app.command()
def repaired(
    nodes: Annotated[str, typer.Argument(metavar="NODES", help="What was repaired: a1,b[2-4].")],
    *,
    anew: Annotated[
        bool, typer.Option("--anew", help="Their speed is another now: forget the usual one too.")
    ] = False,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Say that nodes were repaired: what was judged bad there no longer counts."""
    from rv import avoided_nodes
    from rv.accept.history import history

    here = caller.current_caller(cluster)
    names = node_names(nodes)
    values = history().repaired(here.cluster.key, names, anew=anew)
    was_avoided = sorted(set(names) & set(avoided_nodes.reasons(here.cluster.key, here.now_s)))
    avoided_nodes.forget(here.cluster.key, names, here.now_s)
    if json:
        console.emit_json({"nodes": list(names), "values": values, "avoided": was_avoided})
        return
    if not (values or was_avoided):
        console.notice(f"nothing bad was known of {', '.join(names)}: are these their names?")
    again = f"; no longer avoided: {', '.join(was_avoided)}" if was_avoided else ""
    console.answer(f"{values} values of {', '.join(names)} no longer count{again}")


def _require_baselines() -> None:
    """Refuse a file of references that is broken, before a job runs that nobody could judge then.

    Raises `RvError(CONFIG)`.
    """
    from rv.accept.baselines import baselines_for

    baselines_for("")


def _bundled() -> frozenset[str]:
    from rv import bundle

    return frozenset(name.removesuffix(".py") for name in bundle.payload_names())


report.register(app)
drain.register(app)
