"""`rv wait`: wait until races are over, and exit with the worst of their codes."""

from collections.abc import Sequence
from typing import Annotated

import typer

from rv.cli.caller import current_caller, now_s
from rv.cli.parameters import ClusterOption, JsonOption
from rv.cli.typer_commands import command_app
from rv.errors import EXIT_GAVE_UP, EXIT_INTERRUPTED, ErrorKind, RvError
from rv.models.quantities import short_duration
from rv.models.race import Race, RaceStatus
from rv.race.watch import WaitTimedOut
from rv.ui import console
from rv.ui.race_views import ending, race_document
from rv.workflow.cluster import Early
from rv.workflow.races import awaited_races, open_races, worst_exit_code
from rv.workflow.read_options import waiting_time
from rv.workflow.wait import wait_for_races

app = command_app()


class Ends:
    """Tells how races end, a line each, and keeps it."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self.known: list[RaceStatus] = []

    def ended(self, status: RaceStatus) -> None:
        """Give one race's end as an answer."""
        self.known.append(status)
        if self._json:
            console.emit_json_line(race_document(status))
        else:
            console.answer(ending(status))

    def say(self, text: str) -> None:
        """Say a sentence."""
        console.say(text)


@app.command()
def wait(
    *,
    races: Annotated[
        list[str] | None, typer.Argument(metavar="RACE", help="Races or names; the latest.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every race that is not over.")] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Give up after so long.")
    ] = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Wait until races are over: a line as each ends; the exit code is the highest of theirs.

    Ctrl-C ends the waiting alone, and so does the timeout: the races go on.
    """
    if everything and races:
        raise RvError(
            ErrorKind.USAGE, "--all means every race, and some are named", hint="leave one out"
        )
    limit = waiting_time(timeout) if timeout else None
    here = current_caller(cluster, early=Early.RACES_AND_QUEUE).cluster
    chosen = open_races(here) if everything else awaited_races(races or (), here, now_s())
    ends = Ends(json=json)
    try:
        console.say(f"on {here.label}: waiting for {_names(chosen) or 'nothing: no race is open'}")
        wait_for_races(chosen, here, ends, limit)
    except KeyboardInterrupt:
        raise _left("stopped waiting", chosen, ends, EXIT_INTERRUPTED) from None
    except WaitTimedOut:
        words = f"gave up after {short_duration(limit)}" if limit else "gave up"
        raise _left(words, chosen, ends, EXIT_GAVE_UP) from None
    raise typer.Exit(worst_exit_code(ends.known, here.transport))


def _left(words: str, races: Sequence[Race], ends: Ends, code: int) -> typer.Exit:
    """Say why rv waits no longer, and for which races that means nothing."""
    over = {status.race.race_id for status in ends.known}
    left = [race for race in races if race.race_id not in over]
    verb = "goes" if len(left) == 1 else "go"
    console.say(f"{words}: {_names(left)} {verb} on; rv wait waits again, rv stop ends it")
    return typer.Exit(code)


def _names(races: Sequence[Race]) -> str:
    return ", ".join(f"{race.race_id} {race.name}".strip() for race in races)
