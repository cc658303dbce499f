"""Two users on one cluster, with one scratch: neither reads, follows or is led astray by the other."""

import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from rv import sandbox
from rv.race.submit import SubmitOutcome, submit
from rv.transport.local import LocalTransport
from tests.faults.world import TINY, eventually
from tests.slurm.launching import Rv, rv_of
from tests.unit.race.test_directory import race as plain_race

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root's sandbox serves other users")

ANN, BOB = "nobody", "daemon"
MakeRv = Callable[[str], Rv]


@pytest.fixture(scope="module")
def box(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.Sandbox]:
    """Both users have an account."""
    import yaml

    path = tmp_path_factory.mktemp("profile") / "shared.yaml"
    path.write_text(yaml.safe_dump(dict(TINY)), encoding="utf-8")
    yield sandbox.up("shared", path, users=(ANN, BOB))
    sandbox.down("shared")


@pytest.fixture
def shared(sandbox_home: Path) -> Iterator[Path]:
    """A folder where everybody may write, as /scratch is."""
    folder = sandbox_home / "scratch"
    folder.mkdir()
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def own(path: Path, user: str) -> Path:
    """Give a file or folder, or a link itself, to a user."""
    entry = pwd.getpwnam(user)
    os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)
    return path


@pytest.fixture
def make_rv(box: sandbox.Sandbox, sandbox_home: Path, shared: Path) -> Iterator[MakeRv]:
    """`rv` as a user, without any umask; their races lie in the shared folder."""
    with ExitStack() as stack:

        def make(user: str) -> Rv:
            home = sandbox_home / f"home-{user}"
            bare = ("sh", "-c", 'umask 0; exec "$@"', "sh")
            rv = stack.enter_context(rv_of(user, box, home, bare))
            return replace(rv, more={**rv.more, "RV_RACE_ROOT": str(shared)})

        yield make
        for user in (ANN, BOB):
            subprocess.run(
                ["scancel", f"--user={user}"], env={**os.environ, "SLURM_CONF": str(box.slurm_conf)}
            )


def as_user(rv: Rv, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a program as the user of an rv."""
    return subprocess.run([*rv.prefix, *argv], capture_output=True, text=True, cwd="/")


def races_of(shared: Path, user: str) -> list[Path]:
    """Their race directories."""
    uid = pwd.getpwnam(user).pw_uid
    return [path for path in shared.iterdir() if path.lstat().st_uid == uid]


def test_neither_sees_anything_of_the_other(make_rv: MakeRv, shared: Path) -> None:
    """Both have races side by side, one of which runs, and no umask at all."""
    ann, bob = make_rv(ANN), make_rv(BOB)
    go = ann.home / "go"
    started = ann("run", "-d", f"echo hers; until [ -e {go} ]; do sleep 0.1; done")
    assert started.returncode == 0, started.stderr
    hers = started.stdout.strip()
    eventually((shared / hers / "claim").exists)
    assert bob("run", "echo his").stdout == "his\n"
    (his,) = {race["race"] for race in json.loads(bob("ps", "-a", "--json").stdout)["races"]}
    assert his != hers
    readable = as_user(bob, "find", str(shared / hers), "-readable", "-o", "-writable").stdout
    assert readable == ""
    for path in [shared / hers, shared / his, *shared.rglob("*")]:
        assert path.lstat().st_mode & 0o077 == 0, path
    for words in (("logs", hers), ("stop", hers), ("explain", hers)):
        refused = bob(*words)
        assert (refused.returncode, "error[usage]" in refused.stderr) == (2, True), refused.stderr
    assert bob("stop", "--all").returncode == 0
    assert [race["race"] for race in json.loads(ann("ps", "--json").stdout)["races"]] == [hers]
    go.touch()
    eventually((shared / hers / "ended").exists)
    assert ann("logs").stdout == "hers\n"


def test_a_race_that_another_user_offers_is_not_followed(make_rv: MakeRv, shared: Path) -> None:
    """It would have rv write, delete and cancel in its owner's name."""
    ann = make_rv(ANN)
    assert ann("run", "true").returncode == 0
    (hers,) = races_of(shared, ANN)
    treasure = ann.home / "treasure"
    treasure.mkdir()
    (treasure / "kept").touch()
    for path in (treasure, treasure / "kept"):
        own(path, ANN)
    # All of it readable, of her cluster, and older than what is pruned; its folders lead home.
    record = json.loads((hers / "race.json").read_text()) | {
        "race_id": "trapaaaa",
        "submitted_at": 1,
    }
    trap = shared / "trapaaaa"
    trap.mkdir()
    trap.chmod(0o777)
    (trap / "race.json").write_text(json.dumps(record))
    for name in ("absent", "jobs", "again", "claims"):
        (trap / name).symlink_to(treasure)
    for name in ("verdict.json", "lost", "stop"):
        (trap / name).symlink_to(treasure / "kept")
    for path in [trap, *trap.iterdir()]:
        own(path, BOB)
    (shared / "linkaaaa").symlink_to(hers)
    own(shared / "linkaaaa", BOB)
    (shared / ".halfstag.1.x").symlink_to(treasure)
    own(shared / ".halfstag.1.x", BOB)
    listed = ann("ps", "-a", "--json")
    assert [race["race"] for race in json.loads(listed.stdout)["races"]] == [hers.name], listed
    for word in ("trapaaaa", "linkaaaa"):
        assert ann("stop", word).returncode == 2
    assert ann("stop", "--all").returncode == 0
    assert sorted(path.name for path in treasure.iterdir()) == ["kept"]
    assert (treasure / "kept").read_bytes() == b""
    assert sorted(path.name for path in shared.iterdir()) == sorted(
        [".halfstag.1.x", "linkaaaa", "trapaaaa", hers.name]
    )


@pytest.fixture
def next_job(box: sandbox.Sandbox) -> Callable[[], str]:
    """The id that Slurm would give the next job: what is ever submitted changes it."""

    def ask() -> str:
        env = os.environ | {"SLURM_CONF": str(box.slurm_conf)}
        shown = subprocess.run(
            ["scontrol", "show", "config"], env=env, capture_output=True, text=True
        )
        return next(line for line in shown.stdout.splitlines() if line.startswith("NEXT_JOB_ID"))

    return ask


def make_root(kind: str, root: Path, ann: Rv, bob: Rv) -> str:
    """A race root that another user could change, and what rv should say of it."""
    if kind == "link into theirs":
        (bob.home / "theirs").mkdir()
        own(bob.home / "theirs", BOB).chmod(0o777)
        root.symlink_to(bob.home / "theirs")
        own(root, ANN)
        return "belongs to daemon"
    if kind == "their link":
        mine = ann.home / "mine"
        mine.mkdir(mode=0o700)
        own(mine, ANN)
        root.symlink_to(mine)
        own(root, BOB)
        return "is a link that belongs to daemon"
    root.mkdir()
    own(root, BOB if kind == "theirs" else ANN)
    root.chmod(0o777)
    return "belongs to daemon" if kind == "theirs" else "others may rename"


@pytest.mark.parametrize("kind", ["link into theirs", "their link", "theirs", "anybody's"])
@pytest.mark.parametrize("below", ["", "/deeper"])
def test_a_root_that_another_user_could_change_is_refused(
    make_rv: MakeRv, shared: Path, next_job: Callable[[], str], kind: str, below: str
) -> None:
    """Nothing is staged, nothing is submitted, and the remedy is named."""
    ann, bob = make_rv(ANN), make_rv(BOB)
    root = shared / "root"
    said = make_root(kind, root, ann, bob)
    if below:
        (root / "deeper").mkdir(mode=0o777)
        own(root / "deeper", ANN)
    before = next_job()
    ann.more["RV_RACE_ROOT"] = f"{root}{below}"
    done = ann("run", "true")
    assert done.returncode == 125
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error[")]
    assert line.startswith("error[stage]: ")
    assert said in line
    assert "hint: " in done.stderr
    assert "RV_RACE_ROOT" in done.stderr
    assert next_job() == before
    assert [path for path in root.rglob("*") if path.name != "deeper"] == []


def test_a_link_of_ones_own_is_followed(make_rv: MakeRv, shared: Path) -> None:
    """As to scratch from a home, made by the user or by root."""
    ann = make_rv(ANN)
    there, link = shared / "hers", ann.home / "races-link"
    there.mkdir(mode=0o755)
    own(there, ANN)
    link.symlink_to(there)
    own(link, ANN)
    ann.more["RV_RACE_ROOT"] = str(link)
    assert ann("run", "echo out").stdout == "out\n"
    assert len(list(there.glob("[!.]*"))) == 1


def test_folders_that_rv_makes_are_its_users_alone(make_rv: MakeRv) -> None:
    """Those above a race too, and the caches, without any umask."""
    ann = make_rv(ANN)
    ann.more["RV_RACE_ROOT"] = str(ann.home / "a/b/races")
    ann.more["XDG_CACHE_HOME"] = str(ann.home / "c/d")
    assert ann("run", "true").returncode == 0
    made = [ann.home / "a", ann.home / "a/b", ann.home / "a/b/races", *(ann.home / "c").rglob("*")]
    for path in [*made, ann.home / "c"]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_planted_lock_is_not_followed(make_rv: MakeRv, shared: Path) -> None:
    """A cache in a shared folder may be there before its user comes."""
    ann = make_rv(ANN)
    (shared / "rv").mkdir()
    own(shared / "rv", BOB).chmod(0o777)
    (shared / "rv/queue.lock").symlink_to(ann.home / "made-by-rv")
    own(shared / "rv/queue.lock", BOB)
    ann.more["XDG_CACHE_HOME"] = str(shared)
    assert ann("run", "echo out").stdout == "out\n"
    assert not (ann.home / "made-by-rv").exists()


def test_a_race_directory_that_was_swapped_is_not_submitted(tmp_path: Path) -> None:
    """Whoever may rename a folder above it could put scripts of their own there."""
    swapped = tmp_path / "swapped"
    (swapped / "jobs").mkdir(parents=True)
    (swapped / "jobs/1.sh").write_text("#!/bin/bash\n")
    sbatch = tmp_path / "bin/sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(f"#!/bin/bash\ntouch {tmp_path}/called\necho 7\n")
    sbatch.chmod(0o755)
    transport = LocalTransport({"PATH": f"{sbatch.parent}:/usr/bin:/bin"})
    race = plain_race(directory=str(swapped))
    own(swapped, BOB)
    (result,) = submit(race, [1], transport, sleep=lambda _: None)
    assert result.outcome is not SubmitOutcome.ACCEPTED
    assert not (tmp_path / "called").exists()
    own(swapped, "root")
    (result,) = submit(race, [1], transport, sleep=lambda _: None)
    assert result.outcome is SubmitOutcome.ACCEPTED
