"""A script that was cut off on the login node has said nothing: what it looks for may be there."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rv.api.handle import Handle
from rv.errors import ErrorKind, RvError
from rv.models.code import Code
from rv.models.race import Race
from rv.models.request import Request
from rv.transport import LOST, ScriptResult
from rv.workflow.command_line import KnownFiles, from_line
from rv.workflow.rerun import recorded_launch
from tests.unit.race.test_directory import race


class Cut:
    """A login node whose files can be read, and on which a script ends with such a code."""

    def __init__(self, code: int) -> None:
        self._code = code

    def run(self, script: str, *, timeout_s: float) -> ScriptResult:
        """Answer."""
        return ScriptResult(
            returncode=self._code, stdout="", stderr="", timed_out=self._code == 124
        )

    def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes:
        """Read a file."""
        return b""


@pytest.fixture
def sent() -> Race:
    """A race whose code was sent."""
    command = from_line("true", KnownFiles(is_file=lambda _name: False))
    request = Request(command=command)
    return replace(race(), request=request, workdir="/w", code=Code(project="p", tree="t"))


CODES = [(124, "took too long"), (137, "was killed"), (LOST, "connection was lost")]


@pytest.mark.parametrize(("code", "why"), CODES)
def test_code_is_not_called_gone(sent: Race, code: int, why: str) -> None:
    """It may be kept, and the same command again finds it."""
    transport: Any = Cut(code)
    with pytest.raises(RvError, match=why) as caught:
        recorded_launch(sent, transport)
    assert caught.value.kind is ErrorKind.UNREACHABLE


@pytest.mark.parametrize(("code", "why"), CODES)
def test_a_file_of_a_race_is_not_called_missing(sent: Race, code: int, why: str) -> None:
    """A function is not said to have left no result."""
    record, cluster = (SimpleNamespace(**fields) for fields in (
        {"directory": "/r/a", "race_id": "a"}, {"transport": Cut(code), "login": None}
    ))  # fmt: skip
    handle = Handle(record, cluster, "")  # type: ignore[arg-type]
    with pytest.raises(RvError, match=why) as caught:
        handle.read_own("result")
    assert caught.value.kind is ErrorKind.UNREACHABLE
