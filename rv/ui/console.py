"""Print: the answer goes to stdout, the talk to stderr, errors as one line with a hint."""

import json
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from rv.errors import RvError
from rv.slurm.text import printable
from rv.ui.tables import Part, Table


def say(text: str) -> None:
    """Talk to the user, on stderr; nothing in the text can move the cursor."""
    _write(sys.stderr, _printable_lines(text) + "\n")


def notice(text: str) -> None:
    """Say a sentence: one line, whatever it quotes."""
    say(printable(text))


def answer(*parts: Part) -> None:
    """Give the answer, on stdout, its parts with an empty line between them.

    On a terminal the tables fit its width.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    _write(sys.stdout, "\n\n".join(_shown(part, width) for part in parts) + "\n")


def _shown(part: Part, width: int) -> str:
    if isinstance(part, Table):
        return part.on_terminal(width) if width else str(part)
    return _printable_lines(part)


def _printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))


def emit_json(value: Mapping[str, Any]) -> None:
    """Give the answer as one JSON object, on stdout."""
    _write(sys.stdout, json.dumps(value, indent=2, ensure_ascii=True) + "\n")


def error(failure: RvError) -> None:
    """Show a failure as `error[kind]: …` and its hint."""
    notice(f"error[{failure.kind}]: {' '.join(failure.message.split())}")
    if failure.hint:
        notice(f"  hint: {failure.hint}")


def error_json(failure: RvError) -> None:
    """Show a failure as JSON, for programs."""
    emit_json({"error": {"kind": failure.kind, "message": failure.message, "hint": failure.hint}})


def raw(data: bytes, *, is_error: bool) -> None:
    """Pass the user's own program's output through as it is."""
    stream = sys.stderr if is_error else sys.stdout
    stream.flush()
    try:
        stream.buffer.write(data)
        stream.buffer.flush()
    except BrokenPipeError:
        _detach(stream)


def _write(stream: Any, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, errors="replace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        _detach(stream)


def _detach(stream: Any) -> None:
    """Whoever read our output is gone: the rest goes nowhere, without a traceback at exit."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
