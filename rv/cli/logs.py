"""`rv logs`: what a race's command wrote, from its beginning or its end, once or to its end."""

from pathlib import Path
from typing import Annotated

import typer

from rv.cli.caller import Caller, current_caller
from rv.cli.parameters import ClusterOption, JsonOption
from rv.cli.typer_commands import command_app
from rv.errors import EXIT_DONE, EXIT_INTERRUPTED, ErrorKind, RvError
from rv.models.race import Race, RaceStatus
from rv.models.site import Site
from rv.race.directory import load_state_files
from rv.race.output import STREAMS, Chunk, OutputReader
from rv.race.watch import DetachRequested
from rv.ui import console
from rv.ui.output import OutputLines
from rv.ui.progress import Progress, has_several_nodes
from rv.ui.race_views import output_documents, race_document
from rv.workflow.cluster import Early
from rv.workflow.pull_logs import pull_logs
from rv.workflow.races import exit_code, find_races, require_node
from rv.workflow.sweep import task_output, tasks_of
from rv.workflow.wait import follow_race

app = command_app()


@app.command()
def logs(
    *,
    race: Annotated[
        str | None, typer.Argument(metavar="RACE", help="Race or name; the latest.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
    tail: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Only the last lines, of each node and stream."),
    ] = None,
    err: Annotated[bool, typer.Option("--err", help="Only its errors.")] = False,
    node: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only this node, from 0.")
    ] = None,
    task: Annotated[
        int | None, typer.Option(min=0, metavar="K", help="Of a sweep, this task's.")
    ] = None,
    pull: Annotated[
        str, typer.Option(metavar="DIR", help="Copy all its logs into DIR/RACE instead.")
    ] = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Show a race's output, of all segments and nodes; each line with its node where several.

    Of a sweep: which tasks did not succeed, and with --task what one wrote.
    """
    if pull and any((follow, err, tail is not None, node is not None, task is not None)):
        raise RvError(
            ErrorKind.USAGE,
            "--pull copies all logs whole",
            hint="leave out --follow, --tail, --err, --node and --task",
        )
    caller = current_caller(cluster, early=Early.RACES)
    (record,) = find_races([race] if race else [], caller.cluster)
    if pull:
        _pull(record, caller, pull, json=json)
        return
    if record.sweep and task is None:
        _sweep(record, caller, follow=follow, json=json)
        return
    streams, into = (("err",), "out") if err else (STREAMS, "")
    reader = _reader(record, caller, node, task, streams)
    if tail is not None:
        reader.skip_to_last(tail)
    if follow:
        raise typer.Exit(_follow(record, caller, reader, node, json=json))
    _show(record, reader, _lines(record, caller, node, into), json=json)


def _lines(race: Race, caller: Caller, node: int | None, into: str) -> OutputLines:
    """What was asked for is the answer: errors alone go to stdout."""
    lines = OutputLines(names_nodes=False, into=into)
    if node is None:
        claim = load_state_files(race, caller.cluster.transport).claim
        lines.names_nodes = has_several_nodes(race, claim)
    return lines


def _reader(
    race: Race, caller: Caller, node: int | None, task: int | None, streams: tuple[str, ...]
) -> OutputReader:
    """Return what reads the output of a race, or of a sweep's task."""
    if task is not None:
        return task_output(race, task, caller.cluster, streams)
    require_node(race, node)
    return OutputReader(race, caller.cluster.transport, node, streams)


def _sweep(race: Race, caller: Caller, *, follow: bool, json: bool) -> None:
    """Follow a sweep, or list the tasks that did not succeed."""
    from rv.cli.sweep import Following
    from rv.ui.sweep_views import SweepProgress, tasks_document, tasks_lines

    following = Following(caller=caller, site=Site(), json=json)
    if follow:
        following.end(following.follow(race, SweepProgress(Progress(json_only=json))))
    tasks = tasks_of(race, caller.cluster)
    runs = load_state_files(race, caller.cluster.transport).tasks
    if json:
        console.emit_json(tasks_document(race, tasks, runs))
        return
    console.answer("\n".join(tasks_lines(race, tasks, runs)))


def _show(race: Race, reader: OutputReader, lines: OutputLines, *, json: bool) -> None:
    """Pass on what there is now."""
    if json:
        rows = output_documents(reader.read_all())
        console.emit_json({"race": race.race_id, "output": rows})
        return
    for chunk in reader.read_all():
        lines.show(chunk)
        if not console.has_reader():  # head, say, has seen enough
            return
    lines.finish()


class _WhileRead(Progress):
    """Leaves the race once nobody reads any more: head, say, has seen enough.

    Also where the command writes nothing more, and where it never pauses.
    """

    def status(self, status: RaceStatus) -> None:
        """Say what is new. Raises `DetachRequested`."""
        super().status(status)
        _require_reader()

    def output(self, chunk: Chunk) -> None:
        """Pass output on. Raises `DetachRequested`."""
        super().output(chunk)
        _require_reader()


def _require_reader() -> None:
    if not console.has_reader():
        raise DetachRequested


def _follow(
    race: Race, caller: Caller, reader: OutputReader, node: int | None, *, json: bool
) -> int:
    progress = _WhileRead(json_only=json, shows_one_node=node is not None)
    try:
        status = follow_race(race, caller.cluster, progress, reader)
    except DetachRequested:
        return EXIT_DONE
    except KeyboardInterrupt:
        from rv.cli import launching

        console.say(f"race {race.race_id} goes on")
        launching.leave(race.directory, caller, EXIT_INTERRUPTED, json=json)
    progress.finish(status)
    if json:
        console.emit_json(race_document(status))
    return exit_code(status, caller.cluster.transport)


def _pull(race: Race, caller: Caller, folder: str, *, json: bool) -> None:
    """Copy all logs, and name the files."""
    paths = [str(path) for path in pull_logs(race, caller.cluster.transport, Path(folder))]
    if json:
        console.emit_json({"race": race.race_id, "files": paths})
    else:
        console.answer("\n".join(paths))
