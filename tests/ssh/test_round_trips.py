"""How often a command waits for the login node, counted at a proxy that delays what it passes on."""

import json
import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from rv import sandbox
from tests.slurm.conftest import campus
from tests.ssh.conftest import Laptop
from tests.ssh.proxy import Proxy
from tests.ssh.server import HOST

__all__ = ["campus"]

DELAY_S = 0.2
"""Each way: on a busy machine too, what is sent without waiting goes before an answer comes."""


@pytest.fixture
def proxy(laptop: Laptop) -> Iterator[Proxy]:
    """Delay what goes between the laptop and the login node."""
    made = Proxy([laptop.server.port], delay_s=DELAY_S)
    alias = f"HostKeyAlias [127.0.0.1]:{laptop.server.port}"
    laptop.server.configure_client(f"Port {made.port}", alias)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def unbuffered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have rv write each line when it has it."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")


def trips_of(process: "subprocess.Popen[str]", proxy: Proxy, before: int) -> int:
    """Count up to the last output: closing what was opened keeps nobody waiting."""
    assert process.stdout
    trips = 0
    with process:
        while os.read(process.stdout.fileno(), 65536):
            trips = proxy.trips - before
    assert process.returncode == 0
    return trips


def quiet(proxy: Proxy) -> int:
    """Wait until what came before is over, and return the count."""
    time.sleep(4 * DELAY_S)
    return proxy.trips


def trips(laptop: Laptop, proxy: Proxy, *words: str) -> int:
    """Run rv, and count."""
    before = quiet(proxy)
    return trips_of(laptop.start(*words, stderr=subprocess.STDOUT), proxy, before)


def ssh_trips(laptop: Laptop, proxy: Proxy, command: str) -> int:
    """Count those of ssh itself, over the connection that rv shares."""
    ssh = [str(laptop.server.path / "bin" / "ssh"), "-o", f"ControlPath={laptop.home}/rv/%C"]
    before = quiet(proxy)
    process = subprocess.Popen([*ssh, HOST, command], stdout=subprocess.PIPE, text=True)
    return trips_of(process, proxy, before)


def test_listing_races_takes_as_long_as_squeue(laptop: Laptop, proxy: Proxy) -> None:
    """Over the same connection: to open a session there, and to be answered."""
    for number in range(3):
        assert laptop.rv("run", "--time", "5m", f"echo {number}").returncode == 0
    assert trips(laptop, proxy, "ps") <= ssh_trips(laptop, proxy, "squeue")


def test_a_watch_looks_at_all_races_in_one_trip(laptop: Laptop, proxy: Proxy) -> None:
    """And again only when nine times as long as that took have passed."""
    waits = ("run", "-d", "--time", "5m", "--sbatch", "begin=now+1hour", "true")
    for _ in range(3):
        assert laptop.rv(*waits).returncode == 0
    with laptop.start("ps", "-w", stderr=subprocess.DEVNULL) as watch:
        assert watch.stdout
        lines = [watch.stdout.readline() for _ in range(3)]
        before, began_s = proxy.trips, time.monotonic()
        time.sleep(15)
        made, took_s = proxy.trips - before, time.monotonic() - began_s
        watch.stdout.close()
        assert watch.wait(30) == 0
    assert all(" PENDING: " in line for line in lines)
    assert 1 <= made <= took_s / (10 * 2 * DELAY_S) + 1
    assert laptop.rv("stop", "--all").returncode == 0


def test_twelve_jobs_are_submitted_in_three_trips(
    laptop: Laptop, proxy: Proxy, campus: sandbox.Sandbox
) -> None:
    """Beside those of the connection: to ask the cluster, to stage, and to submit."""
    profile = laptop.home.parent / "away" / ".bash_profile"
    profile.write_text(f"export SLURM_CONF={campus.slurm_conf}\n")
    assert laptop.rv("ps").returncode == 0  # the connection is there
    words = ("--gpu", "4", "--time", "5m", "--fanout", "each", "--layouts", "all")
    words += ("--sbatch", "begin=now+1hour")  # a race that is claimed meanwhile is sent no more
    (laptop.home / "none.py").touch()
    connect = ssh_trips(laptop, proxy, "echo")
    assert trips(laptop, proxy, "run", "-d", *words, "torchrun none.py") <= connect + 3
    jobs = json.loads(laptop.rv("ps", "--json").stdout)["races"][0]["jobs"]
    assert len(jobs) == 12
    assert laptop.rv("stop").returncode == 0
