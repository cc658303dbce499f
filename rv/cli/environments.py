"""What a command runs in: variables, and an environment of Python.

Variables are the caller's, the files', those of `--env` and, below these, of `rv env`. Their
values are never shown: a message has the name alone.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from rv.cli.caller import Caller, working_directory
from rv.cli.options import RequestOptions
from rv.errors import ErrorKind, RvError
from rv.models.request import Request
from rv.slurm.environment import caller_environment, why_refused
from rv.workflow.user_variables import load_variables, why_unfit

MASK: Final = "•••"
AUTO: Final = "auto"
"""The virtual environment of the project's lock file."""


def job_environment(options: RequestOptions, caller: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a job. `caller` is the environment of the login there.

    Raises `RvError(USAGE)` for a variable that was to be taken from here and is not set.
    """
    own = load_variables()
    setting = options.config.defaults.get("env")
    from_files = dict(_pairs(setting.value, os.environ | own) if setting else ())
    typed = dict(_pairs(options.env or (), os.environ | own))
    return caller_environment(caller) | from_files | own | typed


def with_environment(request: Request, caller: Caller) -> Request:
    """Return the request with the folder of its environment on the cluster, built where need be.

    Nothing is asked where none is wanted. Raises `RvError` for one that is not there.
    """
    if not request.venv and not request.conda:
        return request
    from rv.ui import console
    from rv.workflow.lock_file import find_lock_file
    from rv.workflow.virtual_environment import build_environment, find_environment

    cluster, modules = caller.cluster, request.modules
    if request.conda:
        path = find_environment("conda", request.conda, caller.workdir, modules, cluster.transport)
        return replace(request, conda=path)
    if request.venv != AUTO:
        path = find_environment("venv", request.venv, caller.workdir, modules, cluster.transport)
        return replace(request, venv=path)
    lock = find_lock_file(working_directory())
    path = build_environment(lock, cluster.race_root, modules, cluster.transport, console.notice)
    return replace(request, venv=path)


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
