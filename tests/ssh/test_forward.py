"""Ports of a race's node, from a laptop, over both transports."""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from rv import sandbox
from tests.ssh.conftest import Laptop
from tests.ssh.echo import Talk, all_echoed, echo_server, echoed, echoes
from tests.ssh.test_launch import eventually, races


@pytest.fixture(params=["openssh", "paramiko"])
def laptop(request: pytest.FixtureRequest, laptop: Laptop) -> Laptop:
    """Everything here is asked over each transport."""
    return replace(laptop, ssh=request.param)


@pytest.fixture
def steps(laptop: Laptop, small: sandbox.Sandbox) -> Callable[[], list[str]]:
    """The steps that run beside the race's own."""

    def running() -> list[str]:
        environment = {**os.environ, "SLURM_CONF": str(small.slurm_conf)}
        done = subprocess.run(
            ["squeue", "-h", "-s", "-o", "%i"],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return [step for step in done.stdout.split() if step.rpartition(".")[2].isdigit()]

    return running


@pytest.fixture
def race(laptop: Laptop) -> Iterator[str]:
    """The id of a race that runs until the test is over."""
    assert laptop.rv("run", "-d", "--gpu", "1", "--time", "10m", "exec sleep 600").returncode == 0
    eventually(lambda: races(laptop)[0]["state"] == "RUNNING")
    yield str(races(laptop)[0]["race"])
    laptop.rv("stop", "--all")


@pytest.fixture
def start(laptop: Laptop) -> Iterator[Callable[..., Talk]]:
    """Start `rv forward`; what still runs ends with the test."""
    started: list[Talk] = []

    def forward(*words: str) -> Talk:
        started.append(Talk(laptop.start("forward", *words)))
        return started[-1]

    yield forward
    for talk in started:
        talk.close()


def test_many_connections_whole_both_ways(
    laptop: Laptop, race: str, start: Callable[..., Talk], steps: Callable[[], list[str]]
) -> None:
    """Half-closed streams, 100 at once, 50 MB both ways; Ctrl-C ends the step too."""
    with echo_server() as server:
        talk = start(race, f"{server}:0")
        port = talk.port()
        assert echoed(port, 50 << 20)
        assert all_echoed(port, 100, 20_000) == [True] * 100
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", port))
    os.killpg(talk.client.pid, signal.SIGINT)
    assert talk.client.wait(60) == 130
    assert "Traceback" not in talk.text
    eventually(lambda: not steps())
    assert races(laptop)[0]["state"] == "RUNNING"


def test_a_lost_connection_is_made_anew(
    laptop: Laptop, race: str, start: Callable[..., Talk], steps: Callable[[], list[str]]
) -> None:
    """What was open is reset, not ended; a killed client leaves no step."""
    with echo_server() as server:
        talk = start(race, f"{server}:0")
        port = talk.port()
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"x")
            assert client.recv(1) == b"x"
            laptop.server.cut()
            with pytest.raises(ConnectionResetError):
                client.recv(1)
        talk.shows("again")
        assert echoed(port, 100_000)
    eventually(lambda: len(steps()) == 1)
    talk.client.kill()
    eventually(lambda: not steps())


def test_it_ends_with_the_race(
    laptop: Laptop, race: str, start: Callable[..., Talk], steps: Callable[[], list[str]]
) -> None:
    """In the foreground it says so, with code 0; in the background it is listed no longer."""
    with echo_server() as server:
        talk = start(race, f"{server}:0", f"{server}:0")
        assert echoes(talk.port())
        done = laptop.rv("forward", "-d", race, f"{server}:0")
        assert done.returncode == 0, done.stderr
        listed = laptop.rv("forward", "--list").stdout.splitlines()
        assert [line.split()[0] for line in listed] == ["RACE", race]
        assert echoes(int(listed[1].split()[4].rpartition(":")[2]))
        second = laptop.rv("forward", "-d", race, f"{server}:0")
        here = second.stderr.split()[0].rpartition(":")[2]
        assert laptop.rv("forward", "--stop", here).stderr == "stopped 1 tunnel\n"
        eventually(lambda: len(laptop.rv("forward", "--list").stdout.splitlines()) == 2)
        assert not echoes(int(here))
    assert laptop.rv("stop", race).returncode == 0
    assert talk.client.wait(60) == 0
    assert f"race {race} is over: CANCELLED" in talk.text
    eventually(lambda: "no tunnels" in laptop.rv("forward", "--list").stdout)
    assert not steps()
