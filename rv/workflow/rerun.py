"""What the record of a race holds for racing again: request, environment, directory and code."""

from collections.abc import Mapping
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.code import Code
from rv.models.race import Race
from rv.models.request import Command, Request
from rv.render.quote import shell
from rv.transport import Transport, require_end
from rv.workflow.jupyter import jupyter_command

_CALL: Final = "call/submitted.pkl"  # as rv.api.pickles has it, which stands above


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """A launch as its race directory recorded it; paths are the cluster's.

    `code` is what was sent for it, None where its command runs in `workdir`. `files` are what its
    command needs there: the call that an executor submitted.
    """

    request: Request
    command: Command
    environment: Mapping[str, str]
    workdir: str
    code: Code | None
    files: Mapping[str, bytes]


def recorded_launch(race: Race, transport: Transport) -> Recorded:
    """Read what a race was launched with.

    Raises `RvError(USAGE)` for a race that cannot be started again, such as a shell, and
    `RvError(STAGE)` where its environment or its code is not kept any more.
    """
    request, command = _recorded_request(race)
    data = transport.read(f"{race.directory}/environment")
    if data is None:
        raise RvError(
            ErrorKind.STAGE,
            f"the environment of race {race.race_id} is not kept any more",
            hint=_what_to_type(race),
        )
    if race.code:
        _require_code(race, race.code, transport)
    call = transport.read(f"{race.directory}/{_CALL}")
    return Recorded(
        request=request,
        command=command,
        environment=_variables(data),
        workdir=race.workdir,
        code=race.code,
        files={} if call is None else {_CALL: call},
    )


def _recorded_request(race: Race) -> tuple[Request, Command]:
    if race.is_shell:
        raise RvError(
            ErrorKind.USAGE, f"race {race.race_id} was a shell", hint="rv up opens another"
        )
    request = race.request
    if request is None or request.command is None or not race.workdir:
        raise RvError(
            ErrorKind.USAGE,
            f"an older rv did not write down all that race {race.race_id} was launched with",
            hint=_what_to_type(race),
        )
    if request.command.typed == jupyter_command().typed != request.command.line:
        raise RvError(
            ErrorKind.USAGE,
            f"race {race.race_id} ran Jupyter for a client that is gone",
            hint="rv up --jupyter starts another",
        )
    return request, request.command


def _what_to_type(race: Race) -> str:
    """Return the launch as a person would type it, as far as it is known."""
    gpus = max((entry.gpus for entry in race.entries), default=1)
    typed = race.request.command.typed if race.request and race.request.command else ""
    return f"rv run --gpu {gpus} {shell(typed or race.command)}"


def _require_code(race: Race, code: Code, transport: Transport) -> None:
    """Raise `RvError(STAGE)` where the tree is gone; mark it as used where it is there."""
    tree = shell(f"{code.store}/{code.tree}")
    done = transport.run(f"[ -d {tree}/files ] && touch -c -- {tree}", timeout_s=30)
    require_end(done, f"the code of race {race.race_id} cannot be looked for")
    if done.returncode:
        raise RvError(
            ErrorKind.STAGE,
            f"the code that was sent with race {race.race_id} ({code.version}) is no longer kept",
            hint=f"{_what_to_type(race)} sends what is here now",
        )


def _variables(data: bytes) -> dict[str, str]:
    pairs = data.decode("utf-8", "surrogateescape").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
