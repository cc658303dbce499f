"""A plain line is read without typer, to the values that typer gives; what is not is typer's."""

import importlib
import inspect
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.main import get_command

from rv.cli.app import COMMANDS
from rv.cli.parameters import CommandApp, Declared
from rv.cli.plain_line import plain_call
from rv.cli.typer_commands import typer_app

ROOT = Path(__file__).parents[3]
READ_PLAINLY = ["cost", "explain", "ps", "run", "snapshot", "status", "stop", "up"]
WORDS = [
    "--all", "-a", "--watch", "--json", "--cluster", "--cluster=lab", "lab", "-g", "--gpu",
    "--gpu=2", "2", "-g2", "a100:2", "--type", "a100,h200", "--min-time", "1h", "--dry-run", "-d",
    "-dr", "--run", "hostname", "--cpus", "0", "-1", "--max-cost", "1.5", "1e3", "nan", "--fanout",
    "each", "Each", "--checkpoint-signal", "USR1", "--env", "A=1", "--env=B", "--setup", "x y",
    "--no-such", "--jso", "--help", "-h", "--help-all", "--", "-", "", "--retry", "--notify",
    "é", "\udcff", "python", "train.py", "--max-submissions", "0012", "1_0", " 3",
]  # fmt: skip


def declared(name: str) -> Declared:
    """The command of that name."""
    app = importlib.import_module(COMMANDS[name][0]).app
    assert isinstance(app, CommandApp)
    return app.commands[name]


def calls(name: str, words: list[str]) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """What the plain reader calls a command with, and what typer does; None: it does not."""
    command = declared(name)
    seen: list[dict[str, Any]] = []

    def keep(**values: Any) -> None:
        seen.append(values)

    keep.__signature__ = inspect.signature(command.function)  # type: ignore[attr-defined]
    app = CommandApp()
    app.commands[name] = Declared(function=keep, split=command.split)
    plain = plain_call([name, *words], app)
    if plain:
        plain()
    by_plain = seen.pop() if seen else None
    try:
        get_command(typer_app(app))(words, prog_name="rv", standalone_mode=False)
    except Exception:
        return by_plain, None
    return by_plain, seen.pop() if seen else None


@pytest.mark.parametrize("name", READ_PLAINLY)
@settings(max_examples=150)
@given(words=st.lists(st.sampled_from(WORDS), max_size=6))
def test_both_readers_agree(name: str, words: list[str]) -> None:
    """Wherever the plain reader makes a call, typer makes the same one."""
    by_plain, by_typer = calls(name, words)
    assert by_plain is None or by_plain == by_typer


@pytest.mark.parametrize(
    "line",
    [
        "ps", "ps -a --json", "ps --cluster lab", "ps --cluster=lab", "stop a b", "status -w",
        "up --gpu 4 --dry-run", "run -d --gpu 1 --time 1h sleep 1", "run 'a b' -g 1",
        "run --env A=1 --env B -- python x.py --flag", "up -t a100 --max-cost 1.5 --fanout each",
        "explain k3f9", "cost --gpu 2 --cpus 4", "snapshot",
    ],
)  # fmt: skip
def test_usual_lines_are_plain(line: str) -> None:
    """The reader takes them itself, or it would be of no use."""
    name, *words = shlex.split(line)
    by_plain, by_typer = calls(name, words)
    assert by_plain is not None
    assert by_plain == by_typer


@pytest.mark.parametrize("line", [["ps"], ["up", "--gpu", "1", "--dry-run"], ["run", "true"]])
def test_a_plain_line_loads_neither_typer_nor_pydantic(line: list[str], tmp_path: Path) -> None:
    """Here there is no cluster: what a plan needs is not loaded."""
    code = (
        "import sys\n"
        "from rv.cli.app import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(sorted({'typer', 'pydantic', 'rich'} & set(sys.modules)))"
    )
    env = {"PATH": "/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    env["RV_CLUSTER"] = "sandbox:none"
    done = subprocess.run(
        [sys.executable, "-c", code, *line], env=env, cwd=tmp_path, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"
    assert "error[sandbox]: sandbox none is not up" in done.stderr
