"""Render one submission's job script from the bundled, or the user's own, templates."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rv.errors import Kind, RvError
from rv.models.command import Command, Launcher
from rv.models.plan import Strategy, Submission
from rv.models.quantities import slurm_time
from rv.render import quote

LEASE_SECONDS: Final = 600
"""How long an allocation outlives the last sign of the client or of a user at its shell."""

ReadTemplate = Callable[[str], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class RaceFacts:
    """What all the scripts of one race share. Paths are those of the cluster."""

    race_id: str
    race_dir: str
    nonce: str
    workdir: str
    slurm_path: str
    numbers: tuple[int, ...]
    command: Command | None
    title: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Job:
    """The names a template may use under `job`."""

    race_id: str
    race_dir: str
    nonce: str
    workdir: str
    slurm_path: str
    number: int
    name: str
    all_names: tuple[str, ...]
    comment: str
    log: str
    output_pattern: str
    line: str


def job_name(race_id: str, number: int) -> str:
    """Name a submission: fixed, so that it can be looked up whatever happened to sbatch."""
    return f"rv-{race_id}-{number}"


def render(submission: Submission, race: RaceFacts, read_template: ReadTemplate) -> str:
    """Render the script of one submission.

    `read_template` maps a file name such as `single_node.sh.j2` to its text.
    Raises `RvError(USAGE)` where a value cannot be written into a script at all, and
    `RvError(CONFIG)` for a template of the user's own that is wrong.
    """
    import jinja2

    try:
        return _rendered(submission, race, _environment(read_template))
    except jinja2.TemplateError as error:
        raise RvError(
            Kind.CONFIG,
            f"a job template is wrong: {error}",
            hint="your own are in templates/ of rv's configuration folder; rename it to do without",
        ) from error


def _rendered(submission: Submission, race: RaceFacts, environment: "jinja2.Environment") -> str:
    strategy = submission.strategy
    job = _job(submission.number, race)
    if race.command is None:
        hold = environment.get_template("_hold.sh.j2").render(lease_seconds=LEASE_SECONDS)
        job = _job(submission.number, race, line=hold)
    return environment.get_template(_template(strategy, race.command)).render(
        job=job,
        s=strategy,
        walltime=slurm_time(strategy.walltime),
        omp_threads=omp_threads(strategy),
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


def _template(strategy: Strategy, command: Command | None) -> str:
    """A shell, srun and mpirun start once, on the first node, whatever the layout."""
    once = command is None or command.launcher is Launcher.MPI
    name = "single_node" if once and strategy.template == "multi_node" else strategy.template
    return f"{name}.sh.j2"


def _job(number: int, race: RaceFacts, line: str = "") -> _Job:
    return _Job(
        race_id=race.race_id,
        race_dir=race.race_dir,
        nonce=race.nonce,
        workdir=race.workdir,
        slurm_path=race.slurm_path,
        number=number,
        name=job_name(race.race_id, number),
        all_names=tuple(job_name(race.race_id, other) for other in race.numbers),
        comment=quote.comment(f"rv {race.race_id} {race.title}".strip()),
        log=f"{quote.path_pattern(race.race_dir)}/jobs/{number}.log",
        output_pattern=f"{quote.path_pattern(race.race_dir)}/output",
        line=line or (race.command.line if race.command else ""),
    )


def _environment(read_template: ReadTemplate) -> "jinja2.Environment":
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(read_template),
        undefined=jinja2.StrictUndefined,
        comment_start_string="{%#",  # the usual {# is also how bash begins ${#array[@]}
        comment_end_string="#%}",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - the output is bash: every value goes through |q or |d
    )
    environment.filters["q"] = quote.shell
    environment.filters["d"] = quote.directive
    return environment


TYPE_CHECKING = False
if TYPE_CHECKING:
    import jinja2
