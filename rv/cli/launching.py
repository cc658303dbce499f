"""What `up`, `run` and `accept run` share: launch, follow to the end, and exit with a code."""

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rv.cli.caller import Caller, current_caller, now_s, with_rates
from rv.cli.say_request import asks_all, say_request
from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError, hint_if_unwritable
from rv.models.code import Code
from rv.models.race import Race, RaceState, RaceStatus
from rv.models.request import Command, Request
from rv.models.site import Site
from rv.race.directory import load_race
from rv.slurm.probe import SHARED_FOR
from rv.ui import console
from rv.ui.progress import Progress
from rv.ui.race_views import race_document, seconds_text
from rv.workflow.cluster import Early
from rv.workflow.environments import job_environment, umask, with_environment
from rv.workflow.launch import Launch, prepare
from rv.workflow.options import RequestOptions
from rv.workflow.races import exit_code, look_at, recover_races
from rv.workflow.read_options import build_request, patience_s
from rv.workflow.shellwords import simple_commands
from rv.workflow.start import HOW_TO_FOLLOW, start

if TYPE_CHECKING:
    from rv.workflow.follow import Follower, Reporter
    from rv.workflow.jupyter import Jupyter


def launch(
    options: RequestOptions,
    command: Command | None,
    *,
    detach: bool,
    stops_unclaimed: bool,
    jupyter: "Jupyter | None" = None,
) -> None:
    """Race, follow to the end, and exit with the job's own code.

    `stops_unclaimed`: Ctrl-C before there is a winner cancels the race instead of leaving it.
    """
    if asks_all(options):
        from rv.cli.every_cluster import race_on_the_best

        _check_options(options, command, detach=detach)
        options = race_on_the_best(options, command)
    raced = race(options, command, detach=detach, stops_unclaimed=stops_unclaimed, jupyter=jupyter)
    if raced:
        end(raced, json=options.json)


def end(raced: "Raced", *, json: bool) -> NoReturn:
    """Exit with the job's own code, once the race is described and others' losses are recovered."""
    cluster = raced.caller.cluster
    if json:
        race_id = raced.status.race.race_id
        with hint_if_unwritable(f"race {race_id} is over: rv ps --json tells how it ended"):
            console.emit_json(race_document(raced.status))
    recover_races(cluster, now_s())
    sys.exit(exit_code(raced.status, cluster.transport))


@dataclass(frozen=True, kw_only=True, slots=True)
class Raced:
    """A race that was followed to its end, and who called for it on which cluster."""

    status: RaceStatus
    caller: Caller


def race(
    options: RequestOptions,
    command: Command | None,
    *,
    detach: bool,
    stops_unclaimed: bool,
    jupyter: "Jupyter | None" = None,
    how_to_follow: str = HOW_TO_FOLLOW,
    require: Callable[[str], None] | None = None,
    note_begun: Callable[[str], None] | None = None,
) -> Raced | None:
    """Race and follow to the end; None where it was only sent. Exits where it was interrupted.

    `require` is called with the cluster's key, and raises `RvError` where nothing is to be sent;
    `note_begun` with the race's id, before it is sent.
    """
    gathered = gather(options, command, detach=detach, jupyter=jupyter)
    caller, request = gathered.caller, gathered.request
    if require:
        require(caller.cluster.key)
    site = with_rates(options.config.site, request, caller.cluster.key)
    import jinja2  # noqa: F401 - for the scripts, while the cluster still answers

    made = prepare(
        request,
        caller.cluster,
        caller.workdir,
        gathered.environment,
        caller.now_s,
        site,
        code=gathered.code,
        resumes=resumed(request, caller),
    )
    if note_begun:
        note_begun(made.script.race_id)
    how = Following(
        json=options.json,
        detach=detach,
        stops_unclaimed=stops_unclaimed,
        jupyter=jupyter,
        how_to_follow=how_to_follow,
    )
    return follow(made, caller, site, how)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """What a launch is made of: who calls, the request, the command's environment and its code."""

    caller: Caller
    request: Request
    environment: Mapping[str, str]
    code: Code | None


def gather(
    options: RequestOptions,
    command: Command | None,
    *,
    detach: bool,
    jupyter: "Jupyter | None" = None,
) -> Gathered:
    """Find the cluster, say what was asked for, and send the code where it has to be sent."""
    _check_options(options, command, detach=detach)
    caller = current_caller(options.cluster, patience_s(options), Early.PLAN)
    say_request(options, command, caller.cluster.label)
    environment = job_environment(options, caller.environ) | {"RV_UMASK": umask()}
    if jupyter:
        environment |= jupyter.variables
    asked = build_request(options, command)
    request = with_environment(asked, caller.cluster, caller.workdir, console.notice)
    # What is written in a notebook is to stay in the user's own folder, as in a shell.
    code = None if jupyter else _sync(options, command, caller)
    if now_s() - caller.now_s > SHARED_FOR.total_seconds():  # building or sending took long
        caller = replace(caller, cluster=replace(caller.cluster, answer=None))
    return Gathered(caller=caller, request=request, environment=environment, code=code)


@dataclass(frozen=True, kw_only=True, slots=True)
class Following:
    """How a launch is followed.

    `detach`: not at all. `stops_unclaimed`: Ctrl-C before there is a winner cancels the race.
    `how_to_follow` is what to type once it was left, with {race} for its id.
    """

    json: bool
    detach: bool
    stops_unclaimed: bool
    jupyter: "Jupyter | None" = None
    how_to_follow: str = HOW_TO_FOLLOW


def follow(made: Launch, caller: Caller, site: Site, how: Following) -> Raced | None:
    """Submit a launch and follow it; None where it was only sent. Exits where it was left."""
    for note in (*made.plan.notes, *made.plan.job_notes):
        console.say(note)
    progress = Progress(json_only=how.json)
    if how.detach:
        race = start_detached(made, caller, site, how, progress)
        say_detached(race, json=how.json, how_to_follow=how.how_to_follow)
        return None
    from rv.workflow.follow import NotFollowed

    # Of no use without its terminal.
    is_held = made.request.command is None or how.jupyter is not None
    shows = on_terminal(progress, stops=how.stops_unclaimed or is_held, may_leave=not is_held)
    try:
        with shows as reporter:
            status = _follower(caller, site, how, reporter).run(made)
    except NotFollowed as left:
        leave(left.race_dir, caller, left.exit_code, json=how.json)
    return Raced(status=status, caller=caller)


def start_detached(
    made: Launch, caller: Caller, site: Site, how: Following, progress: "Reporter"
) -> Race:
    """Start a race that nobody watches; Slurm itself holds the later waves back.

    Exits where Ctrl-C or a signal stopped it.
    """
    from rv.workflow.interactive_shell import HungUp, hang_up_raised

    try:
        with hang_up_raised():
            return start(made, caller.cluster, progress, detached=True)
    except (KeyboardInterrupt, HungUp) as end:
        code = _follower(caller, site, how, progress).left(made, end)
        leave(made.script.race_dir, caller, code, json=how.json)


def leave(race_dir: str, caller: Caller, code: int, *, json: bool) -> NoReturn:
    """Exit before a race's end; a program is told how it stands, where anything was submitted."""
    if json and (race := load_race(race_dir, caller.cluster.transport)):
        status, _ = look_at(race, caller.cluster, now_s())
        with hint_if_unwritable(f"race {race.race_id} was submitted: rv ps --json tells of it"):
            console.emit_json(race_document(status))
    sys.exit(code)


def _follower(caller: Caller, site: Site, how: Following, reporter: "Reporter") -> "Follower":
    from rv.workflow.follow import Follower  # who detaches follows nothing

    return Follower(
        cluster=caller.cluster,
        site=site,
        reporter=reporter,
        stops_unclaimed=how.stops_unclaimed,
        jupyter=how.jupyter,
        how_to_follow=how.how_to_follow,
    )


def resumed(request: Request, caller: Caller, earlier: Race | None = None) -> Race | None:
    """Return the chain that this one goes on from, and say so; None for most launches."""
    if not request.checkpoint:
        return None
    from rv.workflow.resume import chain_to_resume

    status = chain_to_resume(request, caller.cluster, caller.now_s, console.notice, earlier)
    if status is None:
        return None
    what = f"race {status.race.race_id} ({status.state})"
    if status.saved_at is None:
        console.notice(f"{what} left no checkpoint: this one begins anew")
        return None
    ago = seconds_text(max(0.0, now_s() - status.saved_at))
    console.notice(f"goes on from {what}: its last checkpoint is {ago} old")
    return status.race


def on_terminal(
    progress: Progress, *, stops: bool, may_leave: bool
) -> "AbstractContextManager[Reporter]":
    """Return what draws the wait on a terminal, and says it in lines where there is none."""
    from rv.ui.redraw import can_redraw

    if not can_redraw():
        return nullcontext(progress)
    from rv.ui.live_wait import LiveWait

    ctrl_c = "cancels" if stops else "detaches"
    return LiveWait(progress, ctrl_c=ctrl_c, may_leave=may_leave)


def _sync(options: RequestOptions, command: Command | None, caller: Caller) -> Code | None:
    """Send the work tree to a cluster that is elsewhere, for a command of the user's own."""
    if caller.cluster.login is None or command is None or command.payload:
        return None
    if options.no_sync:
        _say_what_stays(command, "--no-sync")
        return None
    from rv.cli.sync import sync_for_race

    code = sync_for_race(caller.cluster, options.send or ())
    if code is None:
        _say_what_stays(command, "this folder is no git work tree")
    return code


def _say_what_stays(command: Command, why: str) -> None:
    """Say which files of the command are here alone, and why."""
    lines = simple_commands(command.typed or command.line)
    words = [word.value for line in lines for word in line]
    here = sorted({word for word in words if Path(word).is_file()})
    if here:
        names = ", ".join(here)
        console.notice(f"{names}: not sent ({why}); the command runs in your home there")


def _check_options(options: RequestOptions, command: Command | None, *, detach: bool) -> None:
    """Refuse what makes no sense together. Raises `RvError(USAGE)`."""
    check_shell(options, command)
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


def check_shell(options: RequestOptions, command: Command | None) -> None:
    """Refuse a shell in a container, or say that it is outside of one that is the default.

    Raises `RvError(USAGE)`.
    """
    if command or not options.container:
        return
    if "container" in options.typed:
        raise RvError(
            ErrorKind.USAGE,
            "--container is for a command, and this would be a shell",
            hint="give one with --run, or start the container in the shell",
        )
    console.notice(f"the shell is on the node itself, not in {options.container}")


def say_detached(race: Race, *, json: bool, how_to_follow: str = HOW_TO_FOLLOW) -> None:
    how = how_to_follow.format(race=race.race_id)
    with hint_if_unwritable(f"race {race.race_id} goes on: {how}"):
        if json:
            console.emit_json(race_document(RaceStatus(race=race, state=RaceState.PENDING)))
        else:
            console.answer(race.race_id)
    console.say(how)
