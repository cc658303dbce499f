"""A race before anything of it is written: where it is launched from, its names and its scripts."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rv.dataclass import dataclass
from rv.models.code import Code
from rv.models.plan import Plan, Submission
from rv.models.race import Chain, Race
from rv.models.request import Request
from rv.models.snapshot import ClusterConfig
from rv.models.sweep import Sweep
from rv.render.script import ScriptContext, render_all

if TYPE_CHECKING:
    from rv.render.templates import Templates

_ALPHABET: Final = "abcdefghjkmnpqrstuvwxyz23456789"
NO_FILES: Final[Mapping[str, bytes]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchContext:
    """Where a race is launched from. `environment` goes with the job; paths are the cluster's.

    `retry_of` is the race that is started again, "" for a first one. `code` is what was sent for
    the race, None where the command runs in `workdir`. `resumes` is the chain whose checkpoints it
    begins with, None for most. `files` are further files of its directory, by their
    path in it: a call, or a sweep's tasks.
    """

    cluster: str
    race_root: str
    workdir: str
    slurm_path: str
    environment: Mapping[str, str]
    config: ClusterConfig
    now_s: float
    retry_of: str = ""
    code: Code | None = None
    resumes: Race | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


def new_race_id() -> str:
    """Draw an id: eight letters and digits that cannot be mistaken for one another."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(8))


def scripts(
    submissions: Sequence[Submission], script: ScriptContext, templates: "Templates"
) -> tuple[tuple[Submission, str], ...]:
    """Render the scripts of submissions."""
    texts = render_all(submissions, script, templates)
    return tuple(zip(submissions, texts, strict=True))


def script_context(
    plan: Plan,
    request: Request,
    context: LaunchContext,
    chain: Chain | None = None,
    payloads: Mapping[str, bytes] = NO_FILES,
    sweep: Sweep | None = None,
) -> ScriptContext:
    """Name a new race, its directory and the folder of its payloads."""
    digest, folder = _payload_folder(context.race_root, payloads) if payloads else ("", "")
    race_id = new_race_id()
    race_dir = str(PurePosixPath(context.race_root) / race_id)
    jobs = (*plan.submissions, *plan.spares)
    carried = {strategy.id for job in jobs for strategy in job.strategies}
    return ScriptContext(
        race_id=race_id,
        race_dir=race_dir,
        nonce=secrets.token_hex(16),
        workdir=_workdir(context, race_dir),
        slurm_path=context.slurm_path,
        numbers=tuple(job.number for job in jobs),
        ranking=tuple(strategy.id for strategy in plan.strategies if strategy.id in carried),
        command=request.command,
        title=request.name,
        modules=request.modules,
        setup=request.setup,
        venv=request.venv,
        conda=request.conda,
        container=request.container,
        mounts=request.container_mounts,
        project=_project(context, race_dir),
        notices=request.notices,
        chain=chain,
        jobs=jobs if plan.moves else (),
        moves=plan.moves,
        payload_hash=digest,
        payload_folder=folder,
        sweep=sweep,
    )


def _payload_folder(root: str, payloads: Mapping[str, bytes]) -> tuple[str, str]:
    """Return the hash of the payloads, and the folder that is named by it."""
    from rv.race.payload_folders import payload_folder, payload_hash  # few commands are payloads

    digest = payload_hash(payloads)
    return digest, payload_folder(root, digest)


def _project(context: LaunchContext, race_dir: str) -> str:
    """The folder of the code: the race's copy, or where the user is."""
    if context.code is None:
        return context.workdir
    from rv.race.file_names import CODE  # of launches from elsewhere alone

    return str(PurePosixPath(race_dir, CODE))


def _workdir(context: LaunchContext, race_dir: str) -> str:
    """Where the command runs: in the race's copy of the code, or where the user is."""
    project = _project(context, race_dir)
    return str(PurePosixPath(project, context.code.folder)) if context.code else project
