"""Every command of rv that a document or a message names has the options that stand there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from rv.cli.app import COMMANDS
from rv.cli.typer_commands import build

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = sorted(path for path in (ROOT / "rv").rglob("*.py") if "_bundle" not in path.parts)
CODE = re.compile(r"`([^`]*)`")
LINE = re.compile(rf"\brv (?:{'|'.join(COMMANDS)})\b[^;|\n]*")
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


def of_document(text: str) -> Iterator[str]:
    """The lines of its code blocks and what stands in backticks."""
    for number, part in enumerate(text.split("```")):
        yield from part.replace("\\\n", " ").splitlines() if number % 2 else CODE.findall(part)


def of_module(text: str) -> Iterator[str]:
    """Its texts, of which those in f-strings have gaps."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from node.value.splitlines()


def missing(line: str) -> list[str]:
    """The options in a line of rv that its command does not have; what it runs has its own."""
    own = re.split(r"[\"'()]| -- ", line)[0]
    words = own.split()[1:]
    command = get_command(build())
    context = command.make_context("rv", [], resilient_parsing=True)
    while words and words[0] in getattr(command, "commands", {}):
        _, command, words = command.resolve_command(context, words)  # type: ignore[attr-defined]
    has = {"-h", "--help"}
    for parameter in command.params:
        has |= {*parameter.opts, *parameter.secondary_opts}
    return sorted(set(OPTION.findall(" ".join(words))) - has)


def lines(path: Path) -> list[str]:
    """The lines of rv that a file names."""
    read = of_document if path.suffix == ".md" else of_module
    text = path.read_text(encoding="utf-8")
    return [line for part in read(text) for line in LINE.findall(part)]


@pytest.mark.parametrize("path", [*DOCUMENTS, *MODULES], ids=lambda path: path.name)
def test_the_options_that_are_named_exist(path: Path) -> None:
    assert {line: missing(line) for line in lines(path) if missing(line)} == {}


def test_an_option_that_is_not_there_is_seen() -> None:
    """Of a command and of one below it; what the command runs is none of rv's business."""
    assert missing("rv ps --verbose") == ["--verbose"]
    assert missing("rv accept compare --verbose") == ["--verbose"]
    assert missing("rv accept run --gpu 2 --verbose") == []
    assert missing('rv run "check.py --verbose" --gpu 1') == []
    assert sum(len(lines(path)) for path in DOCUMENTS) > 50
    assert sum(len(lines(path)) for path in MODULES) > 20


def test_what_results_advise_is_an_option_of_the_command_that_makes_them() -> None:
    """Flags that the actions of fault codes name, as `rv accept run` or a payload has them."""
    from rv.payloads.contract.codes import CODES

    assert {code for code, it in CODES.items() if "--verbose" in it.action} == {"could_not_run"}
    assert missing("rv accept run --verbose") == []
