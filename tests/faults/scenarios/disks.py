"""The shared disk is full, or read-only, at each step. As root, on a small disk of its own."""

import subprocess
from pathlib import Path
from random import Random

from tests.faults.scenarios.registry import held, launch, let_go, scenario
from tests.faults.world import World, eventually


def small_disk(world: World) -> Path:
    """Put the race directories on a disk of 2 MiB."""
    root = world.path / "races"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", root], check=True)
    world.last.callback(subprocess.run, ["umount", "-l", root], check=True)
    return root


def fill_up(root: Path) -> None:
    """Take the last byte of a disk."""
    with (root / ".ballast").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def free(root: Path) -> None:
    """Make room again."""
    (root / ".ballast").unlink(missing_ok=True)


@scenario()
def full_disk_before_staging(world: World, dice: Random) -> None:
    """rv says so and nothing is submitted; with room it goes as ever."""
    root = small_disk(world)
    fill_up(root)
    assert world.rv("up", "-d", "--run", "true").returncode == 125
    free(root)
    launch(world)


@scenario("FAILED", "COMPLETED", "CANCELLED", "ENDED")
def full_disk_before_the_claim(world: World, dice: Random) -> None:
    """A job that cannot claim does not start the command."""
    root = small_disk(world)
    release = world.fill()
    client = launch(world)
    client.says("submitted 2 jobs")
    fill_up(root)
    release()
    eventually(lambda: not world.live_jobs() or world.starts())
    free(root)


@scenario()
def full_disk_at_the_end(world: World, dice: Random) -> None:
    """The exit file is late or never there; Slurm's record is."""
    root = small_disk(world)
    launch(world, command=held(world))
    eventually(world.starts)
    fill_up(root)
    let_go(world)
    eventually(lambda: world.lines(world.work / "ends"))
    if dice.random() < 0.5:
        eventually(lambda: not world.live_jobs())
    free(root)


@scenario("FAILED", "COMPLETED", "CANCELLED", "ENDED")
def read_only_disk_before_the_claim(world: World, dice: Random) -> None:
    """Jobs that can write nothing start nothing."""
    root = small_disk(world)
    release = world.fill()
    client = launch(world)
    client.says("submitted 2 jobs")
    client.kill(whole=True)
    _remount(root, "ro")
    release()
    eventually(lambda: not world.live_jobs() or world.starts())
    world.ps()
    _remount(root, "rw")


def _remount(root: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", root], check=True)


_REMEMBERS_ABSENCE = """
import io
import os
import time
from pathlib import Path

SECONDS, MEMORY = 30, Path({memory!r})
_open = io.open


def open_as_nfs_does(file, mode="r", *rest, **options):
    name = "" if isinstance(file, int) else os.fspath(file)
    if not name.endswith(("/claim", "/ended")) or "r" not in mode:
        return _open(file, mode, *rest, **options)
    remembered = MEMORY / name.replace("/", "%")
    if remembered.exists() and time.time() - remembered.stat().st_mtime < SECONDS:
        raise FileNotFoundError(name)
    try:
        return _open(file, mode, *rest, **options)
    except FileNotFoundError:
        remembered.touch()
        raise


io.open = open_as_nfs_does
"""
"""What nfs(5) says of `lookupcache=all`: a client remembers for `acdirmin`, 30 s, what was not there."""


@scenario()
def the_disk_remembers_absence(world: World, dice: Random) -> None:
    """The client looked for a claim and an exit file just before the job on another node wrote them."""
    folder = world.path / "layer"
    (folder / "memory").mkdir(parents=True)
    layer = _REMEMBERS_ABSENCE.format(memory=str(folder / "memory"))
    (folder / "sitecustomize.py").write_text(layer, encoding="utf-8")
    world.env["PYTHONPATH"] = f"{folder}:{world.env['PYTHONPATH']}"
    launch(world, "-p", dice.choice(["fast", "slow"]))
