"""`rv rerun`: the request and command of a race again, as a new race."""

from dataclasses import replace
from typing import Annotated

import typer

from rv.cli import launching
from rv.cli.caller import Caller, current_caller, with_rates
from rv.cli.parameters import ClusterOption, JsonOption
from rv.cli.typer_commands import command_app
from rv.errors import ErrorKind, RvError
from rv.models.quantities import parse_duration, short_duration
from rv.models.race import Race, RaceState
from rv.models.request import Request
from rv.ui import console
from rv.ui.race_views import ending, race_document
from rv.workflow.launch import prepare
from rv.workflow.option_defaults import read_config
from rv.workflow.races import exit_code, find_races, look_at
from rv.workflow.read_options import gpu_types, least_walltime
from rv.workflow.rerun import Recorded, recorded_launch

app = command_app()


@app.command()
def rerun(
    *,
    race: Annotated[
        str | None, typer.Argument(metavar="RACE", help="Race or name; the latest.")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only what is over and did not succeed.")
    ] = False,
    time: Annotated[
        str, typer.Option("--time", metavar="TIME", help="Another walltime than it had.")
    ] = "",
    gpu_type: Annotated[
        str, typer.Option("--type", "-t", metavar="TYPE,…", help="Other GPU types than it had.")
    ] = "",
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return at once.")] = False,
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Submit a race's request and command again, with its environment, directory and code.

    Of a sweep, --failed runs the tasks that did not succeed, in a sweep that carries on. A chain
    that ended before its command did goes on from its last checkpoint.
    """
    caller = current_caller(cluster)
    (record,) = find_races([race] if race else [], caller.cluster)
    if failed and not _has_failed(record, caller, json=json):
        return
    if record.sweep:
        _rerun_sweep(record, caller, time, gpu_type, failed=failed, detach=detach, json=json)
        return
    recorded = recorded_launch(record, caller.cluster.transport)
    request = _overridden(recorded.request, time, gpu_type)
    _say_what(record, request, recorded, caller.cluster.label)
    resumes = launching.resumed(request, caller, record if record.chain else None)
    site = with_rates(read_config(cluster).site, request, caller.cluster.key)
    made = prepare(
        request,
        caller.cluster,
        recorded.workdir,
        recorded.environment,
        caller.now_s,
        site,
        retry_of=record.race_id,
        code=recorded.code,
        resumes=resumes,
        files=recorded.files,
    )
    how = launching.Following(json=json, detach=detach, stops_unclaimed=False)
    if raced := launching.follow(made, caller, site, how):
        launching.end(raced, json=json)


def _rerun_sweep(
    race: Race, caller: Caller, time: str, gpu_type: str, *, failed: bool, detach: bool, json: bool
) -> None:
    """Run all tasks of a sweep again, or those that did not succeed."""
    from rv.cli.sweep import Following
    from rv.workflow.sweep import prepare_all, prepare_unfinished

    recorded = recorded_launch(race, caller.cluster.transport)
    request = _overridden(recorded.request, time, gpu_type)
    site = read_config(caller.cluster.name).site
    prepare_sweep_again = prepare_unfinished if failed else prepare_all
    made = prepare_sweep_again(race, request, caller.cluster, site, caller.now_s)
    _say_what(race, request, recorded, caller.cluster.label)
    console.notice(f"  {made.sweep.tasks} tasks; {made.sweep.carried} have succeeded already")
    Following(caller=caller, site=site, json=json, detach=detach).submit(made)


def _has_failed(race: Race, caller: Caller, *, json: bool) -> bool:
    """Return whether a race is over and did not succeed; say what else it is."""
    status, _ = look_at(race, caller.cluster, caller.now_s)
    if status.state is RaceState.UNKNOWN:
        raise RvError(
            ErrorKind.UNREACHABLE,
            f"nobody can say how race {race.race_id} ended: {status.why}",
            hint="rv ps shows when Slurm answers again",
        )
    if not status.state.is_over:
        console.notice(f"not raced again: race {race.race_id} is {status.state}")
    elif exit_code(status, caller.cluster.transport) == 0:
        console.notice(f"not raced again: {ending(status)}")
    else:
        return True
    if json:
        console.emit_json(race_document(status))
    return False


def _overridden(request: Request, time: str, gpu_type: str) -> Request:
    """Lay what was typed over the request. Raises `RvError(USAGE)`."""
    if time and request.work:
        raise RvError(
            ErrorKind.USAGE,
            "the race has its time from its --work, not from --time",
            hint="leave --time out, or launch it anew: rv run --work …",
        )
    if time:
        walltime = parse_duration(time)
        least = least_walltime(request.min_walltime, walltime)
        request = replace(request, walltime=walltime, walltime_given=True, min_walltime=least)
    if gpu_type:
        request = replace(request, types=gpu_types(gpu_type), min_vram_mib=None)
    return request


def _say_what(race: Race, request: Request, recorded: Recorded, cluster: str) -> None:
    """Say what is raced again, and with which code."""
    gpus = f"{request.gpus} GPU{'' if request.gpus == 1 else 's'}"
    types = f" ({','.join(request.types)})" if request.types else ""
    command = recorded.command.typed or recorded.command.line
    console.notice(
        f"rv on {cluster}: race {race.race_id} again: {gpus}{types}"
        f" for {short_duration(request.walltime)}: {command}"
    )
    code = recorded.code
    console.notice(
        f"  its code is what was sent with it ({code.version})"
        if code
        else f"  it runs in {recorded.workdir}, as that is now"
    )
