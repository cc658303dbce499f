"""What is in the caller's environment goes to the job in one 0600 file, and nowhere else: into no
argument of a program, into nothing that Slurm keeps or shows, into no log and no message."""

import hashlib
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.world import World, eventually

SLURM = ("sbatch", "squeue", "scontrol", "sacct", "scancel", "srun", "sacctmgr")
TOLD = 'printf %s "$API_TOKEN" | sha256sum | cut -c1-64'


@pytest.fixture
def token(world: World) -> str:
    """A secret that rv and its command find in their environment."""
    world.env["API_TOKEN"] = secrets.token_hex(24)
    return world.env["API_TOKEN"]


@pytest.fixture
def open_umask() -> Iterator[None]:
    """The most careless umask there is."""
    before = os.umask(0)
    yield
    os.umask(before)


@contextmanager
def arguments(seen: set[bytes], sweeps: Path | None = None) -> Iterator[None]:
    """Collect the arguments of every process of this machine, as often as they can be read.

    The file `sweeps` is there meanwhile, and grows by a byte each time that all of them were read.
    """
    over = threading.Event()
    if sweeps:
        sweeps.touch()

    def sample() -> None:
        while not over.wait(0.005):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.add(path.read_bytes())
                except OSError:
                    continue
            if sweeps:
                with sweeps.open("ab") as file:
                    file.write(b".")

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield
    finally:
        over.set()
        sampler.join()
        if sweeps:
            sweeps.unlink()


def log_calls(world: World) -> Path:
    """Let each Slurm command of rv's write down what it was given, and what it sees around it.

    While arguments are collected it then waits until its own were, which is within two sweeps.
    """
    log, sweeps = world.path / "given", world.path / "sweeps"
    for name in SLURM:
        world.wrap(
            name,
            f'{{ printf "%s\\n" {name} "$@"; env; }} >>{log}\n'
            f"begun=$(stat -c %s {sweeps} 2>/dev/null || echo 0)\n"
            f'while now=$(stat -c %s {sweeps} 2>/dev/null) && [ "$now" -lt $((begun + 2)) ]; do\n'
            f'  sleep 0.01\ndone\nexec "$real" "$@"',
        )
    return log


def holding(root: Path, token: str) -> list[str]:
    """The files below a folder that hold the secret."""
    found = []
    for path in root.rglob("*"):
        try:
            if path.is_file() and token.encode() in path.read_bytes():
                found.append(str(path.relative_to(root)))
        except OSError:  # gone meanwhile
            continue
    return found


def check_nowhere(world: World, token: str) -> None:
    """Nothing of Slurm's, and nothing of rv's but the environment file, has it now."""
    shown = [
        world.slurm("scontrol", "show", "job", "-dd"),
        world.slurm("squeue", "-a", "-O", "Comment:300,Command:300,AdminComment:300,WorkDir:300"),
        world.slurm("sacct", "-a", "-P", "-o", "ALL"),
    ]
    assert not [text for text in shown if token in text]
    assert holding(world.box.directory, token) == []
    assert holding(world.path / "cache", token) == []
    assert holding(world.work, token) == []
    (race,) = world.races()
    assert holding(race, token) == ["environment"]


def spooled(world: World) -> list[str]:
    """Which parts of jobs the controller keeps on its disk now."""
    return sorted(path.name for path in world.box.directory.rglob("job.*/*"))


def check_private(race: Path) -> None:
    """Nobody else may read, write or enter anything that rv or its jobs made."""
    made = [race, *(p for p in race.rglob("*") if p.parent.name != "results")]
    open_ones = [f"{p} {p.stat().st_mode:o}" for p in made if p.lstat().st_mode & 0o077]
    assert open_ones == []
    assert (race / "environment").stat().st_mode & 0o777 == 0o600


def test_a_secret_reaches_the_command_and_nothing_else(
    world: World, token: str, open_umask: None
) -> None:
    """While the job runs, when Slurm's files are all there, and when it is over."""
    (world.path / "races").mkdir(mode=0o700)
    given = log_calls(world)
    seen: set[bytes] = set()
    with arguments(seen, world.path / "sweeps"):
        client = world.start(
            "run", "--name", "quiet",
            f"{TOLD}; umask; : >mine; until [ -e {world.path}/enough ]; do sleep 0.1; done; exit 3",
        )  # fmt: skip
        client.prints("0000\n")
        assert {"script", "environment"} <= set(spooled(world))
        check_nowhere(world, token)
        said = world.ok("ps", "--json") + world.ok("explain") + world.ok("logs")
        (world.path / "enough").touch()
        assert client.wait() == 3
    assert client.out.splitlines()[0] == hashlib.sha256(token.encode()).hexdigest()
    assert (world.work / "mine").stat().st_mode & 0o777 == 0o666, "the umask is the user's"
    assert token not in client.out + client.err + said
    assert any(b"sbatch" in line for line in seen)
    assert not [line for line in seen if token.encode() in line]
    assert "sbatch\n" in given.read_text()
    calls = given.read_text().split("\nsbatch\n")[1:]
    assert calls
    assert not [call for call in calls if token in call.split("\nscontrol\n")[0]]
    check_nowhere(world, token)
    check_private(world.race_dir())


def test_nor_when_a_job_submits_the_next_one_from_two_nodes(
    world: World, token: str, open_umask: None
) -> None:
    """There the submitter is the job itself, which has the secret around it."""
    go_on = (
        f'{TOLD}; umask; [ "$RV_SEGMENT" != 1 ] || {{ echo again >"$RV_CHECKPOINT_DIR/.rv-next";'
        ' : >"$RV_CHECKPOINT_DIR/saved.$NODE_RANK"; exit 0; };'
        f" until [ -e {world.path}/enough ]; do sleep 0.1; done"
    )
    seen: set[bytes] = set()
    with arguments(seen, world.path / "sweeps"):
        client = world.start(
            "run", "--checkpoint", "-g", "8", "--multi-node", "--time", "2h", go_on
        )  # fmt: skip
        eventually((world.path / "races").exists)
        eventually(lambda: client.out.count("0000\n") == 4 or client.process.poll() is not None)
        assert {"script", "environment"} <= set(spooled(world)), client.err
        check_nowhere(world, token)
        (world.path / "enough").touch()
        assert client.wait() == 0, client.err
    digest = hashlib.sha256(token.encode()).hexdigest()
    assert client.out.count(digest) == 4, "two nodes, two segments"
    assert not [line for line in seen if token.encode() in line]
    assert token not in client.out + client.err
    check_nowhere(world, token)
    race = world.race_dir()
    for path in (race / "checkpoints").iterdir():
        path.chmod(0o600)  # the command's own
    check_private(race)


@pytest.mark.parametrize(
    "words",
    [("run", "-g", "999", "true"), ("run", "-p", "none", "true"), ("run", "no_such.py"),
     ("run", "--sbatch", "licenses=none:1", "true"), ("logs", "nobody"), ("up", "--time", "x")],
    ids=" ".join,
)  # fmt: skip
def test_no_message_quotes_the_environment(
    world: World, token: str, words: tuple[str, ...]
) -> None:
    """Nor does the debugging output."""
    done = world.rv(*words, env={"RV_DEBUG": "1"})
    assert done.returncode not in (0, 1)
    assert "error[" in done.stderr
    assert token not in done.stdout + done.stderr
