"""How a command declares what it takes, so that a plain command line is read without typer.

Importing typer, and the pydantic that it checks values with, takes longer than most commands do.
`rv.cli.plain_line` reads what is typed by these declarations; where anything about it is unusual,
or only help is wanted, `rv.cli.typer_commands` makes typer's own commands of the same ones.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeVar

from rv.dataclass import dataclass
from rv.models.option import Option

Command = TypeVar("Command", bound=Callable[..., None])


class Argument:
    """An argument of a command: typer's settings for it."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """What a command may ask about the line that was typed.

    `typed` names the parameters that stood on it; `is_argv`: its words are a program's arguments.
    """

    typed: frozenset[str]
    is_argv: bool = False


class SplitArguments(Protocol):
    """rv's own arguments, and the words of the command; `is_argv` where `--` came before them."""

    @property
    def options(self) -> tuple[str, ...]:
        """rv's own."""

    @property
    def words(self) -> tuple[str, ...]:
        """The command's."""

    @property
    def is_argv(self) -> bool:
        """Whether `--` came before the words."""


Split = Callable[[Sequence[str], Mapping[str, bool]], SplitArguments]
"""Parts rv's options from the words behind them, by the spellings of those that take a value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """A command: the function that runs it, and what parts its words from its options, if any."""

    function: Callable[..., None]
    split: Split | None = None


class CommandApp:
    """The commands of a module, by name; `rv.cli.app` finds them as its `app`."""

    def __init__(self) -> None:
        self.commands: dict[str, Declared] = {}

    def command(self, split: Split | None = None) -> Callable[[Command], Command]:
        """Add a command under its function's name."""

        def add(function: Command) -> Command:
            self.commands[function.__name__] = Declared(function=function, split=split)
            return function

        return add


ClusterOption = Annotated[
    str,
    Option(
        "--cluster",
        metavar="WHERE",
        help="A name of rv config, local, sandbox[:NAME], or USER@HOST.",
    ),
]
JsonOption = Annotated[bool, Option("--json", help="Answer in JSON.")]
