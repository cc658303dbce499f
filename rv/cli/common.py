"""Options that every command about races has."""

from typing import Annotated

import typer

ClusterOption = Annotated[str, typer.Option("--cluster", help="local, or sandbox[:NAME].")]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
