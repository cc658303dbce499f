"""How an option is declared, for the command line, files and Python."""

from typing import Any


class Option:
    """An option: its spellings where they are not its name, and typer's settings for it."""

    def __init__(self, *names: str, **settings: Any) -> None:
        self.names = names
        self.settings = settings
