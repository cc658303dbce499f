"""From a laptop: variables of this machine in jobs there, and environments built there."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.test_secrets import arguments
from tests.slurm.test_environments import slow_sbatch
from tests.ssh.conftest import Laptop
from tests.ssh.test_launch import eventually

SHOW = 'python -c "import six; print(six.__version__)"; echo $VIRTUAL_ENV'


@pytest.fixture(params=["openssh", "paramiko"])
def by_each(request: pytest.FixtureRequest, laptop: Laptop) -> Laptop:
    """A laptop by each transport, and pip's settings of this machine on the login node."""
    settings = "".join(
        f"export {name}='{value}'\n" for name, value in os.environ.items() if name[:4] == "PIP_"
    )
    profile = laptop.home.parent / "away" / ".bash_profile"
    profile.write_text(profile.read_text() + settings)
    return Laptop(server=laptop.server, home=laptop.home, ssh=request.param)


@pytest.fixture
def project(laptop: Laptop) -> Path:
    """A folder on the laptop with a lock file; the cluster has none of it."""
    folder = laptop.home / "my project"
    folder.mkdir()
    (folder / "requirements.txt").write_text("six==1.17.0\n")
    return folder


def ready(laptop: Laptop) -> list[Path]:
    """The environments on the cluster."""
    races = laptop.home.parent / "away" / ".local" / "state" / "rv" / "races"
    return [path.parent for path in races.glob(".venvs-*/*/ready")]


def test_the_lock_file_here_is_built_there(by_each: Laptop, project: Path) -> None:
    """Once; the command runs in it, in the home there."""
    first = by_each.rv("run", "--time", "5m", "--venv", "auto", SHOW, folder=project)
    (home,) = ready(by_each)
    assert (first.returncode, first.stdout) == (0, f"1.17.0\n{home}/venv\n"), first.stderr
    assert f"venv {home.name[:6]} built in " in first.stderr
    second = by_each.rv("run", "--time", "5m", "--venv", "auto", SHOW, folder=project)
    assert second.stdout == first.stdout, second.stderr
    assert f"venv {home.name[:6]} is there" in second.stderr


def test_a_connection_that_breaks_while_it_is_built(by_each: Laptop, project: Path) -> None:
    """It is built in the end, and one is left."""
    client = by_each.start("run", "--time", "5m", "--venv", "auto", SHOW, folder=project)
    races = by_each.home.parent / "away" / ".local" / "state" / "rv" / "races"
    eventually(lambda: list(races.glob(".venvs-*/*/venv/bin/python")))
    by_each.server.cut()
    out, err = client.communicate(timeout=100)
    assert client.returncode == 0, err
    assert out.startswith("1.17.0\n")
    assert len(ready(by_each)) == 1
    sent = [path for path in races.glob(".venvs-*/.sent*") if path.is_dir()]
    assert sent == []


@dataclass(frozen=True, kw_only=True)
class WithVariable(Laptop):
    """A laptop with one more variable."""

    value: str

    @property
    def environment(self) -> dict[str, str]:
        """What rv is called with there."""
        return {**super().environment, "API_TOKEN": self.value}


def test_a_secret_of_the_laptop_reaches_the_job_and_no_argument(by_each: Laptop) -> None:
    """It goes as bytes over the connection, into a file of mode 0600."""
    secret = secrets.token_hex(24)
    mine = WithVariable(server=by_each.server, home=by_each.home, ssh=by_each.ssh, value=secret)
    slow_sbatch(by_each.home.parent / "away" / "bin")
    seen: set[bytes] = set()
    with arguments(seen):
        done = mine.rv("run", "--time", "5m", "--env", "API_TOKEN", "printf %s $API_TOKEN >mine")
    away = by_each.home.parent / "away"
    assert done.returncode == 0, done.stderr
    assert (away / "mine").read_text() == secret
    assert any(b"sbatch" in line for line in seen)
    assert not [line for line in seen if secret.encode() in line]
    assert secret not in done.stdout + done.stderr
    holding = [
        path for path in (away / ".local").rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    ]  # fmt: skip
    assert [path.name for path in holding] == ["environment"]
    assert holding[0].stat().st_mode & 0o777 == 0o600


def test_an_environment_of_the_cluster_is_looked_for_there(by_each: Laptop) -> None:
    """A path is the cluster's; from its home where it is relative."""
    done = by_each.rv("run", "--time", "5m", "--venv", "mine", "true")
    away = by_each.home.parent / "away"
    assert done.returncode == 125
    assert f"no virtual environment {away}/mine on the cluster" in done.stderr
