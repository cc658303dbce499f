"""The quoting of `#SBATCH` lines, read back from sbatch's own parser."""

import re
from pathlib import Path

import pytest

from rv.render import quote

NASTY = [
    "plain",
    "two words",
    "it's",
    'say "hi"',
    "back\\slash",
    "ends with \\",
    '\\"both\\"',
    "a # b",
    "#",
    "100%",
    "%j %u %%",
    "$HOME $(id) `id`",
    "; rm -rf /",
    "--time=1",
    "a=b,c",
    "é ü 日本 🙂",
    "  spaces around  ",
    "'",
    '"',
    "\\",
    "\\\\",
    "!*?[]{}~^&|<>",
]


@pytest.fixture
def held(on_small, slurm, tmp_path):
    """Submit a script held, give scontrol's record of it, and cancel it."""
    jobs = []

    def submit(directive: str) -> str:
        script = tmp_path / "job.sh"
        script.write_text(f"#!/bin/bash\n#SBATCH {directive}\n#SBATCH --mem=10M\ntrue\n", "utf-8")
        jobs.append(slurm(on_small, "sbatch", "-H", "--parsable", str(script)).strip())
        return slurm(on_small, "scontrol", "show", "job", jobs[-1])

    yield submit
    if jobs:
        slurm(on_small, "scancel", *jobs)


def value(record: str, key: str) -> str:
    """A field that runs to the end of its line."""
    found = re.search(rf"^   {key}=(.*)$", record, re.MULTILINE)
    assert found, record
    return found[1]


@pytest.mark.parametrize("text", NASTY)
def test_a_comment_comes_back_as_it_was(held, text):
    """Every character of it."""
    record = held(f"--comment={quote.directive(text)}")
    assert value(record, "Comment") == f"{text} "  # scontrol itself adds the last space


@pytest.mark.parametrize("text", NASTY)
def test_a_working_directory_comes_back_as_it_was(held, tmp_path: Path, text):
    """Every character of it."""
    folder = f"{tmp_path}/{text.replace('/', '_')}"
    assert value(held(f"--chdir={quote.directive(folder)}"), "WorkDir") == folder


def test_output_lands_where_it_was_sent(on_small, slurm, eventually, tmp_path: Path):
    """A percent sign in the path is doubled, because sbatch replaces %j and its like."""
    paths = [tmp_path / f"{text.replace('/', '_')}.log" for text in NASTY if "\\" not in text]
    for at, path in enumerate(paths):
        script = tmp_path / f"job{at}.sh"
        output = quote.directive(quote.path_pattern(str(path)))
        script.write_text(
            f"#!/bin/bash\n#SBATCH --output={output}\n#SBATCH --mem=10M\necho {at}\n", "utf-8"
        )
        slurm(on_small, "sbatch", str(script))
    eventually(lambda: not slurm(on_small, "squeue", "-h", "-t", "PD,R,CG"))
    written = {path.name: path.read_text("utf-8") for path in tmp_path.glob("*.log")}
    assert written == {path.name: f"{at}\n" for at, path in enumerate(paths)}
