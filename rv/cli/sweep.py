"""`rv sweep`: a command for each of many values, by workers that take tasks in turn."""

import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Annotated

from rv.cli import launching
from rv.cli.caller import Caller, now_s, planning_cluster
from rv.cli.defaults import with_request_options
from rv.cli.parameters import Argument, CommandApp, Line
from rv.cli.run import read_line, split_arguments
from rv.cli.say_request import say_request
from rv.dataclass import dataclass
from rv.errors import EXIT_GAVE_UP, EXIT_INTERRUPTED, ErrorKind, RvError
from rv.models.option import Option
from rv.models.race import Race, RaceState, RaceStatus
from rv.models.request import Command, Request
from rv.models.site import Site
from rv.models.sweep import Sweep, Task
from rv.race.watch import WaitTimedOut
from rv.ui import console
from rv.ui.progress import Progress
from rv.ui.race_views import race_document
from rv.ui.sweep_views import SweepProgress, sweep_document, sweep_text
from rv.workflow.command_line import shell_line
from rv.workflow.environments import planned, working_directory
from rv.workflow.launch import Launch
from rv.workflow.options import RequestOptions
from rv.workflow.races import exit_code, look_at, recover_races, stop_races
from rv.workflow.read_options import build_request, patience_s
from rv.workflow.start import HOW_TO_FOLLOW
from rv.workflow.sweep import SweepLaunch, follow_sweep, prepare_sweep, prepare_unfinished
from rv.workflow.sweep_tasks import parse_array, parse_sets, product_of, shown, with_variables

app = CommandApp()


@app.command(split=split_arguments)
@with_request_options
def sweep(
    *,
    options: RequestOptions,
    line: Line,
    words: Annotated[list[str] | None, Argument(metavar="CMD", help="What to run.")] = None,
    sets: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=V,…", help="Values for {NAME}; 1..5 is a range."),
    ] = None,
    array: Annotated[
        str, Option("--array", metavar="0-99%10", help="A task for each number, as {}.")
    ] = "",
    most: Annotated[
        int,
        Option("--max", min=0, metavar="N", show_default=False, help="Tasks at a time, in all."),
    ] = 0,
    dry_run: Annotated[bool, Option("--dry-run", help="Show the plan only.")] = False,
    detach: Annotated[bool, Option("--detach", "-d", help="Return at once.")] = False,
) -> None:
    """Run a command once for each combination of values, on all GPUs that can be had.

    In CMD {NAME} is the value of --set NAME=…, and {} the task's number, as RV_TASK_ID.
    """
    made = _tasks(sets or (), array, most, options.gpu)
    typed = tuple(words or ())
    is_argv = line.is_argv or not typed
    command = _command(typed, made[0].names, is_argv=is_argv)
    if dry_run:
        lines = [shown(typed, made[0].names, task, is_argv=is_argv) for task in made[1]]
        _show(options, command, lines, *made)
        return
    gathered = launching.gather(options, command, detach=detach)
    launch = prepare_sweep(
        gathered.request,
        *made,
        gathered.caller.cluster,
        gathered.caller.workdir,
        gathered.environment,
        gathered.caller.now_s,
        options.config.site,
        code=gathered.code,
    )
    following = Following(
        caller=gathered.caller, site=options.config.site, json=options.json, detach=detach
    )
    following.submit(launch)


def _tasks(sets: Sequence[str], array: str, most: int, gpus: int) -> tuple[Sweep, tuple[Task, ...]]:
    """Read what the tasks are. Raises `RvError(USAGE)`."""
    if bool(sets) == bool(array):
        raise RvError(
            ErrorKind.USAGE,
            "a sweep has --set or --array" + (", not both" if array else ""),
            hint="rv sweep --set lr=1e-3,1e-4 -- python t.py --lr {lr}",
        )
    values = parse_sets(sets)
    numbers, limit = parse_array(array) if array else ((), 0)
    tasks = tuple(Task(number=number) for number in numbers) if array else product_of(values)
    running = min(filter(None, (most, limit)), default=0)
    sweep = Sweep(tasks=len(tasks), names=tuple(values), gpus=gpus, most_running=running)
    return sweep, tasks


def _command(words: Sequence[str], names: Sequence[str], *, is_argv: bool) -> Command:
    """Read the command, with its variables in it."""
    line = shell_line(words) if is_argv else words[0]
    command = read_line(with_variables(line, names))
    return replace(command, typed=shlex.join(words) if is_argv else words[0])


def _show(
    options: RequestOptions,
    command: Command,
    lines: Sequence[str],
    sweep: Sweep,
    tasks: tuple[Task, ...],
) -> None:
    """Show what would be submitted, for `--dry-run`, and submit nothing."""
    request = build_request(options, command)
    cluster = planning_cluster(options.cluster, options.snapshot, patience_s(options))
    say_request(options, command, cluster.label)
    request = planned(request, cluster.race_root)
    made = prepare_sweep(
        request, sweep, tasks, cluster, working_directory(), {}, now_s(), options.config.site
    )
    plan, sized = made.launch.plan, made.sized
    parts = (plan, lines, sized.workers, made.launch.sbatch_lines, sized.limits)
    if options.json:
        console.emit_json(sweep_document(*parts))
    else:
        console.answer(*sweep_text(*parts))


@dataclass(frozen=True, kw_only=True, slots=True)
class Following:
    """How a sweep is submitted and followed, by whom. `detach`: not at all."""

    caller: Caller
    site: Site
    json: bool
    detach: bool = False

    def submit(self, made: SweepLaunch) -> None:
        """Submit it, follow it to its end, and exit with its code.

        What did not succeed is run again, up to `--retry` times.
        """
        for note in made.launch.plan.notes:
            console.say(note)
        progress = SweepProgress(Progress(json_only=self.json))
        race = self._start(made.launch, progress)
        if self.detach:
            launching.say_detached(race, json=self.json)
            return
        request = made.launch.request
        status = self.follow(race, progress, request.wait_timeout)
        for _ in range(request.retry):
            if status.state is RaceState.CANCELLED or not self._code(status):
                break
            again = self._prepare_again(race, request)
            if again is None:
                status = self._with_news(status, progress)
                break
            console.say(f"again what did not succeed: {again.sweep.tasks} tasks")
            race = self._start(again.launch, progress)
            status = self.follow(race, progress, request.wait_timeout)
        self.end(status)

    def _prepare_again(self, race: Race, request: Request) -> SweepLaunch | None:
        """Prepare what did not succeed; None, and say why, where that cannot be run now."""
        try:
            return prepare_unfinished(race, request, self.caller.cluster, self.site, now_s())
        except RvError as error:
            console.notice(f"not raced again: {error.message}")
            return None

    def _with_news(self, status: RaceStatus, progress: SweepProgress) -> RaceStatus:
        """Return how a sweep ended by what its tasks say now: a lost one may have succeeded since.

        Where they say nothing new, and where nobody answers, it ended as was told before.
        """
        with suppress(RvError):
            now, _ = look_at(status.race, self.caller.cluster, now_s())
            if now.state.is_over and now.tasks != status.tasks:
                progress.finish(now)
                return now
        return status

    def _start(self, launch: Launch, progress: SweepProgress) -> Race:
        """Submit it; exit where Ctrl-C came meanwhile, which leaves it to Slurm."""
        how = launching.Following(json=self.json, detach=True, stops_unclaimed=False)
        return launching.start_detached(launch, self.caller, self.site, how, progress)

    def follow(
        self, race: Race, progress: SweepProgress, wait_timeout: timedelta | None = None
    ) -> RaceStatus:
        """Follow a sweep to its end; exit where the user did not wait for it.

        It is cancelled where no task has started by `wait_timeout`.
        """
        try:
            status = follow_sweep(race, self.caller.cluster, progress, wait_timeout)
        except KeyboardInterrupt:
            progress.clear()
            console.say(f"detached: {HOW_TO_FOLLOW.format(race=race.race_id)}")
            launching.leave(race.directory, self.caller, EXIT_INTERRUPTED, json=self.json)
        except WaitTimedOut:
            progress.clear()
            stop_races([race], self.caller.cluster)
            console.say(f"gave up: sweep {race.race_id} is cancelled")
            launching.leave(race.directory, self.caller, EXIT_GAVE_UP, json=self.json)
        progress.finish(status)
        return status

    def end(self, status: RaceStatus) -> None:
        """Exit with the sweep's code: 0 where all tasks succeeded, else 1."""
        if self.json:
            console.emit_json(race_document(status))
        recover_races(self.caller.cluster, now_s())
        sys.exit(self._code(status))

    def _code(self, status: RaceStatus) -> int:
        return exit_code(status, self.caller.cluster.transport)
