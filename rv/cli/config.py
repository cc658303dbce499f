"""`rv config`: each value with where it comes from; set and unset keep the rest of a file."""

import os
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from rv.cli.config_text import check_text, config_files, contents, write_text
from rv.cli.parameters import JsonOption
from rv.cli.typer_commands import command_app
from rv.config.config_files import PROJECT_FILE, ConfigFiles, Source
from rv.config.effective import HIDDEN, effective_values, shown
from rv.errors import ErrorKind, RvError
from rv.ui import console
from rv.ui.tables import Table
from rv.workflow.option_defaults import option_kinds, read_config
from rv.workflow.options import RequestOptions

ProjectOption = Annotated[
    bool, typer.Option("--project", help="In the project's rv.yaml, not in your own file.")
]

app = command_app(help="Show each value of the configuration, and where it comes from.")


@app.callback(invoke_without_command=True)
def config(*, context: typer.Context, json: JsonOption = False) -> None:
    """Show each value of the configuration, and where it comes from; set or unset one."""
    if context.invoked_subcommand is not None:
        return
    files = config_files()
    read_config()
    values = effective_values(files, _option_defaults(), os.environ)
    if json:
        rows = [{"key": v.key, "value": v.value, "source": v.source} for v in values]
        paths = {source.name.lower(): str(path) for source, path in files.existing()}
        console.emit_json({"values": rows, "files": paths})
        return
    table = [(each.key, _text(each.value), each.source) for each in values]
    console.answer(Table(head=("KEY", "VALUE", "SOURCE"), rows=table))


@app.command("set")
def set_(
    *,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Such as defaults.time.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="As YAML, or as it stands.")],
    project: ProjectOption = False,
    json: JsonOption = False,
) -> None:
    """Set a value in your file: checked before it is written, comments and order kept."""
    from rv.config.edit import set_value

    files, keys = config_files(), _keys(key)
    source, path = _target(files, project=project)
    before = contents(path)
    refused = None
    for meant in _readings(value):
        try:
            after = set_value(before, keys, meant, str(path))
            check_text(after, path, source, files)
        except RvError as error:
            refused = refused or error
            continue
        write_text(path, after, source)
        _say(key, shown(key, meant), path, json=json)
        return
    if refused:
        raise _hidden(refused, key)


@app.command()
def unset(
    *,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Such as defaults.time.")],
    project: ProjectOption = False,
    json: JsonOption = False,
) -> None:
    """Remove a value from your file: another file's, or rv's own, counts again."""
    from rv.config.edit import unset_value

    files = config_files()
    source, path = _target(files, project=project)
    before = contents(path)
    after = unset_value(before, _keys(key), str(path))
    check_text(after, path, source, files)
    write_text(path, after, source)
    _say(key, None, path, json=json)


def _target(files: ConfigFiles, *, project: bool) -> tuple[Source, Path]:
    """Return the file to change: through a link, so that it stays one."""
    if project:
        return Source.PROJECT, (files.project or Path.cwd() / PROJECT_FILE).resolve()
    return Source.USER, files.user.resolve()


def _keys(key: str) -> tuple[str, ...]:
    keys = tuple(key.split("."))
    if not all(keys):
        raise RvError(ErrorKind.USAGE, f"{key!r} is no key", hint="write defaults.time")
    return keys


def _readings(value: str) -> list[Any]:
    """Return what a value may mean: YAML, so that 4 is a number, else the text as it stands."""
    import yaml

    try:
        meant = yaml.safe_load(value)
    except yaml.YAMLError:
        return [value]
    return [value] if meant is None or meant == value else [meant, value]


def _option_defaults() -> dict[str, Any]:
    """Return what rv itself sets where no file does."""
    options = {field.name: field.default for field in fields(RequestOptions)}
    return {name: options[name] for name in option_kinds()}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if value in (None, "") else str(value)


def _hidden(refused: RvError, key: str) -> RvError:
    """Return an error that does not quote a value which is nobody else's business."""
    if shown(key, "x") != HIDDEN:
        return refused
    return RvError(refused.kind, f"{key} does not take this value", hint=refused.hint)


def _say(key: str, value: Any, path: Path, *, json: bool) -> None:
    if json:
        console.emit_json({"key": key, "value": value, "file": str(path)})
    else:
        says = f"is {_text(value)}" if value is not None else "is no longer set"
        console.say(f"{key} {says} in {path}")
