"""What `up`, `run` and `accept run` share: launch, follow to the end, and exit with a code."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import typer

from rv.cli.caller import Caller, current_caller, now_s, umask
from rv.cli.environments import check_shell, job_environment, with_environment
from rv.cli.options import RequestOptions
from rv.cli.request import asks_all, build_request, patience_s, say_request
from rv.errors import ErrorKind, RvError
from rv.models.code import Code
from rv.models.race import Race, RaceState, RaceStatus
from rv.models.request import Command, Request
from rv.models.site import Site
from rv.slurm.probe import SHARED_FOR
from rv.ui import console
from rv.ui.progress import Progress
from rv.ui.race_views import race_document, seconds_text
from rv.ui.redraw import can_redraw
from rv.workflow.cluster import Early
from rv.workflow.follow import HOW_TO_FOLLOW, Follower, NotFollowed, Reporter
from rv.workflow.jupyter import Jupyter
from rv.workflow.launch import Launch, prepare
from rv.workflow.races import exit_code, recover_races
from rv.workflow.shellwords import simple_commands


def launch(
    options: RequestOptions,
    command: Command | None,
    *,
    detach: bool,
    stops_unclaimed: bool,
    jupyter: Jupyter | None = None,
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
        console.emit_json(race_document(raced.status))
    recover_races(cluster, now_s())
    raise typer.Exit(exit_code(raced.status, cluster.transport))


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
    jupyter: Jupyter | None = None,
) -> Raced | None:
    """Race and follow to the end; None where it was only sent. Exits where it was interrupted."""
    _check_options(options, command, detach=detach)
    caller = current_caller(options.cluster, patience_s(options), Early.PLAN)
    say_request(options, command, caller.cluster.label)
    environment = job_environment(options, caller.environ) | {"RV_UMASK": umask()}
    if jupyter:
        environment |= jupyter.variables
    request = with_environment(build_request(options, command), caller)
    # What is written in a notebook is to stay in the user's own folder, as in a shell.
    code = None if jupyter else _sync(options, command, caller)
    if now_s() - caller.now_s > SHARED_FOR.total_seconds():  # building or sending took long
        caller = replace(caller, cluster=replace(caller.cluster, answer=None))
    site = options.config.site
    made = prepare(
        request,
        caller.cluster,
        caller.workdir,
        environment,
        caller.now_s,
        site,
        code=code,
        resumes=resumed(request, caller),
    )
    how = Following(
        json=options.json,
        detach=detach,
        stops_unclaimed=stops_unclaimed,
        jupyter=jupyter,
    )
    return follow(made, caller, site, how)


@dataclass(frozen=True, kw_only=True, slots=True)
class Following:
    """How a launch is followed.

    `detach`: not at all. `stops_unclaimed`: Ctrl-C before there is a winner cancels the race.
    """

    json: bool
    detach: bool
    stops_unclaimed: bool
    jupyter: Jupyter | None = None


def follow(made: Launch, caller: Caller, site: Site, how: Following) -> Raced | None:
    """Submit a launch and follow it; None where it was only sent. Exits where it was left."""
    for note in (*made.plan.notes, *made.plan.job_notes):
        console.say(note)
    progress = Progress(json_only=how.json)
    # Of no use without its terminal.
    is_held = made.request.command is None or how.jupyter is not None
    shows = _on_terminal(progress, stops=how.stops_unclaimed or is_held, may_leave=not is_held)
    with nullcontext(progress) if how.detach else shows as reporter:
        follower = Follower(
            cluster=caller.cluster,
            site=site,
            reporter=reporter,
            stops_unclaimed=how.stops_unclaimed,
            jupyter=how.jupyter,
        )
        try:
            if not how.detach:
                return Raced(status=follower.run(made), caller=caller)
            _say_detached(follower.start_detached(made), json=how.json)
        except NotFollowed as left:
            raise typer.Exit(left.exit_code) from None
    return None


def resumed(request: Request, caller: Caller, earlier: Race | None = None) -> Race | None:
    """Return the chain that this one goes on from, and say so; None for most launches."""
    if not request.checkpoint:
        return None
    from rv.workflow.resume import chain_to_resume

    status = chain_to_resume(request, caller.cluster, caller.now_s, earlier)
    if status is None:
        return None
    what = f"race {status.race.race_id} ({status.state})"
    if status.saved_at is None:
        console.notice(f"{what} left no checkpoint: this one begins anew")
        return None
    ago = seconds_text(max(0.0, now_s() - status.saved_at))
    console.notice(f"goes on from {what}: its last checkpoint is {ago} old")
    return status.race


def _on_terminal(
    progress: Progress, *, stops: bool, may_leave: bool
) -> AbstractContextManager[Reporter]:
    """Return what draws the wait on a terminal, and says it in lines where there is none."""
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


def _say_detached(race: Race, *, json: bool) -> None:
    if json:
        console.emit_json(race_document(RaceStatus(race=race, state=RaceState.PENDING)))
    else:
        console.answer(race.race_id)
    console.say(HOW_TO_FOLLOW.format(race=race.race_id))
