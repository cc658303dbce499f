"""A shell, or a command, beside the command of a race: a step in its running job."""

import re
import shlex
from base64 import b64encode
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.quantities import short_duration
from rv.models.race import Claim, Race, RaceStatus
from rv.render.quote import shell as quoted
from rv.slurm.hostlist import expand
from rv.transport import ScriptResult, require_end
from rv.workflow.cluster import Cluster
from rv.workflow.races import look_at, require_node, winner_of

COMMAND_S: Final = 600.0
"""How long a command without a terminal may take."""

_LOOK_S: Final = 30.0
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")

# The variables of the command's environment, as the job restores them (rv/race/stage.py).
ENVIRONMENT: Final = """cd {directory} && [ -O . ] || exit 1
unset LC_ALL SLURM_TIME_FORMAT
if [ -e shell.env ]; then
  . ./shell.env
else
  node_path=$PATH
  while IFS= read -r -d '' pair; do export "$pair"; done <environment
  PATH=$PATH:$node_path
  export RV_RACE_DIR=$PWD RV_OUTPUT_DIR=$PWD/results RV_CHECKPOINT_DIR=$PWD/checkpoints
fi
"""
_STEP: Final = (
    ENVIRONMENT
    + """cd {workdir} 2>/dev/null || cd || exit
{command}"""
)
_BASH: Final = ("/bin/bash", "-c")
_SHELL: Final = 'exec "${SHELL:-/bin/bash}" -i'


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A node on which a race runs now, and for how long it still may."""

    race: Race
    claim: Claim
    node: str
    left: timedelta

    @property
    def banner(self) -> str:
        """Say where this is: 4 a40 on a40n2, 1h59m left."""
        entry = self.race.winner(self.claim)
        gpus = f"{entry.gpus} {entry.gpu} " if entry and entry.gpus else ""
        return f"{gpus}on {self.node}, {short_duration(self.left)} left"


def find_place(race: Race, node: int | None, cluster: Cluster, now_s: float) -> Place:
    """Return where a race runs. Raises `RvError(USAGE)` for one that does not run now."""
    require_node(race, node)
    status, _ = look_at(race, cluster, now_s)
    return place_of(status, node, now_s)


def place_of(status: RaceStatus, node: int | None, now_s: float) -> Place:
    """Return where a race of this status runs. Raises `RvError(USAGE)`, as `find_place` does."""
    race, claim = status.race, _running(status)
    names = expand(claim.nodes)
    number = node or 0
    if number >= len(names):
        raise RvError(
            ErrorKind.USAGE,
            f"job {claim.job_id} has no node {number}",
            hint=f"it has {claim.nodes}",
        )
    entry = race.winner(claim)
    walltime = entry.walltime if entry else timedelta(0)
    gone = timedelta(seconds=max(0.0, now_s - claim.started_at))
    return Place(
        race=race, claim=claim, node=names[number], left=max(walltime - gone, timedelta(0))
    )


def _running(status: RaceStatus) -> Claim:
    race = status.race
    if status.state.is_over:
        raise RvError(
            ErrorKind.USAGE,
            f"race {race.race_id} is over: {status.state}",
            hint=f"rv logs {race.race_id} shows its output",
        )
    return winner_of(status)


def attach(place: Place, words: Sequence[str], cluster: Cluster) -> int:
    """Run a shell or a command there on this terminal, and return its exit code."""
    return cluster.transport.interactive([*step(place, "--pty"), *_BASH, _script(place, words)])


def attach_lasting(place: Place, cluster: Cluster) -> int:
    """Open a shell in a tmux of the login node: it is there again after a lost connection."""
    name = _UNFIT.sub("-", f"rv-{place.race.race_id}-{place.node}")
    line = shlex.join([*step(place, "--pty"), *_BASH, _script(place, ())])
    # tmux gives it to the user's shell; those of csh's kind take no newline between quotes.
    packed = b64encode(line.encode("utf-8", "surrogateescape")).decode()
    one_line = f"/bin/bash -c 'eval \"$(echo {packed} | base64 -d)\"'"
    return cluster.transport.interactive(["tmux", "new-session", "-A", "-s", name, one_line])


def run_beside(place: Place, words: Sequence[str], cluster: Cluster) -> ScriptResult:
    """Run a command there without a terminal, and return what it said when it is over."""
    line = shlex.join([*step(place), *_BASH, _script(place, words)])
    return cluster.transport.run(line, timeout_s=COMMAND_S)


def has_tmux(cluster: Cluster) -> bool:
    """Whether the login node has tmux. Raises `RvError(UNREACHABLE)` where it does not say."""
    done = cluster.transport.run("command -v tmux", timeout_s=_LOOK_S)
    require_end(done, "tmux cannot be looked for")
    return done.returncode == 0


def step(place: Place, *options: str) -> list[str]:
    """Return the words that run a program there, which shares all that the job has."""
    return [
        "srun",
        f"--jobid={place.claim.job_id}",
        f"--nodelist={place.node}",
        "--nodes=1",
        "--ntasks=1",
        "--overlap",
        *options,
    ]


def _script(place: Place, words: Sequence[str]) -> str:
    command = f"exec {shlex.join(words)}" if words else _SHELL
    return _STEP.format(
        directory=quoted(place.race.directory),
        workdir=quoted(place.race.workdir or "."),
        command=command,
    )
