"""From a laptop: the GPUs of a race, while it runs and at its end."""

import json
from collections.abc import Iterator

import pytest

from rv import sandbox
from tests.ssh.conftest import Laptop
from tests.ssh.test_launch import break_once, eventually, races


@pytest.fixture
def busy(small: sandbox.Sandbox) -> Iterator[None]:
    """Every GPU of the sandbox is in use, while the test lasts."""
    folders = list((small.directory / "nodes").iterdir())
    for folder in folders:
        lines = [f"{index}|25|2048|90.5|41\n" for index in range(8)]
        (folder / "use").write_text("".join(lines))
    yield
    for folder in folders:
        (folder / "use").unlink()


@pytest.mark.usefixtures("busy")
def test_gpus_are_seen_from_a_laptop(laptop: Laptop) -> None:
    """Now, in a race's last lines, and afterwards; a connection that breaks is made anew."""
    client = laptop.start(
        "run", "--gpu", "1", "--time", "5m", "--allow-busy-gpus",
        "until [ -e go ]; do sleep 0.2; done",
    )  # fmt: skip
    eventually(lambda: races(laptop) and races(laptop)[0]["state"] == "RUNNING")
    (row,) = json.loads(laptop.rv("gpu", "--json").stdout)["gpus"]
    assert (row["utilization"], row["memory_mib"], row["processes"]) == (25, 2048, [])
    directory = (
        laptop.home.parent / "away" / ".local/state/rv/races" / str(races(laptop)[0]["race"])
    )
    eventually(lambda: list(directory.glob("gpus/[0-9]*")))
    laptop.server.cut()
    (directory.parents[4] / "go").touch()
    _, err = client.communicate(timeout=60)
    assert client.returncode == 0, err
    assert "GPU use 25 %, 2 of " in err
    (measured,) = json.loads(laptop.rv("gpu", "--json").stdout)["measured"]
    assert (measured["node"], measured["peak_mib"]) == (row["node"], 2048)
    assert json.loads(laptop.rv("ps", "--json").stdout)["races"][0]["gpu_use"]["peak_mib"] == 2048
    assert "has no node 1" in laptop.rv("gpu", "--node", "1").stderr


def test_a_connection_that_breaks_while_looking(laptop: Laptop) -> None:
    """It is asked again: a look changes nothing."""
    assert laptop.rv("run", "-d", "--gpu", "1", "--time", "5m", "exec sleep 600").returncode == 0
    eventually(lambda: races(laptop)[0]["state"] == "RUNNING")
    break_once(laptop, "srun", ["cut", "srun"])
    done = laptop.rv("gpu", "--json")
    assert done.returncode == 0, done.stdout
    assert (laptop.home.parent / "away" / "cut").exists()
    assert len(json.loads(done.stdout)["gpus"]) == 1
    assert laptop.rv("stop").returncode == 0
