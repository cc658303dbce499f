"""`python -m rv` and the `rv` command."""

import gc
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

# `rv.errors` has the same number; importing it could be what Ctrl-C interrupts.
_INTERRUPTED: Final = 130


# Python's own 700 would walk the 100,000 values of a large cluster over and over: a fifth of the
# time of planning, in which nothing is found that could be freed.
COLLECT_AFTER: Final = 20_000


def main() -> NoReturn:
    """Run the command line and exit."""
    gc.set_threshold(COLLECT_AFTER)
    try:
        _open_closed_streams()
        _run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    finally:
        gc.freeze()  # the end comes sooner where Python looks for no garbage in what is loaded
        # Python remembers a Ctrl-C inside the exec() by which data classes are made, also one that
        # was handled, and `python -m rv` would end by SIGINT for it; another exec() ends that.
        exec("")  # noqa: S102


def _open_closed_streams() -> None:
    """Have each standard stream lead somewhere; a file of rv's could get the number of one."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _run(arguments: Sequence[str]) -> NoReturn:
    if arguments[:1] == ["__complete"]:  # by a shell's completion, which waits for it
        from rv.cli.complete import answer

        sys.exit(answer(arguments[1:]))
    if not arguments:
        from rv.cli.home import show

        sys.exit(show())
    if arguments[0] in ("up", "run", "sweep", "status", "ps"):
        from rv.cli.early import ask_early  # before the rest, whose import takes as long

        ask_early(arguments)
    from rv.cli import app

    app.main(list(arguments))


if __name__ == "__main__":
    main()
