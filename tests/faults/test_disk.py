"""The disk under a race fails it: full, over quota, read-only, deleted, late between nodes. The
command still starts at most once, nothing is left, and what rv says is what Slurm knows.

What keeps a race from being staged at all is in test_bad_input.py.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rv.errors import ErrorKind, RvError
from rv.race.directory import load_state_files, read_state_files
from rv.race.file_names import STATE_FILES
from rv.transport.local import LocalTransport
from tests.faults.world import COUNTED, World, eventually
from tests.unit.race.test_directory import race as plain_race

# Before a race is there.


def raising(number: int) -> Callable[..., int]:
    """A call that fails as the kernel would fail it."""

    def fail(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EDQUOT, "quota is used up"),
        (errno.ENOSPC, "full"),
        (errno.EROFS, "read-only"),
        (errno.EIO, "Input/output error"),
        (errno.ESTALE, "Stale file handle"),
    ],
)
def test_what_the_disk_says_is_a_sentence_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    """And no half of a race directory stays, nor a half-written file."""
    transport = LocalTransport({})
    transport.create_tree(str(tmp_path / "there"), {})
    monkeypatch.setattr(os, "fdopen", raising(number))
    for act in (
        lambda: transport.create_tree(str(tmp_path / "race"), {"a": b""}),
        lambda: transport.write(str(tmp_path / "there/mark"), b"x"),
    ):
        with pytest.raises(RvError) as caught:
            act()
        assert caught.value.kind is ErrorKind.STAGE
        assert said in caught.value.message
        assert "RV_RACE_ROOT" in caught.value.hint
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_marks_are_opened_whatever_a_stat_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network disk answers a stat from memory, and goes to the server for an open."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "claim").write_text("7.0\nsubmission=1\n")
    (tmp_path / "jobs/1.id").write_text("7\n")
    with monkeypatch.context() as patch:
        for name in ("stat", "lstat"):
            patch.setattr(os, name, raising(errno.ENOENT))
        state = read_state_files(LocalTransport({}).read_tree(str(tmp_path), STATE_FILES))
    assert state.claim is not None
    assert (state.claim.job_id, state.job_ids) == (7, ((1, (7,)),))


# The claim.


def test_a_link_that_says_it_was_there_already_is_still_ones_own(world: World) -> None:
    """A network disk repeats a request of which the answer was lost, and answers the second."""
    world.wrap(
        "ln",
        'case "${@: -1}" in\n'
        'claim) calls; "$real" "$@"; echo "ln: failed: File exists" >&2; exit 1 ;;\n'
        'esac\nexec "$real" "$@"',
    )
    done = world.rv("run", f"{COUNTED}; echo out")
    assert (done.returncode, done.stdout) == (0, "out\n"), done.stderr
    assert (world.calls("ln"), world.starts()) == (1, 1)
    assert world.race()["state"] == "COMPLETED"


def test_nodes_that_see_the_claim_late_start_nothing(world: World) -> None:
    """None of them sees at first that the race is won; the link is made once all the same."""
    world.override(
        "_preamble.sh.j2", lambda text: text.replace("{ read -r rv_owner; read -r rv_submission; } 2>/dev/null <claim\n", "")
    )  # fmt: skip
    world.wrap("scancel", "exit 0")
    both = '[ "$(ls "$RV_RACE_DIR/claims" | wc -l)" -ge 2 ]'
    done = world.rv("run", "--fanout", "each", f"{COUNTED}; until {both}; do sleep 0.1; done")
    assert done.returncode == 0, done.stderr
    assert len(list((world.race_dir() / "claims").iterdir())) == 2
    eventually(lambda: not world.live_jobs())
    assert world.starts() == 1
    assert world.race()["state"] == "COMPLETED"


# While the job runs.

_OWN_MOUNTS = '[ -n "$MOUNTS" ] || MOUNTS=own exec unshare --mount{mapped} bash "$0" "$@"\n'
FULL = """
cp -a . {copy}.$RV_ME && mount -t tmpfs -o size=256k none "$RV_RACE_DIR" &&
  cp -a {copy}.$RV_ME/. "$RV_RACE_DIR" && cd "$RV_RACE_DIR" || exit 99
head -c 1M /dev/zero >filler 2>/dev/null
"""
READ_ONLY = """
mount --bind "$RV_RACE_DIR" "$RV_RACE_DIR" && mount -o remount,bind,ro "$RV_RACE_DIR" &&
  cd "$RV_RACE_DIR" || exit 99
"""


def spoil(world: World, disk: str, template: str, point: str) -> None:
    """Let the disk fail for the job from a point of its script on; nobody else sees it."""
    mapped = "" if os.getuid() == 0 else " --map-root-user"
    disk = disk.format(copy=world.path / "copy")
    enter = _OWN_MOUNTS.format(mapped=mapped)
    if template == "_preamble.sh.j2":
        world.override(template, lambda text: enter + text.replace(point, disk + point))
    else:
        world.override("_preamble.sh.j2", lambda text: enter + text)
        world.override(template, lambda text: text.replace(point, disk + point))


@pytest.mark.parametrize("disk", [FULL, READ_ONLY], ids=["full", "read-only"])
def test_a_disk_that_takes_no_claim(world: World, disk: str) -> None:
    """No job may start the command, and each of them ends."""
    spoil(world, disk, "_preamble.sh.j2", "{%# From the claim on")
    done = world.rv("run", "--fanout", "each", COUNTED)
    assert done.returncode == 1, done.stderr
    race = world.race()
    assert race["state"] == "FAILED"
    assert race["winner"] is None
    assert {job["state"] for job in race["jobs"]} == {"FAILED"}
    assert world.starts() == 0
    world.wait_for_the_end_of_jobs()


HIDDEN = """
mount -t tmpfs none "$(dirname "$RV_RACE_DIR")" || exit 99
"""


def test_a_node_without_the_shared_disk_from_which_slurm_cannot_be_called(world: World) -> None:
    """It can neither be left nor leave a word: the job's own exit code says that it failed."""
    spoil(world, HIDDEN, "_preamble.sh.j2", "# 1. Leave a decided race")
    world.wrap("scontrol", '[ "$1" != requeue ] || exit 1; exec "$real" "$@"')
    done = world.rv("run", COUNTED)
    assert done.returncode == 1, done.stderr
    race = world.race()
    assert (race["state"], race["winner"]) == ("FAILED", None), race["why"]
    assert {job["state"] for job in race["jobs"]} <= {"FAILED", "CANCELLED"}
    assert world.starts() == 0
    world.wait_for_the_end_of_jobs()


@pytest.mark.parametrize(("code", "state"), [(3, "FAILED"), (0, "COMPLETED")])
def test_a_disk_that_is_full_when_the_command_ends(world: World, code: int, state: str) -> None:
    """There is no exit file: Slurm tells."""
    spoil(world, FULL, "_epilogue.sh.j2", "{%# A full disk must not")
    world.ok("run", "-d", f"{COUNTED}; exit {code}")
    race = world.settled("FAILED", "COMPLETED", "ENDED", "LOST")
    assert (race["state"], race["exit_code"]) == (state, code)
    assert f"Slurm says {state}" in race["why"]
    assert not (world.race_dir() / "ended").exists()
    assert world.starts() == 1
    world.wait_for_the_end_of_jobs()


def test_a_race_is_told_and_stopped_from_where_its_disk_is_read_only(world: World) -> None:
    """What could not be written is said, and nothing else is wrong."""
    world.ok("run", "-d", f"{COUNTED}; sleep 600")
    eventually(world.starts)
    words = f"mount --bind {world.path}/races {world.path}/races"
    setup = f"{words} && mount -o remount,bind,ro {world.path}/races"
    enter = world.own_mounts(setup)
    told = world.rv_among(enter, "ps", "--json")
    assert json.loads(told.stdout)["races"][0]["state"] == "RUNNING", told.stderr
    stopped = world.rv_among(enter, "stop")
    assert "Traceback" not in stopped.stderr
    assert "no stop file can be written" in stopped.stdout + stopped.stderr
    eventually(lambda: not world.live_jobs())
    assert world.settled("CANCELLED", "FAILED")["state"] == "CANCELLED"
    assert world.starts() == 1


# Deleted.


def test_a_watched_race_that_is_deleted_while_it_waits(world: World) -> None:
    """Its jobs could only fail: they are cancelled, and none is sent anew."""
    release = world.fill()
    client = world.start("run", COUNTED)
    client.says("submitted 2 jobs")
    shutil.rmtree(world.race_dir())
    assert client.wait() == 1
    assert "its race directory was deleted" in client.err.splitlines()[-1]
    assert "Traceback" not in client.err
    assert "unconfirmed" not in client.err
    eventually(lambda: not world.live_jobs())
    release()
    assert (world.starts(), world.ps(), world.races()) == (0, [], [])


def test_a_race_that_is_deleted_while_it_waits_and_nobody_looks(world: World) -> None:
    """The next rv command cancels its jobs, and those of no other race."""
    release = world.fill()
    world.ok("run", "-d", COUNTED)
    deleted = world.race_dir()
    world.ok("run", "-d", COUNTED)
    (kept,) = {path.name for path in world.races()} - {deleted.name}
    elsewhere = {"RV_RACE_ROOT": str(world.path / "other")}
    other = world.ok("run", "-d", COUNTED, env=elsewhere).strip()
    shutil.rmtree(deleted)
    assert [race["race"] for race in world.ps()] == [kept]
    left = lambda: {name.split("-")[1] for name in world.live_jobs()}  # noqa: E731
    eventually(lambda: left() == {kept, other})
    world.ok("stop", kept)
    world.ok("stop", other, env=elsewhere)
    release()
    assert world.starts() == 0


def test_another_disk_of_the_same_path_is_no_deletion(world: World) -> None:
    """A login node whose home is its own sees no race there, and cancels none of their jobs."""
    release = world.fill()
    world.ok("run", "-d", COUNTED)
    waiting = world.live_jobs()
    elsewhere = world.own_mounts(f"mount -t tmpfs -o mode=0700 none {world.path}/races")
    done = world.rv_among(elsewhere, "ps", "--json")
    assert json.loads(done.stdout)["races"] == [], done.stderr
    assert world.live_jobs() == waiting
    release()
    assert world.settled("COMPLETED")["exit_code"] == 0
    assert world.starts() == 1


@pytest.mark.parametrize("code", [0, 3])
def test_a_race_that_is_deleted_while_it_runs(world: World, code: int) -> None:
    """The command goes on, and its client tells its end from Slurm."""
    enough = world.path / "enough"
    command = f"{COUNTED}; until [ -e {enough} ]; do sleep 0.1; done; exit {code}"
    client = world.start("run", command)
    client.says("started on")
    eventually(world.starts)
    shutil.rmtree(world.race_dir())
    assert world.ps() == []
    assert client.process.poll() is None
    assert len(world.live_jobs()) == 1
    enough.touch()
    assert client.wait() == code, client.err
    said = "FAILED" if code else "COMPLETED"
    assert said in client.err.splitlines()[-1]
    assert "Traceback" not in client.err
    eventually(lambda: not world.live_jobs())
    assert (world.starts(), world.races()) == (1, [])


@pytest.mark.parametrize("left", [("race.json", "jobs/1.id"), ("race.json",), ("jobs/1.id",)])
def test_a_race_that_is_just_being_deleted_has_not_lost_its_winner(
    tmp_path: Path, left: tuple[str, ...]
) -> None:
    """Its files go one by one."""
    transport = LocalTransport({})
    race = plain_race(directory=str(tmp_path / "race"))
    files = {"race.json": b"{}", "claim": b"7.0\nsubmission=1\n", "jobs/1.id": b"7\n"}
    transport.create_tree(race.directory, files)
    before = load_state_files(race, transport)
    assert before.claim is not None
    for name in files.keys() - set(left):
        (tmp_path / "race" / name).unlink()
    assert load_state_files(race, transport) == replace(before, deleted="race.json" not in left)
    shutil.rmtree(race.directory)
    assert load_state_files(race, transport) == replace(before, deleted=True)
