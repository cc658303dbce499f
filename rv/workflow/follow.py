"""Follow a launch to its end: watch it, race again when a node is lost, stop or leave it on Ctrl-C.

What happens is told to a `Reporter`; only `rv.ui` writes it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from rv.dataclass import dataclass
from rv.errors import EXIT_GAVE_UP, EXIT_INTERRUPTED, RvError, UnwritableError
from rv.models.quantities import short_duration
from rv.models.race import Race, RaceState, RaceStatus
from rv.models.request import Request
from rv.models.site import Site
from rv.race.directory import load_race, load_state_files
from rv.race.sources import NODE_FAILURES
from rv.race.watch import DetachRequested, Sink, WaitTimedOut
from rv.slurm.hostlist import expand
from rv.workflow.cluster import Cluster
from rv.workflow.interactive_shell import HungUp, hang_up_raised, hold_shell
from rv.workflow.launch import Launch, prepare
from rv.workflow.past import keep_past
from rv.workflow.races import stop_races
from rv.workflow.start import HOW_TO_FOLLOW, send_rest, start, watch

if TYPE_CHECKING:
    from rv.workflow.jupyter import Jupyter


class Reporter(Sink, Protocol):
    """Where a launch's progress goes."""

    def finish(self, status: RaceStatus) -> None:
        """Say how the race ended."""


class NotFollowed(Exception):  # noqa: N818 - the user's wish, not an error
    """The race was left or cancelled before its end, and that was said; rv exits with the code.

    There is none in `race_dir` where nothing was submitted.
    """

    def __init__(self, exit_code: int, race_dir: str) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code
        self.race_dir = race_dir


@dataclass(frozen=True, kw_only=True, slots=True)
class Follower:
    """Follows launches on one cluster.

    `stops_unclaimed`: Ctrl-C before there is a winner cancels the race instead of leaving it.
    `jupyter` is what the command runs, None for any other: Ctrl-C always cancels that.
    `how_to_follow` is what to type once the race was left, with {race} for its id.
    """

    cluster: Cluster
    site: Site
    reporter: Reporter
    stops_unclaimed: bool
    jupyter: "Jupyter | None" = None
    how_to_follow: str = HOW_TO_FOLLOW

    def run(self, launch: Launch) -> RaceStatus:
        """Start a race and follow it to its end; race again, up to `--retry` times, as nodes fail.

        Raises `NotFollowed` where the user did not wait for the end, and `UnwritableError` where
        the output cannot be written: its hint says how to go on with a race that was submitted.
        """
        status = self._run_once(launch)
        turns = launch.request.retry if launch.request.command else 0
        for turn in range(1, turns + 1):
            again = self._prepare_again(launch, status, turn)
            if again is None:
                break
            launch = again
            status = self._run_once(launch)
        return status

    def _run_once(self, launch: Launch) -> RaceStatus:
        with self._output_may_fail(launch):
            if launch.request.command is None:
                status = self._open_shell(launch)
            elif self.jupyter:
                status = self._watch_jupyter(launch, self.jupyter)
            else:
                status = self._watch_command(launch)
            keep_past(self.cluster.cache, [status])
            self.reporter.finish(status)
        return status

    @contextmanager
    def _output_may_fail(self, launch: Launch) -> Iterator[None]:
        """Have the error say how to go on with the race: the command again would be another race.

        That of a shell ends with its client.
        """
        try:
            yield
        except UnwritableError as failure:
            if launch.request.command:
                failure.hint = self._how_it_goes_on(launch) or failure.hint
            raise

    def _how_it_goes_on(self, launch: Launch) -> str:
        """Say how to go on with a race, "" where nothing was submitted."""
        race_id, transport = launch.script.race_id, self.cluster.transport
        how = self.how_to_follow.format(race=race_id)
        try:
            race = load_race(launch.script.race_dir, transport)
            if race is None:
                return ""
            # The output of a short command is often read when it is over.
            is_over = load_state_files(race, transport).ended is not None
        except RvError:  # the cluster does not answer
            return f"race {race_id} may have been submitted: {how}"
        return f"race {race_id} {'was submitted' if is_over else 'goes on'}: {how}"

    def _watch_command(self, launch: Launch) -> RaceStatus:
        # The handlers are those of before once one has come: a second signal ends rv at once.
        with self._user_may_end(launch), hang_up_raised():
            race = start(launch, self.cluster, self.reporter, detached=False)
            return watch(race, launch, self.cluster, self.reporter, until_claim=False)

    def _open_shell(self, launch: Launch) -> RaceStatus:
        """A shell without its terminal is of no use to anybody: the race ends with it."""
        with hang_up_raised(), self._user_may_end(launch):
            race = start(launch, self.cluster, self.reporter, detached=False)
            return hold_shell(race, launch, self.cluster, self.reporter)

    def _watch_jupyter(self, launch: Launch, jupyter: "Jupyter") -> RaceStatus:
        """One that nobody reaches any more is of no use: the race ends with its client."""
        from rv.workflow.jupyter import hold_jupyter

        with hang_up_raised(), self._user_may_end(launch):
            race = start(launch, self.cluster, self.reporter, detached=False)
            return hold_jupyter(race, launch, self.cluster, self.reporter, jupyter)

    @contextmanager
    def _user_may_end(self, launch: Launch) -> Iterator[None]:
        """Turn Ctrl-C, signals and `--wait-timeout` into what they mean for the race; and exit."""
        directory = launch.script.race_dir
        try:
            yield
        except WaitTimedOut:
            limit = launch.request.wait_timeout
            self._stop(launch, f"gave up after {short_duration(limit)}" if limit else "gave up")
            raise NotFollowed(EXIT_GAVE_UP, directory) from None
        except DetachRequested:
            self._detach(load_race(directory, self.cluster.transport), launch)
            # The command has not run: no success.
            raise NotFollowed(EXIT_INTERRUPTED, directory) from None
        except (KeyboardInterrupt, HungUp) as end:
            raise NotFollowed(self.left(launch, end), directory) from None

    def left(self, launch: Launch, end: KeyboardInterrupt | HungUp) -> int:
        """Do what Ctrl-C or a signal means for the race, and return rv's exit code."""
        if isinstance(end, HungUp):
            self._hung_up(launch)
            return 128 + end.signal_number
        self._interrupted(launch)
        return EXIT_INTERRUPTED

    def _interrupted(self, launch: Launch) -> None:
        """Stop the race, or send all its strategies and leave it to Slurm."""
        race = self._submitted(launch)
        if race is None:
            return
        is_claimed = load_state_files(race, self.cluster.transport).claim is not None
        if self.jupyter or (self.stops_unclaimed and not is_claimed):
            self._stop(launch, "stopped")
            return
        self._detach(race, launch)

    def _submitted(self, launch: Launch) -> Race | None:
        """Return the race; None, and say so, where nothing was submitted."""
        race = load_race(launch.script.race_dir, self.cluster.transport)
        if race is None:
            self.reporter.say("stopped: nothing was submitted")
        return race

    def _detach(self, race: Race | None, launch: Launch) -> None:
        """Send the strategies that were not sent yet, and leave the race to Slurm."""
        if race is None:
            return
        if load_state_files(race, self.cluster.transport).claim is None:
            send_rest(race, launch.request, self.cluster, self.reporter)
        self.reporter.say(f"detached: {self.how_to_follow.format(race=race.race_id)}")

    def _hung_up(self, launch: Launch) -> None:
        """Leave a command's race to Slurm, and stop that of a shell.

        A shell's race with a winner was released, and ends by itself.
        """
        if launch.request.command and not self.jupyter:
            with suppress(RvError):  # rv ends by the signal, whether or not it can say so
                self._detach(self._submitted(launch), launch)
            return
        race = load_race(launch.script.race_dir, self.cluster.transport)
        is_claimed = race and load_state_files(race, self.cluster.transport).claim
        if self.jupyter or not is_claimed:
            self._stop(launch, "the terminal is gone")
        else:
            self.reporter.say("the terminal is gone: the GPUs are released")

    def _stop(self, launch: Launch, cause: str) -> None:
        """Cancel the race, and say so; where Slurm does not confirm it, say that."""
        race = load_race(launch.script.race_dir, self.cluster.transport)
        outcome = f"race {launch.script.race_id} is cancelled"
        for stopped in stop_races([race] if race else [], self.cluster):
            if stopped.unconfirmed:
                outcome = f"not confirmed: {stopped.unconfirmed}; see rv ps"
        self.reporter.say(f"{cause}: {outcome}")

    def _prepare_again(self, launch: Launch, status: RaceStatus, turn: int) -> Launch | None:
        """Plan the request anew on the cluster as it is now, without the nodes that failed.

        None where the race did not end because of a node, or nothing else can serve the request.
        """
        if not may_retry(status):
            return None
        failed = failed_nodes(status)
        excluded = dict.fromkeys((*launch.request.exclude_nodes, *failed))
        self.cluster.cache.forget()
        try:
            again = prepare(
                replace(launch.request, exclude_nodes=tuple(excluded)),
                replace(self.cluster, answer=None),
                launch.context.workdir,
                launch.context.environment,
                time.time(),
                self.site,
                retry_of=status.race.race_id,
                code=launch.context.code,
                resumes=self._resumed(launch.request, status),
                files=launch.context.files,
            )
        except RvError as error:
            self.reporter.say(f"not raced again: {error.message}")
            return None
        without = f" without {', '.join(failed)}" if failed else ""
        turns = f"{turn} of {launch.request.retry}"
        self.reporter.say(f"racing again ({turns}){without}: race {again.script.race_id}")
        return again

    def _resumed(self, request: Request, status: RaceStatus) -> Race | None:
        """Return the chain whose checkpoints the next race begins with; None for most."""
        from rv.workflow.resume import chain_to_resume

        earlier = status.race if status.race.chain else None
        chain = chain_to_resume(request, self.cluster, time.time(), self.reporter.say, earlier)
        return None if chain is None or chain.saved_at is None else chain.race


def may_retry(status: RaceStatus) -> bool:
    """Whether a race ended because of a node: its winner was lost, or no job survived a failure."""
    if status.claim or status.state is not RaceState.FAILED:
        return status.state is RaceState.LOST
    return any(job.state in NODE_FAILURES for job in status.jobs)


def failed_nodes(status: RaceStatus) -> tuple[str, ...]:
    """Name the nodes of the jobs that failed. Of several nodes Slurm does not say which it was."""
    hostlists = [status.claim.nodes] if status.claim else []
    hostlists += [job.nodes for job in status.jobs if job.state in NODE_FAILURES]
    return tuple(dict.fromkeys(node for hostlist in hostlists for node in expand(hostlist)))
