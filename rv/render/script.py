"""Render one submission's job script from the bundled, or the user's own, templates."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.notice import Notice
from rv.models.plan import Strategy, Submission
from rv.models.quantities import slurm_time
from rv.models.race import Chain, job_name, next_job_name
from rv.models.request import Command, Launcher
from rv.models.sweep import TASKS_A_FOLDER, Sweep
from rv.render import quote

if TYPE_CHECKING:
    import jinja2

    from rv.models.container import Image
    from rv.render.templates import Templates

LEASE_SECONDS: Final = 300
"""How long an allocation outlives the last sign of the rv that holds it."""

HANDOVER_SECONDS: Final = 15
"""How long a new instance waits for an earlier one, of a node out of touch, to stop its command."""

_WATCH_SECONDS: Final = 10
_STOP_WATCH_SECONDS: Final = 30
_MOST_FRUITLESS: Final = 3
_MORE_SEGMENTS: Final = 10
_PATIENCE_FOR_FASTER_SECONDS: Final = 45  # Slurm looks for backfill every 30 s, unless told

_LONGEST_NOTICE: Final = 500
"""Characters of the command that a notice shows."""

_LONGEST_COMMAND: Final = 120 << 10
"""Bytes. Linux takes 128 KiB for one argument or variable, whatever is in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptContext:
    """What all the scripts of one race share. Paths are those of the cluster.

    `ranking` holds the ids of the strategies that its jobs carry, best first. `venv` and `conda`
    are folders of environments to activate, "" for none; `setup` are shell lines before the
    command. `container` is the image that the command runs in, "" for none; `mounts` are
    `SRC:DST[:ro]`, beside those that the command needs, of which one is `project`, the folder of
    the code. `notices` are sent by the job that wins. `jobs` and `moves` are the plan's, where a
    chain may change its layout.
    """

    race_id: str
    race_dir: str
    nonce: str
    workdir: str
    slurm_path: str
    numbers: tuple[int, ...]
    ranking: tuple[str, ...]
    command: Command | None
    title: str = ""
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    venv: str = ""
    conda: str = ""
    container: str = ""
    mounts: tuple[str, ...] = ()
    project: str = ""
    notices: tuple[Notice, ...] = ()
    chain: Chain | None = None
    jobs: tuple[Submission, ...] = ()
    moves: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    payload_hash: str = ""
    payload_folder: str = ""
    sweep: Sweep | None = None


_EXPRESSION_ERRORS: Final = (
    ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip
"""What an expression in a user's own template can raise."""


def render(submission: Submission, race: ScriptContext, templates: "Templates") -> str:
    """Render the script of one submission, as `render_all` does."""
    return render_all((submission,), race, templates)[0]


def render_all(
    submissions: Sequence[Submission], race: ScriptContext, templates: "Templates"
) -> tuple[str, ...]:
    """Render the scripts of a race's submissions; each template is compiled once for all of them.

    Raises `RvError(USAGE)` where a value cannot be written into a script at all, and
    `RvError(CONFIG)` for a template of the user's own that is wrong.
    """
    import jinja2

    from rv.render.templates import environment

    compiled = environment(templates)
    try:
        return tuple(_rendered(submission, race, compiled) for submission in submissions)
    except (jinja2.TemplateError, *_EXPRESSION_ERRORS) as error:
        raise RvError(
            ErrorKind.CONFIG,
            f"a job template is wrong: {error}",
            hint="your own are in templates/ of rv's configuration folder; rename it to do without",
        ) from error


def _rendered(
    submission: Submission, race: ScriptContext, environment: "jinja2.Environment"
) -> str:
    from rv.models.gpu_use import GPU_QUERY, PROCESS_QUERY  # most dry runs render nothing

    strategy = submission.strategy
    if race.command:
        line = race.command.line
    else:
        line = environment.get_template("_hold.sh.j2").render(lease_seconds=LEASE_SECONDS)
    if race.setup or race.conda:
        before = environment.get_template("_setup.sh.j2")
        line = before.render(setup=race.setup, conda=race.conda) + line
    return environment.get_template(_template(strategy, race)).render(
        job=_job(submission.number, race, line),
        s=strategy,
        parts=submission.strategies,
        homes=_homes(submission),
        walltime=quote.shell(slurm_time(strategy.walltime)),
        omp_threads=omp_threads(strategy),
        chain=_segments(submission, race, race.chain) if race.chain else None,
        sweep=_tasks(race.sweep) if race.sweep else None,
        slots=submission.slots,
        walltime_seconds=int(strategy.walltime.total_seconds()),
        buffer_seconds=int(strategy.buffer.total_seconds()),
        stop_watch_seconds=_STOP_WATCH_SECONDS,
        gpu_query=quote.words(GPU_QUERY),
        process_query=quote.words(PROCESS_QUERY),
        # A slice's share of its card is not told, and there is nothing to sample without GPUs.
        samples_gpus=strategy.gpus_per_node > 0 and not (strategy.mig_profile or race.sweep),
        on_every_node=strategy.nodes > 1 and not _runs_once(race.command),
    )


def _segments(submission: Submission, race: ScriptContext, chain: Chain) -> dict[str, Any]:
    """Return the names a template may use under `chain`; times in seconds."""
    strategy = submission.strategy
    buffer = int(strategy.buffer.total_seconds())
    own = _segment(submission, chain)
    most = max(job.strategy.segments for job in (submission, *race.jobs))
    return {
        "signal": quote.shell(chain.signal),
        "total": quote.shell(slurm_time(strategy.total or chain.total)),
        "total_seconds": own["total_seconds"],
        "moves": race.moves.get(submission.number, ()),
        "layouts": [
            _segment(job, chain)
            for job in {job.number: job for job in (*race.jobs, submission)}.values()
        ],
        "excluded": sorted({node for job in race.jobs for node in job.strategy.exclude_nodes}),
        "patience_for_faster_seconds": _PATIENCE_FOR_FASTER_SECONDS,
        "switch": any(race.moves.values()),
        "most_segments": 2 * most + _MORE_SEGMENTS,
        # The signal never comes late, so that this long after it there is time left to kill.
        "patience_seconds": max(buffer - 30, buffer // 2),
        "most_fruitless": _MOST_FRUITLESS,
        "handover_seconds": HANDOVER_SECONDS,
        "watch_seconds": _WATCH_SECONDS,
    }


def _segment(submission: Submission, chain: Chain) -> dict[str, int]:
    """Return what tells how long a segment of a submission's job may be, in seconds."""
    strategy = submission.strategy
    return {
        "number": submission.number,
        "total_seconds": int((strategy.total or chain.total).total_seconds()),
        "walltime_seconds": int(strategy.walltime.total_seconds()),
        "buffer_seconds": int(strategy.buffer.total_seconds()),
    }


def _tasks(sweep: Sweep) -> dict[str, quote.Quoted | int]:
    """Return the names a template may use under `sweep`."""
    return {
        "variables": quote.words(sweep.variables),
        "width": len(sweep.names) + 1,
        "gpus": sweep.gpus,
        "tasks": sweep.tasks,
        "most_running": sweep.most_running,
        "tasks_a_folder": TASKS_A_FOLDER,
    }


def _homes(submission: Submission) -> tuple[quote.Quoted, ...]:
    """For each strategy of a merged job the shell pattern of `partition/node` that is its own."""
    if submission.merged is None:
        return ()
    return tuple(
        quote.Quoted(
            " | ".join(f"{quote.shell(part.partition)}/{quote.shell(name)}" for name in nodes)
            or f"{quote.shell(part.partition)}/*"
        )
        for part, nodes in zip(submission.strategies, submission.merged.homes, strict=True)
    )


def omp_threads(strategy: Strategy) -> int:
    """CPUs of a node over the ranks on it, one rank a GPU; one on a MIG slice."""
    if strategy.mig_profile:
        return 1
    return max(1, strategy.cpus_per_task // max(1, strategy.gpus_per_node))


def sbatch_line(strategy: Strategy) -> str:
    """What a person would type for this strategy, without the race around it."""
    options = {
        "-p": strategy.partition,
        "-A": strategy.account,
        "-q": strategy.qos,
        "-t": slurm_time(strategy.walltime),
        "-N": strategy.nodes,
        "--ntasks-per-node": 1,
        "-c": strategy.cpus_per_task,
        "--mem": f"{strategy.memory_mib}M",
        "--gres": strategy.gres,
        "-C": strategy.constraint,
        "-x": ",".join(strategy.exclude_nodes),
    }
    words = [_option(name, value) for name, value in options.items() if value != ""]
    extra = [_option(f"--{key}", value) for key, value in strategy.extra]
    return " ".join(["sbatch", *words, *extra, "job.sh"])


def _option(name: str, value: object) -> str:
    if value == "":
        return name
    return f"{name}{'=' if name.startswith('--') else ' '}{quote.shell(value)}"


def _template(strategy: Strategy, race: ScriptContext) -> str:
    if race.chain:
        return "checkpoint.sh.j2"
    if race.sweep:
        return "sweep.sh.j2"
    once = _runs_once(race.command)
    name = "single_node" if once and strategy.template == "multi_node" else strategy.template
    return f"{name}.sh.j2"


def _runs_once(command: Command | None) -> bool:
    """A shell, srun and mpirun start once, on the first node, whatever the layout."""
    return command is None or command.launcher is Launcher.MPI


def _job(number: int, race: ScriptContext, line: str) -> dict[str, Any]:
    """Return the names a template may use under `job`: what the race's scripts share, and more."""
    if len(line.encode("utf-8", "surrogateescape")) > _LONGEST_COMMAND:
        raise RvError(
            ErrorKind.USAGE,
            f"the command is longer than {_LONGEST_COMMAND >> 10} KiB, which no program can take",
            hint="write it into a script and run that",
        )
    own_folder = quote.path_pattern(race.race_dir)
    return {
        **{each.name: getattr(race, each.name) for each in fields(race)},
        "number": number,
        "ranks": {strategy: rank for rank, strategy in enumerate(race.ranking)},
        "name": job_name(race.race_id, number),
        "all_names": tuple(job_name(race.race_id, other) for other in race.numbers),
        "next_name": next_job_name(race.race_id),
        "comment": quote.comment(f"rv {race.race_id} {race.title}".strip()),
        # All workers of an array would write to one file, and over one another.
        "log": f"{own_folder}/jobs/{number}{'_%a' if race.sweep else ''}.log",
        "output_pattern": f"{own_folder}/output",
        "line": line,
        "payload": race.command.payload if race.command else "",
        "notice_facts": _notice_facts(race),
        "image": _image(race),
    }


def _notice_facts(race: ScriptContext) -> str:
    """Return what every notice says, as the beginning of the JSON object that a URL gets."""
    typed = (race.command.typed or race.command.line) if race.command else ""
    facts = {"race": race.race_id, "name": race.title, "command": typed[:_LONGEST_NOTICE]}
    return json.dumps(facts).removesuffix("}")


def _image(race: ScriptContext) -> "Image | None":
    """Return the image of the command. Raises `RvError(USAGE)` where what it needs is unmountable.

    A shell in the allocation is outside of it.
    """
    if not race.container or race.command is None:
        return None
    from rv.models.container import is_mountable, read_image  # most commands run in none

    needed = (race.workdir, race.race_dir, race.payload_folder or "/none")
    for path in needed:
        if path != "/" and not is_mountable(path):
            raise RvError(
                ErrorKind.USAGE,
                f"no container can mount {path!r}",
                hint="use a folder without commas and colons in its name",
            )
    return read_image(race.container)
