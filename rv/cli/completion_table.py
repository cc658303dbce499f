"""What can follow what on rv's command line, as plain data: completion reads it without typer.

The table is made of the commands themselves, once after each change of rv, and kept in the user's
cache: importing every command takes longer than somebody who pressed Tab waits.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rv import __version__
from rv.files import read_regular, write_atomically
from rv.transport.own_folder import is_own
from rv.transport.private_directories import make_private

SOURCES: Final = {
    "account": "accounts", "cluster": "clusters", "exclude": "nodes", "forget": "nodes",
    "nodes": "nodes", "partition": "partitions", "payloads": "payloads", "qos": "qos",
    "race": "races", "races": "races", "type": "types",
    "container": "files", "export": "files", "file": "files", "output": "files", "send": "files",
    "snapshot": "files", "venv": "files",
    "directory": "folders", "pull": "folders", "to": "folders",
    "accept drain node": "nodes", "sandbox fault node": "nodes", "accept run resume": "races",
    "forward words": "races", "run words": "commands",
    "sandbox down name": "sandboxes", "sandbox fault name": "sandboxes",
    "sandbox load name": "sandboxes", "sandbox status name": "sandboxes",
    "sandbox up name": "sandboxes",
}  # fmt: skip
"""What a parameter's values are, by its name in Python, or with its command before that."""

_FILE: Final = "commands.json"
_LARGEST: Final = 4 << 20


def command_table() -> dict[str, Any]:
    """Return the kept table where it is of this rv, else make it and keep it."""
    import platformdirs

    folder, stamp = platformdirs.user_cache_path("rv"), _stamp()
    with suppress(OSError, ValueError, KeyError, TypeError):
        if is_own(folder):
            kept = json.loads(read_regular(folder / _FILE, _LARGEST))
            if kept["stamp"] == stamp:
                return dict(kept["commands"])
    commands = make_table()
    with suppress(OSError):
        make_private(folder)
        if is_own(folder):
            text = json.dumps({"stamp": stamp, "commands": commands})
            write_atomically(folder / _FILE, text, mode=0o600)
    return commands


def make_table() -> dict[str, Any]:
    """Return each command's subcommands, options and arguments, by its words after `rv`."""
    from rv.cli.command_tree import walk

    return {words: _entry(words, command, context) for words, command, context in walk()}


def _entry(words: str, command: Any, context: Any) -> dict[str, Any]:
    from rv.cli.help import summary

    parameters = command.get_params(context)
    below = getattr(command, "commands", {})
    return {
        "commands": [[name, summary(each)] for name, each in below.items()],
        "options": [
            _option(words, each, context)
            for each in parameters
            if each.param_type_name == "option" and not each.hidden
        ],
        "arguments": [
            {**_values(words, each, context), "many": each.nargs == -1}
            for each in parameters
            if each.param_type_name == "argument"
        ],
    }


def _option(words: str, option: Any, context: Any) -> dict[str, Any]:
    takes_value = not (getattr(option, "is_flag", False) or option.count)
    spelt = {"names": [*option.opts, *option.secondary_opts], "help": option.help or ""}
    return {**spelt, "takes_value": takes_value, **_values(words, option, context)}


def _values(words: str, parameter: Any, context: Any) -> dict[str, Any]:
    name = parameter.name
    choices = [item.value for item in parameter.shell_complete(context, "")]
    source = SOURCES.get(f"{words} {name}") or SOURCES.get(name, "")
    return {"choices": choices, "source": "" if choices else source}


def _stamp() -> list[Any]:
    """What changes when the commands may have: version, place, and the newest of their files."""
    folder = Path(__file__).parent
    try:
        with os.scandir(folder) as entries:
            newest = max(each.stat().st_mtime_ns for each in entries if each.name.endswith(".py"))
    except (OSError, ValueError):
        newest = 0
    return [__version__, str(folder), newest]
