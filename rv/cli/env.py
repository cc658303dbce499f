"""`rv env`: the user's own variables for every job. Values are read from stdin, and never shown."""

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from rv.cli.parameters import JsonOption
from rv.cli.typer_commands import group_app
from rv.errors import ErrorKind, RvError
from rv.ui import console
from rv.workflow.environments import MASK, check_variable
from rv.workflow.user_variables import (
    change_variables,
    load_variables,
    parse_dotenv,
    variables_file,
)

app = group_app("Variables for every job of yours, such as tokens.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Such as HF_TOKEN.")]


@app.command("set")
def set_(
    *,
    name: NameArgument,
    value: Annotated[
        str | None, typer.Argument(metavar="VALUE", help="Read from stdin where left out.")
    ] = None,
) -> None:
    """Keep a variable for every job. Leave VALUE out, so that no shell's history has it."""
    check_variable(name, "")
    text = _read_value(name) if value is None else value
    check_variable(name, text)
    change_variables(lambda held: held | {name: text})
    console.say(f"{name}={MASK} goes with every job from now on, by {variables_file()}")


@app.command("list")
def list_(*, json: JsonOption = False) -> None:
    """List the names; values are not shown."""
    names = sorted(load_variables())
    if json:
        console.emit_json({"variables": names, "file": str(variables_file())})
    elif names:
        console.answer("\n".join(f"{name}={MASK}" for name in names))
    else:
        console.say("no variables; rv env set NAME keeps one")


@app.command()
def unset(
    *, names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Which to forget.")]
) -> None:
    """Forget variables."""
    unknown = [name for name in names if name not in load_variables()]
    if unknown:
        raise RvError(ErrorKind.USAGE, f"{unknown[0]!r} is not set", hint="rv env list")
    change_variables(lambda held: {k: v for k, v in held.items() if k not in names})
    console.say(f"{', '.join(names)}: forgotten")


@app.command("import")
def import_(
    *, file: Annotated[Path, typer.Argument(metavar="FILE", help="Lines NAME=VALUE: .env.")]
) -> None:
    """Keep all variables of a .env file."""
    try:
        variables = parse_dotenv(file.read_text(encoding="utf-8").splitlines())
    except UnicodeDecodeError as error:
        raise RvError(ErrorKind.USAGE, f"{file} is no text", hint="rv env import .env") from error
    except OSError as error:
        why = f"{file}: {error.strerror}"
        raise RvError(ErrorKind.USAGE, why, hint="rv env import .env") from error
    except ValueError as error:
        raise RvError(ErrorKind.USAGE, f"{file}: {error}", hint="write NAME=VALUE") from error
    for name, value in variables.items():
        check_variable(name, value)
    change_variables(lambda held: held | variables)
    console.say(f"{len(variables)} kept: {', '.join(sorted(variables)) or 'none'}")


def _read_value(name: str) -> str:
    """Read a value from stdin: asked for without echo on a terminal, else all of it, one line."""
    if sys.stdin.isatty():
        return getpass.getpass(f"{name}: ")
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise RvError(ErrorKind.USAGE, f"{name}: its value is no text", hint="UTF-8") from error
    return text.removesuffix("\n").removesuffix("\r")
