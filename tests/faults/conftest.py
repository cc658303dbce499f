"""Clusters for the fault tests, and a world of its own for each of them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from rv import sandbox
from tests.faults.terminal import Terminal
from tests.faults.world import TINY, World
from tests.slurm.conftest import fresh_sandbox, sandbox_home

__all__ = ["fresh_sandbox", "sandbox_home"]

MakeWorld = Callable[..., World]


def _box(home: Path, name: str, **changes: object) -> sandbox.Sandbox:
    path = home / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**TINY, **changes}), encoding="utf-8")
    return sandbox.up(name, path)


@pytest.fixture(scope="session")
def tiny(sandbox_home: Path) -> sandbox.Sandbox:
    """Remembers its jobs for long, and gives up on messages soon."""
    return _box(sandbox_home, "tiny", min_job_age=900, slurm_conf={"MessageTimeout": "3"})


@pytest.fixture(scope="session")
def forgetful(sandbox_home: Path) -> sandbox.Sandbox:
    """Forgets its jobs after two seconds."""
    return _box(sandbox_home, "forgetful", min_job_age=2)


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    """Make worlds: `make_world(box)`."""
    made: list[World] = []

    def make(box: sandbox.Sandbox, folder: str = "w") -> World:
        made.append(World(box, tmp_path / folder))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: MakeWorld, tiny: sandbox.Sandbox) -> World:
    """A world on `tiny`."""
    return make_world(tiny)


@pytest.fixture
def terminals(world: World) -> Iterator[list[Terminal]]:
    """Those that a test opens; they are closed with it."""
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()
