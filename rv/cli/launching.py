"""What `up` and `run` have in common: plan, show or start, follow, and turn the end into a code."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import typer

from rv.cli import caller
from rv.cli.options import RequestOptions, build_request
from rv.errors import EXIT_GAVE_UP, EXIT_INTERRUPTED, ErrorKind, RvError
from rv.models.command import Command
from rv.models.race import Race
from rv.ui import console

_HELD: Final = "rv logs -f {race} follows it, rv stop {race} ends it"


def dry_run(options: RequestOptions, command: Command | None) -> None:
    """Show what would be submitted, and submit nothing."""
    from rv.ui.plans import plan_document, plan_text
    from rv.workflow.launch import prepare

    request = build_request(options, command)
    target = caller.planning_target(options.cluster, options.snapshot)
    say_taken(options, command, target.label)
    workdir, site = caller.working_directory(), options.config.site
    made = prepare(request, target, workdir, {}, caller.now_s(), site)
    if options.json:
        console.emit_json(plan_document(made.plan, made.names, made.scripts))
    else:
        console.answer(*plan_text(made.plan, made.sbatch_lines, made.request.widen_after))


@dataclass(frozen=True, kw_only=True, slots=True)
class Raced:
    """A race that was followed to its end; and the cluster and surroundings it had."""

    status: "RaceStatus"
    here: caller.Caller


def launch(
    options: RequestOptions, command: Command | None, *, detach: bool, stops_unclaimed: bool
) -> None:
    """Race, follow to the end, and exit with the job's own code.

    `stops_unclaimed`: Ctrl-C before there is a winner cancels the race instead of leaving it.
    """
    raced = race(options, command, detach=detach, stops_unclaimed=stops_unclaimed)
    if raced is not None:
        _finish(raced, options)


def race(
    options: RequestOptions, command: Command | None, *, detach: bool, stops_unclaimed: bool
) -> Raced | None:
    """Race and follow to the end; None where it was only sent. Exits where it was interrupted."""
    from rv.slurm.environment import caller_environment
    from rv.workflow import launch as flow

    is_typed = options.retry and "retry" not in options.config.defaults
    if is_typed and (detach or command is None):
        raise RvError(
            ErrorKind.USAGE,
            "--retry is for a command that is watched",
            hint="leave out --detach, and give a command",
        )
    if options.snapshot:
        raise RvError(
            ErrorKind.USAGE,
            "nothing can be submitted to a snapshot",
            hint="add --dry-run, or leave it out",
        )
    here = caller.current_caller(options.cluster)
    say_taken(options, command, here.cluster.label)
    environment = caller_environment(here.environ) | {"RV_UMASK": caller.umask()}
    request = build_request(options, command)
    site = options.config.site
    made = flow.prepare(request, here.cluster, here.workdir, environment, here.now_s, site)
    for note in (*made.plan.notes, *made.plan.job_notes):
        console.say(note)
    if detach:
        _race_alone(made, options, here, stops_unclaimed=stops_unclaimed)
        return None
    status = _race(made, options, here, stops_unclaimed=stops_unclaimed)
    for turn in range(1, request.retry + 1 if command else 1):
        again = _again(made, status, turn, options, here)
        if again is None:
            break
        made = again
        status = _race(made, options, here, stops_unclaimed=stops_unclaimed)
    return Raced(status=status, here=here)


def _race(
    made: "Launch", options: RequestOptions, here: caller.Caller, *, stops_unclaimed: bool
) -> "RaceStatus":
    """Start a race and follow it to its end, which is said."""
    from rv.ui.follow import Follower
    from rv.workflow import launch as flow
    from rv.workflow.shell import hold_shell

    sink = Follower(json_only=options.json)
    with _user_may_end(made, options, here, sink, stops_unclaimed=stops_unclaimed):
        race = flow.start(made, here.cluster, sink, detached=False)
        if made.request.command is None:
            status = hold_shell(race, made, here.cluster, sink)
        else:
            status = flow.watch(race, made, here.cluster, sink, until_claim=False)
    sink.finish(status)
    return status


def _race_alone(
    made: "Launch", options: RequestOptions, here: caller.Caller, *, stops_unclaimed: bool
) -> None:
    """Start a race that nobody watches, and say its name."""
    from rv.ui.follow import Follower
    from rv.workflow import launch as flow

    sink = Follower(json_only=options.json)
    with _user_may_end(made, options, here, sink, stops_unclaimed=stops_unclaimed):
        _detached(flow.start(made, here.cluster, sink, detached=True), options)


@contextmanager
def _user_may_end(
    made: "Launch",
    options: RequestOptions,
    here: caller.Caller,
    sink: "Follower",
    *,
    stops_unclaimed: bool,
) -> Iterator[None]:
    """Turn Ctrl-C and `--wait-timeout` into what they mean for the race, and an exit code."""
    from rv.race.watch import WaitTimedOut

    try:
        yield
    except WaitTimedOut:
        _stop(made.facts.race_dir, here)
        waited = f"gave up after {options.wait_timeout}"
        console.say(f"{waited}: race {made.facts.race_id} is cancelled")
        raise typer.Exit(EXIT_GAVE_UP) from None
    except KeyboardInterrupt:
        _interrupted(made, here, sink, stops_unclaimed=stops_unclaimed)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _again(
    made: "Launch",
    status: "RaceStatus",
    turn: int,
    options: RequestOptions,
    here: caller.Caller,
) -> "Launch | None":
    """Plan the race anew where a node was lost under it, and say so; None where that is not so."""
    from rv.workflow.retry import failed_nodes, may_retry, prepare_again

    if not may_retry(status):
        return None
    try:
        again = prepare_again(made, status, here.cluster, caller.now_s(), options.config.site)
    except RvError as error:
        console.say(f"not raced again: {error.message}")
        return None
    nodes = ", ".join(failed_nodes(status))
    without = f" without {nodes}" if nodes else ""
    turns = f"{turn} of {made.request.retry}"
    console.say(f"racing again ({turns}){without}: race {again.facts.race_id}")
    return again


def _finish(raced: Raced, options: RequestOptions) -> None:
    from rv.ui.races import race_document
    from rv.workflow.outcome import exit_code
    from rv.workflow.races import tidy

    if options.json:
        console.emit_json(race_document(raced.status))
    tidy(raced.here.cluster, caller.now_s())
    raise typer.Exit(exit_code(raced.status, raced.here.cluster.transport))


def _detached(race: Race, options: RequestOptions) -> None:
    from rv.models.race import RaceState, RaceStatus
    from rv.ui.races import race_document

    if options.json:
        console.emit_json(race_document(RaceStatus(race=race, state=RaceState.PENDING)))
    else:
        console.answer(race.race_id)
    console.say(_HELD.format(race=race.race_id))


def _interrupted(
    made: "Launch", here: caller.Caller, sink: "Follower", *, stops_unclaimed: bool
) -> None:
    """Stop the race, or leave it with all its strategies to itself."""
    from rv.race.directory import load_race, load_state_files
    from rv.workflow.launch import send_rest

    race = load_race(made.facts.race_dir, here.cluster.transport)
    if race is None:
        console.say("stopped: nothing was submitted")
        return
    is_claimed = load_state_files(race, here.cluster.transport).claim is not None
    if stops_unclaimed and not is_claimed:
        _stop(race.directory, here)
        console.say(f"stopped: race {race.race_id} is cancelled")
        return
    if not is_claimed:
        send_rest(race, made.request, here.cluster, sink)
    console.say(f"detached: {_HELD.format(race=race.race_id)}")


def _stop(directory: str, here: caller.Caller) -> None:
    from rv.race.directory import load_race
    from rv.workflow.races import stop_races

    race = load_race(directory, here.cluster.transport)
    for stopped in stop_races([race] if race else [], here.cluster):
        if stopped.unconfirmed:
            console.say(f"not confirmed: {stopped.unconfirmed}; rv ps will tell")


def say_taken(options: RequestOptions, command: Command | None, cluster: str) -> None:
    """The first line says what rv took, so that a misread option is seen at once."""
    what = "a MIG slice" if options.mig else f"{options.gpu} GPU{'' if options.gpu == 1 else 's'}"
    kind = f" ({options.type})" if options.type else ""
    time = f" for {options.time}" if options.time else ""
    run = f": {command.typed or command.line}" if command else ""
    console.say(f"rv on {cluster}: {what}{kind}{time}{run}")
    for name, setting in options.config.defaults.items():
        values = setting.value if isinstance(setting.value, list) else [setting.value]
        told = ", ".join(map(str, values))
        console.say(f"  {name.replace('_', ' ')} is {told} by {setting.origin}")


TYPE_CHECKING = False
if TYPE_CHECKING:
    from rv.models.race import RaceStatus
    from rv.ui.follow import Follower
    from rv.workflow.launch import Launch
