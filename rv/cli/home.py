"""`rv` alone: where things stand, and what to type next. No cluster is asked for it."""

import os
import shutil
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from rv import __version__
from rv.errors import EXIT_DONE, RvError
from rv.models.quantities import short_duration
from rv.ui import console
from rv.ui.tables import Table
from rv.workflow.known_races import OVER, RUNS, WAITS, KnownRace, known_races
from rv.workflow.which_cluster import ClusterIdentity, has_slurm, identify

_SHOWN: Final = 10
_NEXT: Final = 3
_COMMAND: Final = 40
_FIRST_STEPS: Final = (
    ("rv init you@login.site", "set up a cluster that ssh reaches"),
    ("rv sandbox up", "or start a real Slurm cluster on this machine, to try"),
    ("rv up --help", "what can be asked for, with examples"),
)

Row = tuple[str, ...]


def show() -> int:
    """Answer `rv` without a command, and return the exit code."""
    try:
        identity = identify("", os.environ)
        races = known_races(identity, os.environ)
    except RvError as failure:
        about = [f"cluster: {failure.message}", f"  {failure.hint}"]
        rows: Sequence[Row] = _FIRST_STEPS
    else:
        about, rows = _about(identity, races)
    title = f"rv {__version__}: GPUs on a busy Slurm cluster, sooner; rv --help lists all commands"
    following = str(Table(title="next:", rows=_indented(rows)))
    try:
        console.answer("\n".join([title, *filter(str.strip, about)]), following)
    except RvError as failure:
        console.error(failure)
        return failure.exit_code
    return EXIT_DONE


def _about(identity: ClusterIdentity, races: Sequence[KnownRace]) -> tuple[list[str], list[Row]]:
    """Say which cluster is meant and which races are open there, and what to type next."""
    if not identity.host and not identity.slurm_conf and not _has_slurm_here():
        return ["cluster: none yet"], list(_FIRST_STEPS)
    open_races = [race for race in races if race.state != OVER]
    lines = [f"cluster: {identity.full_label}"]
    if open_races:
        seen = " (as rv last saw them)" if identity.host else ""
        rows = _indented(_race_row(race) for race in open_races[:_SHOWN])
        lines += str(Table(title=f"races that wait or run{seen}:", rows=rows)).split("\n")
    if len(open_races) > _SHOWN:
        lines.append(f"  and {len(open_races) - _SHOWN} more")
    return lines, _next(open_races)


def _has_slurm_here() -> bool:
    return has_slurm(os.environ) or shutil.which("sbatch") is not None


def _next(open_races: Sequence[KnownRace]) -> list[Row]:
    running = [race for race in open_races if race.state == RUNS]
    waiting = [race for race in open_races if race.state == WAITS]
    rows: list[Row] = []
    if running:
        rows.append((f"rv logs -f {_word(running[0])}", "its output, to its end"))
    if waiting:
        rows.append((f"rv explain {_word(waiting[0])}", "why it waits, what would start now"))
    if open_races:
        rows.append(("rv ps", "what waits, what runs and how it ended"))
    rows += [
        ("rv status", "free GPUs, who waits for them, your limits"),
        ("rv up --gpu 1 --dry-run", "a plan for one GPU; submits nothing"),
        ("rv run check.py", "a bundled check of the GPU that starts first"),
    ]
    return rows[:_NEXT]


def _race_row(race: KnownRace) -> Row:
    age = short_duration(timedelta(seconds=max(0.0, time.time() - race.submitted_at)))
    is_long = len(race.command) > _COMMAND
    command = f"{race.command[: _COMMAND - 1].rstrip()}…" if is_long else race.command
    return (race.race_id, race.name or "-", race.state, age, command)


def _word(race: KnownRace) -> str:
    return race.name or race.race_id


def _indented(rows: Iterable[Row]) -> list[Row]:
    return [(f"  {first}", *rest) for first, *rest in rows]
