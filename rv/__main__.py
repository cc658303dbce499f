"""`python -m rv` and the `rv` command."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["up"], ["run"], ["status"]):
        from rv.cli.caller import start_fast  # before typer, whose import takes as long

        start_fast(arguments)
    from rv.cli import app

    app.main(arguments)


if __name__ == "__main__":
    main()
