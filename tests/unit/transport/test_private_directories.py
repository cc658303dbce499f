"""Race roots and race directories that another user could replace, tried as two users."""

import grp
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rv.errors import RvError
from rv.transport import own_folder
from rv.transport.private_directories import require_safe_root

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as two users")

BOB = pwd.getpwnam("daemon")
REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder where everybody may write, as /tmp is."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="rv-root-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def as_bob(script: str, folder: Path) -> int:
    """Run a script as another user."""
    drop = ("setpriv", f"--reuid={BOB.pw_uid}", f"--regid={BOB.pw_gid}", "--clear-groups")
    return subprocess.run([*drop, "bash", "-c", script], cwd=folder, check=False).returncode


@pytest.mark.parametrize("is_behind_link", [False, True])
@pytest.mark.parametrize("is_sticky", [False, True])
def test_a_root_is_refused_where_another_user_can_rename_what_is_above_it(
    scratch: Path, is_behind_link: bool, is_sticky: bool
) -> None:
    """What is refused is what the other user can do: take the folder above the root away."""
    open_folder = scratch / "open"
    root = open_folder / "mine" / "races"
    root.mkdir(parents=True)
    open_folder.chmod(0o1777 if is_sticky else 0o777)
    asked = root
    if is_behind_link:
        asked = scratch / "link"
        asked.symlink_to(root)
    refusal = ""
    try:
        require_safe_root(asked)
    except RvError as error:
        refusal = str(error)
    can_rename = as_bob("mv mine taken", open_folder) == 0
    assert can_rename is not is_sticky
    assert ("others may rename what is in" in refusal) is can_rename


def test_a_link_on_the_way_of_a_link_is_another_users(scratch: Path) -> None:
    """The user's own link leads over a second one, which its owner can turn elsewhere."""
    (scratch / "races").mkdir()
    assert as_bob("ln -s races theirs", scratch) == 0
    (scratch / "mine").symlink_to("theirs")
    with pytest.raises(RvError, match="theirs is a link that belongs to daemon"):
        require_safe_root(scratch / "mine")


def test_links_in_a_circle_are_an_error_of_the_system(scratch: Path) -> None:
    (scratch / "one").symlink_to("two")
    (scratch / "two").symlink_to("one")
    with pytest.raises(OSError, match="symbolic links"):
        require_safe_root(scratch / "one")


@pytest.mark.parametrize(
    ("name", "members", "is_refused"),
    [("root", [], False), ("root", ["daemon"], True), ("lab", [], True)],
)
def test_a_group_of_ones_own_name_and_no_other_member_is_oneself(
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    members: list[str],
    is_refused: bool,
) -> None:
    """As distributions make them, with a umask of 002."""
    group = grp.struct_group((name, "x", 0, members))
    monkeypatch.setattr(grp, "getgrgid", lambda _: group)
    (scratch / "local").mkdir()
    (scratch / "local").chmod(0o775)
    (scratch / "local/races").mkdir()
    if is_refused:
        with pytest.raises(RvError, match="others may rename"):
            require_safe_root(scratch / "local/races")
    else:
        require_safe_root(scratch / "local/races")


@pytest.mark.parametrize("golden", ["single_node.sh", "checkpoint.sh"])
def test_a_job_ends_in_a_race_directory_of_another_user(scratch: Path, golden: str) -> None:
    """One planted there with an environment of its own and a claim that nobody ever writes."""
    plant = """
        umask 0; mkdir -p race/segments race/declined race/output; mkfifo race/claim
        printf 'BASH_ENV=%s\\0' "$PWD/race/evil" >race/environment; echo "touch $PWD/ran" >race/evil
        echo 0123456789abcdef0123456789abcdef >race/nonce"""
    assert as_bob(plant, scratch) == 0
    script = (REPOSITORY / "tests/golden" / golden).read_text(encoding="utf-8")
    script = script.replace("/home/ada/.local/state/rv/races/abcd2345", f"{scratch}/race")
    environment = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
    done = subprocess.run(
        ["bash", "-c", script],
        env=environment, cwd="/", capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == f"rv: {scratch}/race is another user's\n"
    assert not (scratch / "ran").exists()
    assert own_folder.is_own(scratch / "race") is False
