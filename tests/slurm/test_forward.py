"""On the login node itself, without ssh: ports of a race's node, a login to it, and Jupyter."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rv import sandbox
from tests.slurm.launching import Rv, group, profile
from tests.ssh.echo import Talk, all_echoed, echo_server, echoed, free_port

Eventually = Callable[..., None]
STAND_IN = Path(__file__).with_name("jupyter_stand_in.py")


@pytest.fixture(scope="module")
def box(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.Sandbox]:
    """Two nodes."""
    path = tmp_path_factory.mktemp("forward") / "two.yaml"
    path.write_text(json.dumps(profile([group("a", "a100", nodes=2)])))
    yield sandbox.up("forward", path)
    sandbox.down("forward")


@pytest.fixture
def rv(box: sandbox.Sandbox, tmp_path: Path) -> Iterator[Rv]:
    """`rv` there, with state of its own; races end with the test."""
    more = {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    made = Rv(box=box, home=tmp_path, more=more)
    yield made
    made("stop", "--all")


@pytest.fixture
def start(rv: Rv) -> Iterator[Callable[..., Talk]]:
    """Start `rv`; what still runs ends with the test."""
    started: list[Talk] = []

    def launch(*words: str) -> Talk:
        started.append(Talk(rv.launch(*words)))
        return started[-1]

    yield launch
    for talk in started:
        talk.close()


def steps(rv: Rv) -> list[str]:
    """The nodes of the steps that run beside races: those of commands run on several."""
    lines = rv.slurm("squeue", "-h", "-s", "-o", "%i %N").splitlines()
    words = [line.split() for line in lines]
    return [node for step, node in words if step.rpartition(".")[2].isdigit() and "[" not in node]


def test_a_port_of_each_node(rv: Rv, start: Callable[..., Talk], eventually: Eventually) -> None:
    """The step is on the node that was asked for, and ends with its client, however that ends."""
    two = ("--gpu", "8", "--multi-node", "--time", "5m")
    assert rv("run", "-d", *two, "torchrun() { sleep 300; }; torchrun").returncode == 0
    eventually(lambda: rv.state()["state"] == "RUNNING")
    with echo_server() as server:
        for node, name in (("0", "a1"), ("1", "a2")):
            talk = start("forward", "--node", node, f"{server}:0")
            port = talk.port()
            assert f"leads to {name}:{server}" in talk.text
            assert echoed(port, 50 << 20)
            assert all_echoed(port, 100, 10_000) == [True] * 100
            assert steps(rv) == [name]
            talk.client.kill()
            eventually(lambda: not steps(rv))
    assert "has no node 2" in rv("forward", "--node", "2", "80").stderr


@pytest.fixture
def race(rv: Rv, eventually: Eventually) -> str:
    """The id of a race that runs until the test is over."""
    assert rv("run", "-d", "--gpu", "1", "--time", "5m", "exec sleep 300").returncode == 0
    eventually(lambda: rv.state()["state"] == "RUNNING")
    return rv.last().race_id


def test_a_server_that_does_not_listen_yet(race: str, start: Callable[..., Talk]) -> None:
    """A connection is reset, rv says so, and later ones work."""
    server = free_port()
    talk = start("forward", race, f"{server}:0")
    port = talk.port()
    early = socket.create_connection(("127.0.0.1", port))
    with early, pytest.raises(ConnectionResetError):
        early.recv(1)
    talk.shows(f"port {server} of a1: nothing listens there")
    with echo_server(server):
        assert echoed(port, 100)


def test_what_cannot_be_is_said(rv: Rv, race: str, start: Callable[..., Talk]) -> None:
    """In a line with a hint, before anything is started; nothing is left in the background."""
    taken = start("forward", race, "80:0").port()
    for words, code, why in (
        ((f"80:{taken}",), 125, f"cannot listen on port {taken} of this machine: address already"),
        (("80:7000", "81:7000"), 2, "port 7000 of this machine is named twice"),
        (("nothere", "80"), 2, "'nothere' is no race here"),
        (("--node", "2", "80"), 2, "has no node 2"),
        (("--stop", "nothere"), 2, "no tunnel to 'nothere' here"),
        (("-d", "nothere", "80"), 2, "'nothere' is no race here"),
    ):
        done = rv("forward", *words)
        assert (done.returncode, why in done.stderr) == (code, True), done
        assert "hint" in done.stderr
        assert "Traceback" not in done.stderr
    assert start("forward", "--auto", race, f"80:{taken}").port() != taken
    assert rv("forward", "--list").stdout == "no tunnels in the background\n"


def test_a_race_that_waits_or_is_over(rv: Rv) -> None:
    """Has no node whose ports could be reached."""
    waits = rv("run", "-d", "--sbatch", "begin=now+1hour", "--time", "5m", "true")
    assert waits.returncode == 0, waits.stderr
    done = rv("forward", "80:0")
    assert (done.returncode, "has not started yet" in done.stderr) == (2, True), done.stderr
    assert rv("stop").returncode == 0
    done = rv("forward", "80:0")
    assert (done.returncode, "is over: CANCELLED" in done.stderr) == (2, True), done.stderr


def fetch(url: str) -> tuple[int, str]:
    """What a browser gets."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_jupyter_in_a_browser(rv: Rv, start: Callable[..., Talk], eventually: Eventually) -> None:
    """With a token that nobody else sees; Ctrl-C ends the race."""
    fake = rv.home / "bin"
    fake.mkdir()
    shutil.copy(STAND_IN, fake / "jupyter")
    (fake / "jupyter").chmod(0o755)
    setup = f"PATH={fake}:$PATH"
    talk = start("up", "--jupyter", "--gpu", "1", "--time", "5m", "--setup", setup)
    talk.shows("Ctrl-C ends it")
    match = re.search(r"(?<=Jupyter: )http://127\.0\.0\.1:\d+/lab\?token=(\S+)", talk.text)
    assert match
    url, token = match[0], match[1]
    job = rv.state()["winner"]["job_id"]
    assert (Path(rv.last().directory) / "lease").exists(), "nobody would hold it"
    assert fetch(url) == (200, f"/lab of job {job}")
    assert fetch(url[:-1]) == (403, "who are you?")
    asked = subprocess.run(["ps", "-eo", "args", "ww"], capture_output=True, text=True, check=True)
    assert "jupyter lab --no-browser" in asked.stdout
    assert token not in asked.stdout
    holders = [path for path in rv.home.rglob("*") if path.is_file() and token in text(path)]
    holders += [
        path for path in rv.box.directory.rglob("*") if path.is_file() and token in text(path)
    ]
    assert [path.name for path in holders] == ["environment"]
    assert holders[0].stat().st_mode & 0o077 == 0
    os.kill(talk.client.pid, signal.SIGINT)
    assert talk.client.wait(60) == 130
    assert "is cancelled" in talk.shows("is cancelled")
    eventually(lambda: rv.state()["state"] == "CANCELLED")
    eventually(lambda: not steps(rv))


def text(path: Path) -> str:
    """The contents of a file, as far as it can be read."""
    try:
        return path.read_bytes().decode("latin-1")
    except OSError:
        return ""


def test_jupyter_that_cannot_be(rv: Rv) -> None:
    """What to install is said by the job; what makes no sense with it before anything is sent."""
    words = ("up", "--jupyter", "--gpu", "1", "--time", "5m")
    done = rv(*words)
    assert done.returncode == 127
    assert (
        "there is no jupyter in the environment of this job: pip install jupyterlab" in done.stderr
    )
    for more in (("--run", "true"), ("--checkpoint",), ("-d",)):
        done = rv(*words, *more)
        assert (done.returncode, "error[usage]: --jupyter" in done.stderr) == (2, True), done.stderr
    assert "a1" not in rv(*words, "--dry-run").stderr
