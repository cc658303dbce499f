"""What `import rv` costs, and what it gives."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rv

HEAVY = {
    "paramiko",
    "torch",
    "jinja2",
    "rich",
    "pydantic",
    "typer",
    "cloudpickle",
    "yaml",
    "asyncio",
}
RACE = """
    cancel directory done exit_code follow id logs name result result_async state wait wait_async
"""
JOB = """
    awaitable cancel done exception future job_id num_tasks paths race result results state stderr
    stdout submission task task_id wait
"""
EXECUTOR = "batch map_array submit submit_array update_parameters"
USER = Path(__file__).with_name("users_program.py")


def loaded_by(code: str) -> set[str]:
    """Name the modules that a new process has loaded after a line of code."""
    line = f"import sys, json; {code}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_import_loads_nothing_heavy():
    """Nor anything else of rv."""
    modules = loaded_by("import rv; dir(rv); rv.__version__")
    assert not modules & HEAVY
    assert {name for name in modules if name.partition(".")[0] == "rv"} == {"rv"}


def test_what_would_be_heavy_is_seen():
    """The check can fail."""
    assert (
        loaded_by("import rv.cli.typer_commands") & HEAVY
        == {"typer"} | loaded_by("import typer") & HEAVY
    )


@pytest.mark.parametrize("name", ["plan", "launch", "Race", "Executor", "JobEnvironment"])
def test_a_name_loads_no_command_line(name):
    """A program that launches needs neither typer nor a terminal's library."""
    assert not loaded_by(f"import rv; rv.{name}") & (HEAVY - {"asyncio", "yaml"})


def test_every_public_name_is_there():
    """`__all__`, `dir` and the table of where they are say the same."""
    assert set(rv.__all__) == set(rv._WHERE)
    assert set(rv.__all__) <= set(dir(rv))
    for name in rv.__all__:
        assert getattr(rv, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'lunch'"):
        rv.lunch  # noqa: B018


@pytest.mark.parametrize(
    ("kind", "names"),
    [(rv.Race, RACE), (rv.Job, JOB), (rv.Executor, EXECUTOR)],
)
def test_a_class_shows_what_is_documented_and_no_more(kind, names):
    """Its page names each; what the parts of rv ask of each other lies elsewhere."""
    page = (Path(rv.__file__).parents[1] / "docs/python-api.md").read_text(encoding="utf-8")
    assert {name for name in dir(kind) if not name.startswith("_")} == set(names.split())
    assert [name for name in names.split() if not re.search(rf"\b{name}\b", page)] == []


def test_a_users_program_is_checked_by_mypy(tmp_path):
    """Strictly; and its slips are found."""
    text = USER.read_text(encoding="utf-8")
    checked = tmp_path / "program.py"
    checked.write_text(text, encoding="utf-8")
    argv = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(checked)]
    root = Path(rv.__file__).parents[1]
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    checked.write_text(text.replace("gpus=4", "gpus=4.5"), encoding="utf-8")
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True)
    assert "[arg-type]" in done.stdout
