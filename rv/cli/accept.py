"""`rv accept`: test what a cluster gives, through the launcher that its users use."""

import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from rv.accept.payload_command import Profile, chosen, refuse_faults_of_pairs, require_faults
from rv.avoided_nodes import DAYS
from rv.cli import bad_nodes, caller, drain, report
from rv.cli.accept_options import (
    DaysOption,
    DcgmOption,
    InjectOption,
    JobsOption,
    NodesOption,
    PairsOption,
    ProfileOption,
    SkipOption,
    StateOption,
    StrictOption,
    VerboseOption,
)
from rv.cli.defaults import with_request_options, with_request_options_but
from rv.cli.dry_run import show_plan
from rv.cli.parameters import JsonOption, Line
from rv.cli.read_nodes import node_names
from rv.cli.typer_commands import group_app
from rv.dataclass import dataclass
from rv.errors import EXIT_INTERRUPTED, ErrorKind, RvError, hint_if_unwritable
from rv.payloads.contract.catalogue import PAYLOADS, WALLTIMES, PayloadSpec
from rv.ui import console
from rv.workflow.cluster import Early
from rv.workflow.environments import job_environment, with_environment
from rv.workflow.options import RequestOptions
from rv.workflow.read_options import build_request

if TYPE_CHECKING:
    from rv.accept.run import Conclusion
    from rv.accept.runs import Sweep
    from rv.accept.sweep import Sweeper, SweepOptions
    from rv.cli.launching import Raced
    from rv.models.request import Command, Request
    from rv.models.snapshot import Snapshot

_HOW_TO_JUDGE: Final = (
    "rv accept run --resume {race} waits for it and judges it, rv stop {race} ends it"
)

app = group_app("Acceptance: test GPUs and nodes, judge and keep the results.")


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
    verbose: VerboseOption = False,
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
    _require_baselines("")
    if dry_run:
        show_plan(options, tests)
        return
    raced = _race(options, tests, detach=detach)
    if raced:
        ended = _EndedRun(raced=raced, profile=profile, payloads=which)
        _conclude(ended, options, strict=strict, skip=skip_exit_code)


app.command("run")(run)


def _race(options: RequestOptions, tests: "Command", *, detach: bool) -> "Raced | None":
    from rv.accept.kept_records import note_begun
    from rv.cli import launching

    return launching.race(
        options,
        tests,
        detach=detach,
        stops_unclaimed=True,
        how_to_follow=_HOW_TO_JUDGE,
        require=_require_baselines,
        note_begun=note_begun,
    )


def _refuse_with_resume(line: Line) -> None:
    """Raise `RvError(USAGE)` where more was typed than which run it is, and how to tell of it."""
    if line.typed - {"resume", "cluster", "json", "strict", "skip_exit_code"}:
        problem = "--resume judges a run as it was begun"
        hint = "leave out payloads and every option but --cluster, --json and --strict"
        raise RvError(ErrorKind.USAGE, problem, hint=hint)


def _refuse_mixed(line: Line, payloads: Sequence[str]) -> None:
    """Raise `RvError(USAGE)` for what a sweep that was begun, or one of pairs, does not take."""
    from rv.accept.pairs import PAYLOAD

    given = sorted(line.typed - {"resume", "cluster", "json", "strict", "skip_exit_code"})
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
    with hint_if_unwritable(f"rv accept run --resume {status.race.race_id} says it again"):
        if options.json:
            console.emit_json(run_document(conclusion.run))
        else:
            console.answer(*run_text(conclusion.run))
    raise typer.Exit(exit_code(conclusion.run.results, strict=strict, skip=skip))


# Each node, or pair of nodes, has one job, whose shape the sweep chooses.
@with_request_options_but(
    "gpu", "mig", "single_node", "multi_node", "layouts", "fanout", "max_submissions",
    "widen_after", "retry", "work", "checkpoint", "checkpoint_buffer", "checkpoint_signal",
    "switch", "send", "no_sync",
)  # fmt: skip
def sweep(
    *,
    line: Line,
    options: RequestOptions,
    payloads: Annotated[
        list[str] | None, typer.Argument(metavar="PAYLOAD", help="Only these; all unless given.")
    ] = None,
    profile: ProfileOption = Profile.SMOKE,
    nodes: NodesOption = "",
    state: StateOption = "",
    max_jobs: JobsOption = 200,
    avoid_days: DaysOption = DAYS,
    resume: Annotated[
        str | None, typer.Option(metavar="SWEEP", help="Go on with a sweep: its id, or last.")
    ] = None,
    pairs: PairsOption = False,
    inject: InjectOption = None,
    strict: StrictOption = False,
    skip_exit_code: SkipOption = 0,
) -> None:
    """Run the payloads on each of many nodes, one exclusive job a node, and compare the nodes."""
    from rv.accept.pairs import PAYLOAD
    from rv.accept.sweep import SweepOptions

    _refuse_mixed(line, payloads or ())
    if resume is not None:
        _resume(resume, options, strict=strict, skip=skip_exit_code)
    which = chosen([PAYLOAD] if pairs else payloads or (), profile, _bundled())
    faults = require_faults(inject or (), which)
    names = node_names(nodes) if nodes else ()
    here = _sweeping(options)
    sweep_options = SweepOptions(
        payloads=which,
        profile=profile,
        base=_base(options, profile, here),
        environment=job_environment(options, here.environ),
        workdir=here.workdir,
        nodes=names,
        partitions=_words(options.partition),
        states=_words(state),
        max_jobs=max_jobs,
        avoid_days=avoid_days,
        faults=faults,
        by_pairs=pairs,
    )
    _begin(sweep_options, here, options, strict=strict, skip=skip_exit_code)


app.command("sweep")(sweep)


def _begin(
    how: "SweepOptions", here: caller.Caller, options: RequestOptions, *, strict: bool, skip: int
) -> NoReturn:
    """Begin a sweep, run it to its end, and exit."""
    from rv.accept.sweep import begin

    snapshot = here.cluster.take_snapshot()
    begun = begin(how, here.cluster, snapshot)
    sweeper = _sweeper(how, here, snapshot, options)
    _sweep(sweeper, begun, json=options.json, strict=strict, skip=skip)


def _resume(name: str, options: RequestOptions, *, strict: bool, skip: int) -> NoReturn:
    """Go on with a sweep as it was begun, and exit."""
    from rv.accept.store import load_sweep
    from rv.accept.sweep import as_begun

    here = _sweeping(options)
    begun = load_sweep(name, here.cluster.key)
    sweeper = _sweeper(as_begun(begun), here, here.cluster.take_snapshot(), options)
    _sweep(sweeper, begun, json=options.json, strict=strict, skip=skip)


def _base(options: RequestOptions, profile: Profile, here: caller.Caller) -> "Request":
    """Return what each node's job is asked for with."""
    options = replace(options, time=options.time or WALLTIMES[profile])
    base = build_request(options, None)
    return with_environment(base, here.cluster, here.workdir, console.notice)


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _sweeping(options: RequestOptions) -> caller.Caller:
    """Find the cluster to sweep. Raises `RvError` where nobody could judge what it answers."""
    if options.snapshot:
        raise RvError(
            ErrorKind.USAGE, "nothing can be submitted to a snapshot", hint="leave --snapshot out"
        )
    here = caller.current_caller(options.cluster)
    _require_baselines(here.cluster.key)
    return here


def _sweeper(
    how: "SweepOptions", here: caller.Caller, snapshot: "Snapshot", options: RequestOptions
) -> "Sweeper":
    from rv.accept.sweep import Sweeper
    from rv.ui.progress import Progress

    return Sweeper(
        options=how,
        cluster=here.cluster,
        snapshot=snapshot,
        site=options.config.site,
        sink=Progress(json_only=options.json),
        say=console.say,
    )


def _sweep(sweeper: "Sweeper", begun: "Sweep", *, json: bool, strict: bool, skip: int) -> NoReturn:
    """Run a sweep to its end, show a row a node, and exit."""
    from rv.accept.results import exit_code
    from rv.workflow.interactive_shell import HungUp, hang_up_raised

    label = sweeper.cluster.label
    what = "pairs of nodes" if begun.is_of_pairs else "nodes"
    console.say(f"sweep {begun.sweep_id} of {begun.jobs} {what} on {label}")
    goes_on = f"rv accept sweep --resume {begun.sweep_id} goes on"
    with hint_if_unwritable(goes_on):
        try:
            with hang_up_raised():
                conclusion = sweeper.conclude(begun)
        except (KeyboardInterrupt, HungUp) as end:
            console.say(f"detached: {goes_on}")
            signal_number = end.signal_number if isinstance(end, HungUp) else signal.SIGINT
            raise typer.Exit(128 + signal_number) from None
        _say_all(conclusion.notes)
        _show_sweep(conclusion, label, json=json)
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


def _require_baselines(cluster: str) -> None:
    """Refuse a file of references that is broken, before a job runs that nobody could judge then.

    Without a cluster its golden values are not read. Raises `RvError(CONFIG)`.
    """
    from rv.accept.baselines import baselines_for

    baselines_for(cluster)


def _bundled() -> frozenset[str]:
    from rv import bundle

    return frozenset(name.removesuffix(".py") for name in bundle.payload_names())


bad_nodes.register(app)
report.register(app)
drain.register(app)
