"""What a command runs in: variables, directory, umask, and a container or a Python environment.

Variables are the caller's, the files', those of `rv env` and of the command line, the later
winning. Their values are never shown: a message has the name alone.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rv.errors import ErrorKind, RvError
from rv.models.request import Command, Launcher, Request
from rv.models.site import ONE_OF
from rv.workflow.options import RequestOptions

if TYPE_CHECKING:
    from rv.workflow.cluster import Cluster

MASK: Final = "•••"
AUTO: Final = "auto"
"""The virtual environment of the project's lock file."""

_MODULE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+:@-]{0,127}", re.ASCII)


def job_environment(options: RequestOptions, caller: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a job. `caller` is the environment of the login there.

    Raises `RvError(USAGE)` for a variable that was to be taken from here and is not set.
    """
    from rv.models.container import VARIABLES  # a dry run needs no variables
    from rv.slurm.environment import caller_environment
    from rv.workflow.user_variables import load_variables

    own = load_variables()
    setting = options.config.defaults.get("env")
    here = own | os.environ
    from_files = dict(_pairs(setting.value, here) if setting else ())
    typed = dict(_pairs(options.env or (), here))
    variables = from_files | own | typed
    # A container's image has variables of its own, which these overrule.
    names = {VARIABLES: " ".join(variables)} if options.container else {}
    return caller_environment(caller) | variables | names


def with_environment(
    request: Request, cluster: "Cluster", workdir: str, say: Callable[[str], None]
) -> Request:
    """Return the request with the folder of its environment on the cluster, built where need be.

    `workdir` is where the command runs; what is built is told to `say`. Nothing is asked where
    none is wanted. Raises `RvError` for one that is not there.
    """
    from rv.models.container import is_path

    wants_image = is_path(request.container)
    if not request.venv and not request.conda and not wants_image:
        return request
    from rv.workflow.lock_file import find_lock_file
    from rv.workflow.virtual_environment import build_environment, find_environment

    modules = request.modules
    if wants_image:
        path = find_environment("image", request.container, workdir, (), cluster.transport)
        return replace(request, container=path)
    if request.conda:
        path = find_environment("conda", request.conda, workdir, modules, cluster.transport)
        return replace(request, conda=path)
    if request.venv != AUTO:
        path = find_environment("venv", request.venv, workdir, modules, cluster.transport)
        return replace(request, venv=path)
    lock = find_lock_file(working_directory())
    path = build_environment(lock, cluster.race_root, modules, cluster.transport, say)
    return replace(request, venv=path)


def with_surroundings(request: Request, options: RequestOptions) -> Request:
    """Return the request with what its command runs in. Raises `RvError(USAGE)` for slips."""
    given = [f"--{name}" for name in ONE_OF if getattr(options, name)]
    if len(given) > 1:
        raise RvError(
            ErrorKind.USAGE, f"{' and '.join(given)} exclude each other", hint="give one of them"
        )
    check_names(options.env or ())
    if options.container:
        from rv.models.container import read_image

        read_image(options.container)
        _check_launcher(request.command)
    return replace(
        request,
        modules=_modules(options.modules),
        setup=tuple(_setup_line(line) for line in options.setup or ()),
        venv=_environment_path("--venv", options.venv),
        conda=_environment_path("--conda", options.conda),
        container=options.container,
        container_mounts=_mounts(options.container_mounts or ()),
    )


def _mounts(words: Sequence[str]) -> tuple[str, ...]:
    if not words:
        return ()
    from rv.models.container import read_mount

    return tuple(read_mount(text) for text in words)


def _check_launcher(command: Command | None) -> None:
    if command and command.launcher is Launcher.MPI:
        raise RvError(
            ErrorKind.USAGE,
            "srun and mpirun start their processes outside of the container",
            hint="leave --container out, and name the image in the line: srun --container-image=…,"
            " or srun apptainer exec …",
        )


def _modules(text: str) -> tuple[str, ...]:
    names = tuple(word.strip() for word in text.split(",") if word.strip())
    for name in names:
        if not _MODULE.fullmatch(name):
            raise RvError(
                ErrorKind.USAGE, f"{name!r} is no name of a module", hint="module avail lists them"
            )
    return names


def _setup_line(line: str) -> str:
    if "\0" in line or not line.strip():
        raise RvError(ErrorKind.USAGE, "a --setup line is empty", hint="leave it out")
    return line


def _environment_path(option: str, text: str) -> str:
    """Read what names an environment; rv looks for it on the cluster."""
    if any(ord(char) < ord(" ") or char in ":\x7f" for char in text):
        raise RvError(
            ErrorKind.USAGE,
            f"{text!r} is no value for {option}",
            hint="a folder in PATH has no colon and no control character in its name",
        )
    return text


def planned(request: Request, race_root: str) -> Request:
    """Return the request as a dry run shows it: nothing is looked for, and nothing is built."""
    if request.venv != AUTO:
        return request
    from rv.workflow.lock_file import find_lock_file
    from rv.workflow.virtual_environment import planned_environment

    find_lock_file(working_directory())
    return replace(request, venv=planned_environment(race_root))


def masked(words: Iterable[str]) -> list[str]:
    """Return words `NAME=VALUE` as they may be shown."""
    return [f"{word.partition('=')[0]}={MASK}" for word in words]


def check_names(words: Iterable[str]) -> None:
    """Refuse names that no job may have. Raises `RvError(USAGE)`."""
    for word in words:
        check_variable(*word.partition("=")[::2])


def check_variable(name: str, value: str) -> None:
    """Refuse a variable that no job may have. Raises `RvError(USAGE)`, which has no value."""

    from rv.slurm.environment import why_refused
    from rv.workflow.user_variables import why_unfit

    refused = why_refused(name)
    # What is no name could be a value that was typed in its place.
    shown = repr(name) if name.isidentifier() else "what stands before ="
    if refused:
        raise RvError(
            ErrorKind.USAGE, f"--env: {shown} cannot be set", hint=f"{refused}; --env NAME=VALUE"
        )
    if why := why_unfit(value):
        raise RvError(ErrorKind.USAGE, f"--env {name}: {why}", hint="put it into a file")


def _pairs(words: Iterable[str], here: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for word in words:
        name, equals, value = word.partition("=")
        if not equals and name not in here:
            raise RvError(
                ErrorKind.USAGE,
                f"--env {name}: it is not set here",
                hint=f"export {name}, or keep it for every job: rv env set {name}",
            )
        value = value if equals else here[name]
        check_variable(name, value)
        yield name, value


def working_directory() -> str:
    """The current directory. Raises `RvError(STAGE)` where it has been removed."""
    try:
        return str(Path.cwd())
    except OSError as error:
        raise RvError(
            ErrorKind.STAGE, "the current directory is gone", hint="cd to one that exists"
        ) from error


def umask() -> str:
    """The caller's umask, which the command is to have: rv itself writes for this user alone."""
    with suppress(OSError, ValueError, IndexError):
        # Without setting it, which threads that write files at that moment would notice.
        text = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
        return text[text.index("\nUmask:") :].split()[1]
    mask = os.umask(0o077)
    os.umask(mask)
    return f"{mask:04o}"
