"""A race again: what its command needs in the race's directory goes with it, as often as one likes."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rv.api.pickles import SUBMITTED
from rv.errors import RvError
from rv.models.plan import Plan
from rv.models.race import Race
from rv.models.request import Command, Request
from rv.models.snapshot import ClusterConfig
from rv.models.sweep import Sweep
from rv.race.new_race import LaunchContext
from rv.race.stage import stage
from rv.transport.local import LocalTransport
from rv.workflow.rerun import recorded_launch
from rv.workflow.sweep import TASK_LIST
from rv.workflow.templates import templates
from tests.unit.race.test_directory import race
from tests.unit.render.test_golden import facts

REQUEST = Request(command=Command(line="python -m rv.api.call"))


@pytest.fixture
def transport() -> LocalTransport:
    """This machine's."""
    return LocalTransport(os.environ)


@pytest.fixture
def first(tmp_path: Path) -> Race:
    """A race with what its launch left."""
    (tmp_path / "first").mkdir(0o700)
    (tmp_path / "first" / "environment").write_bytes(b"A=b\0")
    return replace(race(directory=str(tmp_path / "first")), request=REQUEST, workdir="/w")


def again(name: str, race: Race, transport: LocalTransport, sweep: Sweep | None = None) -> Path:
    """Stage a race again, under another name."""
    recorded = recorded_launch(race, transport)
    directory = Path(race.directory).with_name(name)
    context = LaunchContext(
        cluster="slurm:",
        race_root=str(directory.parent),
        workdir=recorded.workdir,
        slurm_path="",
        environment=recorded.environment,
        config=ClusterConfig(),
        now_s=1.0,
        retry_of="first",
        files={TASK_LIST: b""} if sweep else recorded.files,
    )
    plan = Plan(strategies=(), excluded=(), submissions=(), waves=())
    script = facts(race_dir=str(directory), sweep=sweep)
    stage(plan, recorded.request, script, context, {}, templates(), transport)
    return directory


def test_a_submitted_call_goes_with_it(first: Race, transport: LocalTransport) -> None:
    """Twice too: a sweep alone is continued once."""
    call = Path(first.directory, SUBMITTED)
    call.parent.mkdir()
    call.write_bytes(b"the call")
    for name in ("second", "third"):
        copy = again(name, first, transport) / SUBMITTED
        assert copy.read_bytes() == b"the call"
        assert copy.stat().st_mode & 0o777 == 0o600


def test_a_command_needs_no_file(first: Race, transport: LocalTransport) -> None:
    """And gets none."""
    assert recorded_launch(first, transport).files == {}
    assert not (again("second", first, transport) / "call").exists()


def test_a_sweep_is_continued_once(first: Race, transport: LocalTransport) -> None:
    """Whoever comes second is told of the first."""
    again("second", first, transport, Sweep(tasks=1))
    with pytest.raises(RvError, match="as sweep second"):
        again("third", first, transport, Sweep(tasks=1))
