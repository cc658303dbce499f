"""The options of `rv accept run` and `rv accept sweep`, besides those of any request."""

from typing import Annotated

import typer

from rv.accept.payload_command import Profile

ProfileOption = Annotated[Profile, typer.Option("--profile", help="How thorough.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="All ranks speak, and errors have a traceback.")
]
DcgmOption = Annotated[
    int,
    typer.Option("--dcgm", min=0, max=3, metavar="1|2|3", help="Run dcgmi diag -r N before check."),
]
StrictOption = Annotated[bool, typer.Option("--strict", help="A warning is a failure: exit 1.")]
InjectOption = Annotated[
    list[str] | None,
    typer.Option("--inject", metavar="FAULT", help="Make a fault, to see the payloads find it."),
]
NodesOption = Annotated[
    str, typer.Option("--nodes", metavar="NODES", help="Only these: a1,b[2-4].")
]
StateOption = Annotated[
    str, typer.Option(metavar="STATE,…", help="Only nodes in such a state: idle, mixed.")
]
PairsOption = Annotated[
    bool, typer.Option("--pairs", help="All-reduce on all pairs of the nodes: which link is slow?")
]
JobsOption = Annotated[
    int, typer.Option(min=1, max=256, metavar="N", help="Jobs in the queue at once.")
]
DaysOption = Annotated[
    int, typer.Option(min=0, metavar="N", help="Leave nodes that fail out for so long.")
]


def _skip_code(text: str | int) -> int:
    if str(text) not in ("0", "77"):
        raise typer.BadParameter(f"{text!r} is neither 0 nor 77")
    return int(text)


SkipOption = Annotated[
    int,
    typer.Option(
        "--skip-exit-code",
        metavar="0|77",
        parser=_skip_code,
        help="The code where all was skipped.",
    ),
]
