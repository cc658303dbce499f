"""The command line, and the one place that turns a failure into a message and an exit code."""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from rv.cli.parameters import CommandApp
from rv.cli.plain_line import plain_call
from rv.errors import EXIT_DONE, EXIT_INTERRUPTED, ErrorKind, RvError, UnwritableError
from rv.ui import console

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "up": ("rv.cli.up", "Race for GPUs, then run a command in them or open a shell."),
    "run": ("rv.cli.run", "Race for GPUs, run a command in the first that start."),
    "sweep": ("rv.cli.sweep", "Run a command for each of many values, each task once."),
    "ps": ("rv.cli.races", "List races, and recover what a killed client left."),
    "logs": ("rv.cli.logs", "Show the output of a race."),
    "wait": ("rv.cli.wait", "Wait until races are over; exit with the worst of their codes."),
    "rerun": ("rv.cli.rerun", "Submit a race's request and command again, as a new race."),
    "stop": ("rv.cli.stop", "Cancel races whole."),
    "attach": ("rv.cli.attach", "Open a shell, or run a command, beside a race's."),
    "exec": ("rv.cli.attach", "Run a command on the login node."),
    "forward": ("rv.cli.forward", "Let ports here lead to ports of a race's node."),
    "ssh-config": ("rv.cli.ssh", "Let ssh, rsync and VS Code reach a race's node."),
    "gpu": ("rv.cli.gpu", "Show how a race uses its GPUs."),
    "sync": ("rv.cli.sync", "Send your code to the cluster, and fetch results."),
    "status": ("rv.cli.queries", "Show free GPUs and who waits for them."),
    "cost": ("rv.cli.queries", "Compare GPU models: what a request would cost on each."),
    "explain": ("rv.cli.queries", "Tell why a race still waits, and what would start now."),
    "snapshot": ("rv.cli.queries", "Print the cluster as JSON, to plan with elsewhere."),
    "env": ("rv.cli.env", "Variables for every job of yours, such as tokens."),
    "init": ("rv.cli.init", "Set a cluster up: connect, discover, write the configuration."),
    "config": ("rv.cli.config", "Show each value of the configuration, and where it comes from."),
    "completion": ("rv.cli.completion", "Let bash, zsh or fish complete what you type, by Tab."),
    "doctor": ("rv.cli.doctor", "Check each link, from here to a job on a node."),
    "accept": ("rv.cli.accept", "Acceptance: test GPUs and nodes, judge and keep the results."),
    "sandbox": ("rv.cli.sandbox", "A real Slurm cluster on this machine."),
}
"""Each command's module, which has an `app`, and its line in `rv --help`."""


def command_module(name: str) -> Any:
    """Import a command's module; its `app` is the command itself, or holds it with others."""
    module, _ = COMMANDS[name]
    return importlib.import_module(module)


def main(arguments: list[str]) -> NoReturn:
    """Run the command line and exit."""
    sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    try:
        return _answer(arguments)
    except RvError as failure:
        return _fail(failure, arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as failure:  # noqa: BLE001 - a traceback is no answer for a user
        return _fail(_translate(failure, arguments), arguments)


def _answer(arguments: list[str]) -> int:
    """Run a command, and return its exit code unless it exits itself."""
    name = arguments[0] if arguments else ""
    app = command_module(name).app if name in COMMANDS else None
    if isinstance(app, CommandApp) and (call := plain_call(arguments, app)):
        call()
        return EXIT_DONE
    from rv.cli.typer_commands import run  # only where typer has to read the line

    return run(arguments)


def _fail(failure: RvError, arguments: list[str]) -> int:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    with suppress(UnwritableError):  # the code still tells of the failure
        (console.error_json if "--json" in own else console.error)(failure)
    return failure.exit_code


def _translate(failure: Exception, arguments: Sequence[str]) -> RvError:
    """Usage errors are typer's own exceptions; anything else is a fault of rv's."""
    show = getattr(failure, "format_message", None)
    if show is not None:
        named = next((word for word in arguments if word in COMMANDS), "COMMAND")
        path = getattr(getattr(failure, "ctx", None), "command_path", "")
        of = path if path.startswith(f"rv {named} ") else f"rv {named}"
        return RvError(ErrorKind.USAGE, str(show()), hint=f"{of} --help")
    import traceback

    if os.environ.get("RV_DEBUG"):
        traceback.print_exception(failure)
    where = traceback.extract_tb(failure.__traceback__)[-1]
    what = f"{type(failure).__name__}: {failure} (in {where.name}, line {where.lineno})"
    return RvError(
        ErrorKind.INTERNAL, what, hint="RV_DEBUG=1 shows where; nothing was lost: see rv ps"
    )
