"""What `--help` shows: options in groups, the usual ones first, and examples at the end."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from rv.ui import console

MOST: Final = 12
"""How many options a command shows before `--help-all`, itself and `--help` among them."""

FIRST: Final = (
    "help", "help_all", "profile", "inject", "nodes", "sets", "array", "most", "run", "gpu", "time",
    "type", "dry_run", "detach", "partition", "account", "vram", "cluster",
)  # fmt: skip
"""Of these, in this order, a command with more than `MOST` options shows those that have room."""

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Tasks": ("sets", "array", "most"),
    "Tests": (
        "profile", "inject", "dcgm", "strict", "skip_exit_code", "verbose", "nodes", "state",
        "pairs", "resume", "max_jobs", "avoid_days",
    ),
    "GPUs": (
        "gpu", "type", "vram", "mig", "cpus", "mem", "single_node", "multi_node", "layouts",
        "strict_gpu", "allow_busy_gpus",
    ),
    "Time": (
        "time", "work", "objective", "min_time", "checkpoint", "checkpoint_buffer",
        "checkpoint_signal", "switch",
    ),
    "Where": ("cluster", "snapshot", "preemptible", "power_up", "no_avoid"),
    "Race": (
        "dry_run", "detach", "name", "fanout", "max_submissions", "widen_after", "wait_timeout",
        "max_cost", "retry", "patience",
    ),
    "What it runs in": (
        "run", "jupyter", "modules", "venv", "conda", "container",
        "container_mounts", "env", "setup", "send", "no_sync",
    ),
    "Slurm": ("partition", "account", "qos", "constraint", "exclude", "sbatch"),
    "Output": ("notify", "output", "json", "help", "help_all"),
}  # fmt: skip
"""The groups of the options of such a command, by their names in Python, in order."""

SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Race for GPUs": ("up", "run", "sweep", "ps", "logs", "wait", "rerun", "stop"),
    "Work beside a race": ("attach", "gpu", "forward", "ssh-config", "sync", "exec"),
    "Look at the cluster": ("status", "cost", "explain", "snapshot"),
    "Set up": ("init", "config", "env", "doctor", "completion"),
    "Test": ("accept", "sandbox"),
}
"""The commands of `rv --help`, by what they are for."""

_SHOWS_ALL: Final = "rv.shows_all"
_COLUMN: Final = 26
_EXAMPLE_COLUMN: Final = 44

Row = tuple[str, str]


def show_all(context: typer.Context, wanted: bool) -> None:  # noqa: FBT001 - typer's callback form
    """Answer `--help-all`."""
    if wanted:
        context.meta[_SHOWS_ALL] = True
        console.answer(context.get_help())
        raise typer.Exit


def parameter_rows(command: Any, context: Any, kind: str) -> dict[str, Row]:
    """Return how each parameter of a kind is spelt and what it does, by its name in Python.

    `kind` is "option" or "argument"; of an argument the type, which says nothing, is left out.
    """
    rows = {}
    for parameter in command.get_params(context):
        row = parameter.get_help_record(context)
        if row and parameter.param_type_name == kind:
            spelt = row[0].partition(" <")[0] if kind == "argument" else row[0]
            rows[str(parameter.name)] = (spelt, row[1])
    return rows


def grouped(options: Mapping[str, Row]) -> dict[str, list[Row]]:
    """Part options into groups, empty ones left out; `Options` has those of few, or of none."""
    if len(options) <= MOST:
        return {"Options": list(options.values())}
    groups = {title: _chosen(options, names) for title, names in GROUPS.items()}
    groups["Options"] = _chosen(options, [name for name in options if name not in _names(GROUPS)])
    return {title: rows for title, rows in groups.items() if rows}


def _chosen(options: Mapping[str, Row], names: Iterable[str]) -> list[Row]:
    return [options[name] for name in names if name in options]


def summary(command: Any) -> str:
    """Return the first sentence of a command's help, whole."""
    first = (command.help or "").split("\n\n")[0]
    sentence, end, _ = " ".join(first.split()).partition(". ")
    return sentence + end.rstrip()


def _write_parameters(command: Any, context: Any, formatter: Any) -> None:
    arguments = parameter_rows(command, context, "argument")
    options = parameter_rows(command, context, "option")
    is_short = len(options) > MOST and not context.meta.get(_SHOWS_ALL)
    shown = usual(options) if is_short else options
    groups = _only(grouped(options), shown.values())
    _write_rows({"Arguments": list(arguments.values()), **groups}, formatter)
    if is_short:
        more = len(options) - len(shown)
        formatter.write_paragraph()
        formatter.write_text(f"{more} more options: {context.command_path} --help-all")


def usual(options: Mapping[str, Row]) -> dict[str, Row]:
    """Return the options that are shown first, in their own order."""
    first = [name for name in FIRST if name in options][:MOST]
    return {name: row for name, row in options.items() if name in first}


def _only(groups: Mapping[str, list[Row]], shown: Iterable[Row]) -> dict[str, list[Row]]:
    chosen = list(shown)
    return {title: [row for row in rows if row in chosen] for title, rows in groups.items()}


def _write_rows(groups: Mapping[str, Sequence[Row]], formatter: Any) -> None:
    """Write groups of definitions, in columns of one width."""
    spelt = [row[0] for rows in groups.values() for row in rows]
    width = max((len(each) for each in spelt if len(each) <= _COLUMN), default=0)
    for title, rows in groups.items():
        if rows:
            with formatter.section(title):
                padded = [(name.ljust(width), text) for name, text in rows]
                formatter.write_dl(padded, col_max=width)


def _write_examples(context: Any, formatter: Any) -> None:
    from rv.cli.examples import EXAMPLES  # only help needs them

    examples = EXAMPLES.get(context.command_path.partition(" ")[2], ())
    if examples:
        with formatter.section("Examples"):
            formatter.write_dl(examples, col_max=_EXAMPLE_COLUMN)


def _with_our_printer(option: Any) -> Any:
    """Let `--help` be answered as all else is: also where the output cannot be written."""
    if option is not None:
        option.callback = _show_help
    return option


def _show_help(context: Any, _option: Any, wanted: bool) -> None:  # noqa: FBT001 - typer's form
    if wanted:
        console.answer(context.get_help())
        raise typer.Exit


class HelpCommand(TyperCommand):
    """A command whose help has groups and examples."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return `--help`."""
        return _with_our_printer(super().get_help_option(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options: of many the first, and how to see the others."""
        _write_parameters(self, ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples."""
        _write_examples(ctx, formatter)


class HelpGroup(TyperGroup):
    """A command with commands of its own, whose summaries are shown whole, and examples."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return `--help`."""
        return _with_our_printer(super().get_help_option(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, and the commands in their sections."""
        _write_parameters(self, ctx, formatter)
        rows = {name: (name, summary(self.get_command(ctx, name))) for name in self.commands}
        sections = SECTIONS if rows.keys() <= _names(SECTIONS) else {"Commands": tuple(rows)}
        _write_rows(
            {title: [rows[name] for name in names] for title, names in sections.items()}, formatter
        )

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples."""
        _write_examples(ctx, formatter)


def _names(sections: Mapping[str, Sequence[str]]) -> set[str]:
    return {name for names in sections.values() for name in names}
