"""From a laptop: the whole way from a request to an exit code over ssh, on a real Slurm."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.ssh.conftest import Laptop


@pytest.fixture(params=["openssh", "paramiko"])
def laptop(request: pytest.FixtureRequest, laptop: Laptop) -> Laptop:
    """Everything here is asked over each transport."""
    return replace(laptop, ssh=request.param)


def eventually(what: Callable[[], object]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def races(laptop: Laptop) -> list[dict[str, object]]:
    """What `rv ps` says of them."""
    done = laptop.rv("ps", "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)["races"]
    return found


def logins(laptop: Laptop) -> int:
    """How often somebody logged in, which a second factor would be asked for at."""
    return (laptop.server.path / "sshd.log").read_text().count("Accepted publickey")


def test_a_command_runs_there_and_its_code_comes_back(laptop: Laptop) -> None:
    """In the home there and with its environment; nothing of the laptop's goes with it."""
    seen = "$PWD $ONLY_ON_THE_CLUSTER ${ONLY_ON_THE_LAPTOP-none} ${LC_ALL-none} $LANG"
    line = f'echo "{seen}"; echo oh >&2; exit 7'
    done = laptop.rv("run", "--gpu", "1", "--time", "5m", line)
    away = laptop.home.parent / "away"
    assert (done.returncode, done.stdout) == (7, f"{away} yes none none C.UTF-8\n"), done.stderr
    assert "oh" in done.stderr
    assert [path.name for path in (away / ".local/state/rv/races").glob("[!.]*")] == [
        str(races(laptop)[0]["race"])
    ]
    assert not (laptop.home / ".local" / "state").exists()


def test_a_profile_that_breaks_the_shell_is_named(laptop: Laptop) -> None:
    """One that leaves no programs on PATH does not."""
    profile = laptop.home.parent / "away" / ".bash_profile"
    profile.write_text("PATH=/nowhere\n")
    assert laptop.rv("ps").stdout == "no races\n"
    profile.write_text("exit 3\n")
    done = laptop.rv("ps")
    assert done.returncode == 125
    assert "error[unreachable]: the connection was lost: no shell answered (is" in done.stderr
    assert "exec in ~/.bash_profile" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_login_serves_several_commands(laptop: Laptop) -> None:
    """A second factor would be asked for once; connections of rv's own end with each command."""
    for words in (("run", "--time", "5m", "true"), ("ps",), ("logs",), ("status",)):
        done = laptop.rv(*words)
        assert done.returncode == 0, done.stderr
    assert logins(laptop) == (1 if laptop.ssh == "openssh" else 4)


def test_a_connection_that_breaks_while_stopping(laptop: Laptop) -> None:
    """It is asked again, until nothing of the race is left."""
    assert laptop.rv("run", "-d", "--time", "5m", "exec sleep 600").returncode == 0
    eventually(lambda: races(laptop)[0]["state"] == "RUNNING")
    break_once(laptop, "scancel", ["scancel", "cut"])
    done = laptop.rv("stop")
    assert done.returncode == 0, done.stderr
    assert (laptop.home.parent / "away" / "cut").exists()
    assert races(laptop)[0]["state"] == "CANCELLED"


def test_a_race_is_stopped_from_the_laptop(laptop: Laptop) -> None:
    """Whole, while it runs; its output is there afterwards."""
    done = laptop.rv("run", "-d", "--time", "5m", "echo begun; exec sleep 600")
    assert done.returncode == 0, done.stderr
    eventually(lambda: races(laptop)[0]["state"] == "RUNNING")
    eventually(lambda: laptop.rv("logs").stdout == "begun\n")
    assert laptop.rv("stop").returncode == 0
    assert races(laptop)[0]["state"] == "CANCELLED"


@pytest.mark.parametrize("is_free", [True, False], ids=["running", "waiting"])
def test_ctrl_c_goes_to_rv_and_not_to_its_connection(laptop: Laptop, is_free: bool) -> None:
    """A shell sends it to the whole group: rv leaves what runs, and cancels what waits."""
    begin = [] if is_free else ["--sbatch", "begin=now+1hour"]
    client = laptop.start("up", *begin, "--time", "5m", "--run", "exec sleep 600")
    state = "RUNNING" if is_free else "PENDING"
    eventually(lambda: races(laptop) and races(laptop)[0]["state"] == state)
    os.killpg(client.pid, signal.SIGINT)
    _, err = client.communicate(timeout=60)
    assert client.returncode == 130
    assert ("detached: rv logs -f" if is_free else "is cancelled") in err, err
    assert races(laptop)[0]["state"] == ("RUNNING" if is_free else "CANCELLED")
    laptop.rv("stop", "--all")


def test_a_broken_connection_loses_nothing(laptop: Laptop) -> None:
    """It is made anew, the output comes whole, and the command ran once."""
    client = laptop.start(
        "run", "--gpu", "1", "--time", "5m",
        'echo start >>starts; for n in $(seq 40); do echo "line $n"; sleep 0.2; done; exit 5',
    )  # fmt: skip
    starts = laptop.home.parent / "away" / "starts"
    eventually(starts.exists)
    for _ in range(3):
        laptop.server.cut()
        time.sleep(1.5)
    out, err = client.communicate(timeout=100)
    assert client.returncode == 5, err
    assert out.splitlines() == [f"line {n}" for n in range(1, 41)]
    assert starts.read_text() == "start\n"


@pytest.mark.parametrize(
    ("laptop", "moment"),
    [
        ("openssh", "before sbatch"),
        ("openssh", "in sbatch"),
        ("openssh", "after sbatch"),
        ("paramiko", "after sbatch"),
    ],
    indirect=["laptop"],
)
def test_a_connection_that_breaks_while_submitting(laptop: Laptop, moment: str) -> None:
    """The job is found by its name, or sent again: the command runs once."""
    lines = {
        "before sbatch": ["cut", "exit 1"],
        "in sbatch": ["cut & sleep 1", "sbatch", "sleep 1"],
        "after sbatch": ["sbatch", "cut"],
    }[moment]
    break_once(laptop, "sbatch", lines)
    done = laptop.rv("run", "--gpu", "1", "--time", "5m", "echo start >>starts; echo it ran")
    assert (done.returncode, done.stdout) == (0, "it ran\n"), done.stderr
    away = laptop.home.parent / "away"
    assert (away / "cut").exists()
    assert (away / "starts").read_text() == "start\n"
    assert [race["state"] for race in races(laptop)] == ["COMPLETED"]


@pytest.mark.parametrize("program", ["tar", "ln", "squeue", "scontrol"])
def test_a_connection_that_breaks_at_another_step(laptop: Laptop, program: str) -> None:
    """In the staging nothing was submitted; anywhere else the race goes on to its end."""
    break_once(laptop, program, ["cut", program])
    done = laptop.rv("run", "--gpu", "1", "--time", "5m", "echo start >>starts; echo it ran")
    away = laptop.home.parent / "away"
    if done.returncode == 125:
        assert not (away / "starts").exists()
        assert "error[unreachable]" in done.stderr
        done = laptop.rv("run", "--gpu", "1", "--time", "5m", "echo start >>starts; echo it ran")
    assert (done.returncode, done.stdout) == (0, "it ran\n"), done.stderr
    assert (away / "starts").read_text() == "start\n"
    assert (away / "cut").exists()


def break_once(laptop: Laptop, name: str, lines: list[str]) -> None:
    """Put a program before the real one on the login node, which breaks the connection once."""
    away = laptop.home.parent / "away"
    (away / "bin").mkdir(exist_ok=True)
    real = shutil.which(name)
    cut = f"{{ touch {away}/cut; kill -9 $(cat {away}/sessions); sleep 0.3; }}"
    body = "\n".join(cut if line == "cut" else line for line in lines)
    body = body.replace("cut & sleep", f"{cut} & sleep").replace(name, f'{real} "$@"')
    script = away / "bin" / name
    find = f"pgrep -P $(cat {laptop.server.path}/sshd.pid) >{away}/sessions"
    script.write_text(
        f'#!/bin/bash\nif [ -e {away}/cut ]; then exec {real} "$@"; fi\n{find}\n{body}\n'
    )
    script.chmod(0o755)


def test_a_file_that_is_here_alone_is_named(laptop: Laptop) -> None:
    """rv copies none, and says so before the job fails for want of it."""
    (laptop.home / "train.py").touch()
    done = laptop.rv("run", "--gpu", "1", "--time", "5m", "python3 train.py")
    assert done.returncode == 2
    assert "train.py: not sent (this folder is no git work tree)" in done.stderr
    assert "No such file" in done.stderr
