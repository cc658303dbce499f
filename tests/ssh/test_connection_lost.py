"""A connection that is lost inside a command: one line, what to type next, and nothing half done."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ssh.conftest import Laptop
from tests.ssh.proxy import Proxy
from tests.ssh.test_launch import eventually, races
from tests.ssh.test_sync import git

PutBehind = Callable[[Callable[[int, str], str]], None]


@pytest.fixture(params=["openssh", "paramiko"])
def away(request: pytest.FixtureRequest, laptop: Laptop) -> Laptop:
    """The laptop, by each of the ways to connect."""
    return replace(laptop, ssh=request.param)


@pytest.fixture
def put_behind(laptop: Laptop) -> Iterator[PutBehind]:
    """Let the laptop connect through a proxy that cuts."""
    made: list[Proxy] = []

    def put(cuts: Callable[[int, str], str]) -> None:
        made.append(Proxy([laptop.server.port], cuts=cuts))
        alias = f"HostKeyAlias [127.0.0.1]:{laptop.server.port}"
        laptop.server.configure_client(f"Port {made[-1].port}", alias)

    yield put
    for proxy in made:
        proxy.close()


def test_a_command_beside_a_race(away: Laptop) -> None:
    """Its code is not known."""
    assert away.rv("run", "-d", "--gpu", "1", "--time", "10m", "exec sleep 600").returncode == 0
    eventually(lambda: races(away)[0]["state"] == "RUNNING")
    begun = away.home / "begun"
    with away.start("attach", "--", "bash", "-c", f"touch {begun}; exec sleep 600") as process:
        eventually(begun.exists)
        away.server.cut()
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (125, "")
    assert err.startswith("error[unreachable]: "), err
    assert "hint: the same command again" in err
    assert away.rv("stop").returncode == 0


def test_code_that_is_sent(away: Laptop, put_behind: PutBehind) -> None:
    """Nothing of it is used, and the same command sends it."""
    project = away.home / "project"
    project.mkdir()
    git(project, "init", "-q")
    (project / "large").write_bytes(os.urandom(8 << 20))
    put_behind(lambda number, way: "before" if (way, number) == ("to", 90) else "")
    lost = away.rv("sync", "push", folder=project)
    assert lost.returncode == 125, lost.stderr
    last = lost.stderr[lost.stderr.index("error[") :]
    assert last.startswith("error[unreachable]: "), last
    assert "hint: " in last
    assert "RV_RACE_ROOT" not in last
    assert away.rv("sync", "push", folder=project).returncode == 0
    store = Path(away.home.parent / "away" / ".local/state/rv/races")
    eventually(lambda: len(list(store.glob(".code-*/*/*/files/large"))) == 1)
