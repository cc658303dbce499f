"""slurmctld, slurmdbd and munged stop, hang and die at the worst of moments."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final

from rv import sandbox
from tests.faults.scenarios.registry import held, launch, let_go, node_of, scenario, send
from tests.faults.world import World, eventually

SILENCE_S: Final = 15.0
"""How long a busy controller pauses."""


def pid_of(world: World, daemon: str) -> int:
    """The process of a daemon that runs."""
    pids = {each.name: each.pid for each in sandbox.status(world.box.name).daemons}
    return int(pids[daemon] or 0)


@contextmanager
def stopped(world: World, daemon: str) -> Iterator[None]:
    """An orderly stop, which saves its state, and a start."""
    pid = pid_of(world, daemon)
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: not _lives(pid))
    sandbox.stop_daemon(world.box, daemon)
    try:
        yield
    finally:
        sandbox.start_daemon(world.box, daemon)


@contextmanager
def killed(world: World, daemon: str) -> Iterator[None]:
    """Killed with -9, and a start."""
    sandbox.stop_daemon(world.box, daemon)
    try:
        yield
    finally:
        sandbox.start_daemon(world.box, daemon)


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """It is there and does not answer; what it was told, it hears later."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _lives(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


def saved(world: World) -> None:
    """Wait until the controller has written down what it knows by now; it does so every 5 s."""
    now = time.time()
    with suppress(AssertionError):  # nothing was new: then it does not write
        eventually(lambda: _written(world) > now, timeout=8)


def _written(world: World) -> float:
    files = list(Path(world.box.directory).rglob("job_state"))
    return max((path.stat().st_mtime for path in files), default=0.0)


@scenario(doubles=True)
def slurmctld_restarts_mid_submit(world: World, dice: Random) -> None:
    """It is away when sbatch is called."""
    world.wrap("sbatch", 'at; exec "$real" "$@"')
    launch(world, "--fanout", dice.choice(["auto", "each"]))
    world.reached("sbatch")
    with stopped(world, "slurmctld"):
        world.go("sbatch")


@scenario()
def slurmctld_restarts_mid_queue(world: World, dice: Random) -> None:
    """All jobs wait."""
    release = world.fill()
    client = launch(world)
    client.says("submitted 2 jobs")
    with stopped(world, "slurmctld"):
        world.ps()
    release()


@scenario()
def slurmctld_restarts_mid_run(world: World, dice: Random) -> None:
    """The command ends while it is away, or a little later."""
    launch(world, "--fanout", dice.choice(["auto", "each"]), command=held(world))
    eventually(world.starts)
    with stopped(world, "slurmctld"):
        world.ps()
        if dice.random() < 0.5:
            let_go(world)
    let_go(world)


@scenario()
def slurmctld_dies_mid_queue(world: World, dice: Random) -> None:
    """Killed with -9, once it has saved its jobs."""
    release = world.fill()
    client = launch(world)
    client.says("submitted 2 jobs")
    saved(world)
    with killed(world, "slurmctld"):
        pass
    release()


@scenario()
def slurmctld_dies_mid_run(world: World, dice: Random) -> None:
    """Killed with -9, once it has saved its jobs."""
    launch(world, command=held(world))
    eventually(world.starts)
    saved(world)
    with killed(world, "slurmctld"):
        world.ps()
    let_go(world)


@scenario("COMPLETED", "ENDED", "CANCELLED", "LOST", "FAILED", doubles=True, forgets=True)
def slurmctld_dies_before_it_saved(world: World, dice: Random) -> None:
    """It forgets a job that it had accepted, and gives its id to another."""
    world.fill()
    client = launch(world, "--fanout", "each")
    client.says("submitted 2 jobs")
    with killed(world, "slurmctld"):
        pass
    world.slurm("scancel", "-n", "hog")


@scenario(doubles=True)
def slurmctld_hangs_mid_submit(world: World, dice: Random) -> None:
    """Longer than sbatch waits; then it does what it was told."""
    world.wrap("sbatch", 'at; exec "$real" "$@"')
    client = launch(world)
    world.reached("sbatch")
    with frozen(pid_of(world, "slurmctld")):
        world.go("sbatch")
        eventually(lambda: (world.race_dir() / "jobs/1.err").stat().st_size, timeout=20)
    assert client.wait() == 0, client.err


@scenario()
def slurmctld_hangs_before_the_launch(world: World, dice: Random) -> None:
    """For longer than a read waits: the client says so, asks again, and launches all the same."""
    began = time.monotonic()
    with frozen(pid_of(world, "slurmctld")):
        client = launch(world)
        client.says("Slurm has not answered since ")
        eventually(lambda: time.monotonic() - began > SILENCE_S)
    assert client.wait() == 0, client.err
    assert "Slurm answers again, after " in client.err


@scenario()
def slurmctld_hangs_mid_run(world: World, dice: Random) -> None:
    """No answer while the command runs and ends."""
    launch(world, "--fanout", "each", command=held(world))
    eventually(world.starts)
    with frozen(pid_of(world, "slurmctld")):
        let_go(world)
        world.ps()


@scenario()
def slurmdbd_is_away(world: World, dice: Random) -> None:
    """From before the launch until after the end."""
    with killed(world, "slurmdbd"):
        launch(world).wait()
        world.ps()


@scenario()
def slurmdbd_lags(world: World, dice: Random) -> None:
    """Accounting hears of the race when it is over."""
    with frozen(pid_of(world, "slurmdbd")):
        send(world)
        eventually((world.race_dir() / "ended").exists)
        world.ps()


@scenario(doubles=True)
def munged_is_away_mid_submit(world: World, dice: Random) -> None:
    """Nobody can prove who they are, for a while."""
    world.wrap("sbatch", 'at; exec "$real" "$@"')
    launch(world)
    world.reached("sbatch")
    with killed(world, "munged"):
        world.go("sbatch")


def _lose_state(world: World) -> None:
    """Kill the controller and start it without its jobs: it gives their ids out again."""
    with killed(world, "slurmctld"):
        for file in Path(world.box.directory).rglob("job_state*"):
            file.unlink()


_A_CHAIN: Final = ("--checkpoint", "--time", "1h")


def _give_an_id_out_again(world: World, *options: str) -> None:
    """Let the job that rv sends instead of one that is about to claim have its id.

    Accounting, whose controller lost the job too, has not heard of an end.
    """
    _lose_state(world)
    world.wrap("sacct", "exit 0")
    world.wrap("sync", '[ "$(calls)" -gt 1 ] || at; exec "$real" "$@"')
    send(world, "-p", "fast", *options)
    world.reached("sync")
    (job,) = world.slurm("squeue", "-h", "-t", "R", "-o", "%A").split()
    node = node_of(world, job)
    sandbox.stop_node(world.box, node)
    _lose_state(world)
    eventually(lambda: world.ps() and world.starts())
    claim = (world.race_dir() / "claim").read_text(encoding="utf-8")
    assert claim.startswith(f"{job}.0"), f"job {job} was to be there twice: {claim}"
    world.go("sync")
    time.sleep(2)
    (world.bin / "sacct").unlink()
    sandbox.start_node(world.box, node)


@scenario(doubles=True)
def slurmctld_loses_its_state_before_the_claim(world: World, dice: Random) -> None:
    """Two jobs of one race have the same id, one after the other."""
    _give_an_id_out_again(world)


@scenario(doubles=True)
def slurmctld_loses_its_state_before_a_segment(world: World, dice: Random) -> None:
    """The same of a chain."""
    _give_an_id_out_again(world, *_A_CHAIN)


def _stop_unheard(world: World, *options: str) -> None:
    """Stop a race whose job is about to claim, and can hear of it by the race directory alone."""
    world.wrap("sync", 'at; exec "$real" "$@"')
    send(world, "-p", "fast", *options)
    world.reached("sync")
    with frozen(pid_of(world, "slurmctld")):
        stop = world.rv("stop")
        assert "was left" not in stop.stdout + stop.stderr, f"Slurm did not say so: {stop.stdout}"
        world.go("sync")
        time.sleep(2)


@scenario("CANCELLED")
def stopped_while_slurmctld_hangs(world: World, dice: Random) -> None:
    """The stop is written, and no scancel gets through."""
    _stop_unheard(world)


@scenario("CANCELLED")
def a_chain_stopped_while_slurmctld_hangs(world: World, dice: Random) -> None:
    """The same of a chain."""
    _stop_unheard(world, *_A_CHAIN)
