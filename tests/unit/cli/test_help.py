"""`--help` of every command: short, in groups, within 80 columns, and with examples that rv takes."""

import shlex

import pytest
import typer

from rv.cli.command_tree import walk
from rv.cli.examples import EXAMPLES
from rv.cli.help import GROUPS, MOST, SECTIONS, parameter_rows, usual

COMMANDS = {words: (command, context) for words, command, context in walk()}
LINES = [(words, line) for words, examples in EXAMPLES.items() for line, _ in examples]


def options_shown(text: str) -> list[str]:
    """The lines of a help that begin with an option."""
    return [line for line in text.splitlines() if line.startswith("  -")]


def parse(words: list[str]) -> None:
    """Read a command line as rv does, without running it."""
    _, command, context = next(walk())
    context = command.make_context("rv", words)
    while hasattr(context.command, "commands") and (
        rest := [*context._protected_args, *context.args]
    ):
        name, command, rest = context.command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("words", COMMANDS)
def test_help_is_short_and_ends_with_three_examples(words: str) -> None:
    """At most twelve options, each line at most 80 columns wide."""
    _, context = COMMANDS[words]
    text = context.get_help()
    assert len(options_shown(text)) <= MOST
    assert max(map(len, text.splitlines())) <= 80
    assert "<list[" not in text
    assert len(EXAMPLES[words]) == 3
    _, _, examples = text.partition("\nExamples:\n")
    assert all(line in examples for line, _ in EXAMPLES[words])


@pytest.mark.parametrize("words", ["up", "run", "sweep", "cost", "accept run", "accept sweep"])
def test_help_all_has_every_option_in_its_group(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And `--help` says that there are more."""
    command, context = COMMANDS[words]
    options = parameter_rows(command, context, "option")
    names = set(options)
    assert len(names) > MOST
    assert names <= {name for group in GROUPS.values() for name in group}
    assert (
        f"{len(names) - len(usual(options))} more options: rv {words} --help-all"
        in context.get_help()
    )
    with pytest.raises(typer.Exit):
        parse([*words.split(), "--help-all"])
    shown = capsys.readouterr().out
    assert len(options_shown(shown)) == len(names)
    assert "more options" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_sweeps_own_options_come_first() -> None:
    _, context = COMMANDS["sweep"]
    text = context.get_help()
    assert all(option in text for option in ("--set NAME", "--array", "--max", "--gpu", "--time"))


@pytest.mark.parametrize("line", [line for _, line in LINES])
def test_an_example_is_a_line_that_rv_takes(line: str) -> None:
    """Every option and argument in it is known."""
    words = shlex.split(line)
    assert words.pop(0) == "rv"
    redirections = [at for at, word in enumerate(words) if word in (">", ">>", "<")]
    parse(words[: min(redirections, default=len(words))])


def test_an_example_with_an_unknown_option_is_seen() -> None:
    """The check above can fail."""
    with pytest.raises(Exception, match="No such option"):
        parse(["ps", "--nonesuch"])


def test_every_command_is_in_a_section_of_the_help() -> None:
    """A new one is to be given a place there."""
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(words for words in COMMANDS if words and " " not in words)
