"""Virtual environments on the cluster: found, or built once from a project's lock file by real pip."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rv import sandbox
from tests.slurm.launching import Rv

SIX = "six==1.17.0\n"
BOTH = SIX + "iniconfig==2.3.1\n"
SHOW = 'python -c "import six, sys; print(six.__version__, sys.prefix)"; echo $VIRTUAL_ENV'


@pytest.fixture
def rv(small: sandbox.Sandbox, tmp_path: Path) -> Rv:
    """`rv` where uv is not on PATH, so that pip builds."""
    return Rv(box=small, home=tmp_path)


@pytest.fixture
def project(rv: Rv) -> Path:
    """A folder whose requirements are locked; its name is an odd one."""
    folder = rv.home / "my 'project' $HOME é"
    folder.mkdir()
    (folder / ".git").mkdir()
    (folder / "requirements.txt").write_text(SIX)
    return folder


def built(rv: Rv) -> list[Path]:
    """The environments that are ready."""
    return sorted(path.parent for path in rv.races_root.glob(".venvs-*/*/ready"))


def left(rv: Rv) -> list[str]:
    """Whatever else lies beside them."""
    ready = {path.name for path in built(rv)}
    locks = {f".{name}.lock" for name in ready}
    names = {path.name for path in rv.races_root.glob(".venvs-*/*")}
    return sorted(name for name in names - ready - locks if not name.endswith(".lock"))


def test_it_is_built_once_and_the_command_runs_in_it(rv: Rv, project: Path) -> None:
    """Of the lock file above the current folder; what it took is said, and later that it is there."""
    below = project / "src"
    below.mkdir()
    first = rv("run", "--time", "5m", "--venv", "auto", SHOW, cwd=below)
    assert first.returncode == 0, first.stderr
    (home,) = built(rv)
    assert first.stdout == f"1.17.0 {home}/venv\n{home}/venv\n"
    short = home.name[:6]
    assert f"venv {short}: pip installs requirements.txt on the login node" in first.stderr
    assert f"venv {short} built in " in first.stderr
    assert left(rv) == []
    second = rv("run", "--time", "5m", "--venv", "auto", SHOW, cwd=project)
    assert second.stdout == first.stdout
    assert f"venv {short} is there (requirements.txt)" in second.stderr
    (project / "requirements.txt").write_text(BOTH)
    third = rv(
        "run",
        "--time",
        "5m",
        "--venv",
        "auto",
        "python -m iniconfig || python -c 'import iniconfig'",
        cwd=project,
    )
    assert third.returncode == 0, third.stderr
    assert len(built(rv)) == 2


def test_one_whose_python_is_gone_is_built_anew(rv: Rv, project: Path) -> None:
    """The module or the program that it was made with may have been replaced."""
    (project / "requirements.txt").write_text("")
    show = "readlink $VIRTUAL_ENV/bin/python"
    first = rv("run", "--time", "5m", "--venv", "auto", show, cwd=project)
    (home,) = built(rv)
    for name in ("python", "python3"):
        (home / "venv" / "bin" / name).unlink()
        (home / "venv" / "bin" / name).symlink_to("/nowhere/python3")
    second = rv("run", "--time", "5m", "--venv", "auto", show, cwd=project)
    assert (second.returncode, second.stdout) == (0, first.stdout), second.stderr
    assert built(rv) == [home]


def test_two_at_once_build_once(rv: Rv, project: Path) -> None:
    """The other waits, and uses it."""
    clients = [
        rv.launch("run", "--time", "5m", "--venv", "auto", SHOW, cwd=project) for _ in range(2)
    ]
    ends = [client.communicate(timeout=240) for client in clients]
    assert [client.returncode for client in clients] == [0, 0], ends
    assert sum(" built in " in err for _, err in ends) == 1, ends
    assert ends[0][0] == ends[1][0]
    assert len(built(rv)) == 1
    assert left(rv) == []


def builders(rv: Rv) -> list[int]:
    """The processes of a build: whatever has the folder of environments in its arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if f"{rv.races_root}/.venvs-".encode() in words:
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize("what", ["the client", "all of it"])
def test_a_build_that_is_killed_leaves_nothing_half_made(
    rv: Rv, project: Path, what: str, eventually: Callable[..., None]
) -> None:
    """The next one waits for what still writes there, and uses or builds it anew."""
    client = rv.launch("run", "--time", "5m", "--venv", "auto", SHOW, cwd=project)
    eventually(lambda: list(rv.races_root.glob(".venvs-*/*/venv/bin/python")))
    assert not built(rv)
    client.kill()
    client.communicate()
    if what == "all of it":
        for pid in builders(rv):
            os.kill(pid, signal.SIGKILL)
    done = rv("run", "--time", "5m", "--venv", "auto", SHOW, cwd=project)
    assert done.returncode == 0, done.stderr
    assert (" built in " in done.stderr) is (what == "all of it"), done.stderr
    assert done.stdout.startswith("1.17.0 ")
    assert len(built(rv)) == 1


def test_a_build_that_fails_leaves_nothing_and_says_why(rv: Rv, project: Path) -> None:
    """Nothing is submitted."""
    (project / "requirements.txt").write_text("no-such-package-at-all==1\n")
    done = rv("run", "--time", "5m", "--venv", "auto", SHOW, cwd=project)
    assert done.returncode == 125
    assert "No matching distribution found for no-such-package-at-all" in done.stderr
    assert "hint: nothing is left of it; correct requirements.txt" in done.stderr
    assert not rv.files()
    assert built(rv) == []
    assert left(rv) == []


def test_a_disk_that_is_full_is_named(rv: Rv, project: Path) -> None:
    """The log of the build is on it too, and holds nothing; the room is given back."""
    rv.races_root.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(rv.races_root)]
    subprocess.run(mount, check=True)
    try:
        done = rv("run", "--time", "5m", "--venv", "auto", SHOW, cwd=project)
        assert done.returncode == 125
        assert "cannot be built" in done.stderr
        assert "No space left on device" in done.stderr
        assert "RV_RACE_ROOT=/path" in done.stderr
        assert left(rv) == []
    finally:
        subprocess.run(["umount", str(rv.races_root)], check=True)


def test_hashes_are_held_to(rv: Rv, project: Path) -> None:
    """A wheel that is another than the one that was locked is not installed."""
    lock = project / "requirements.txt"
    lock.write_text(f"six==1.17.0 --hash=sha256:{'0' * 64}\n")
    done = rv("run", "--time", "5m", "--venv", "auto", SHOW, cwd=project)
    assert done.returncode == 125
    assert "hash" in done.stderr.lower()
    assert built(rv) == []


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("poetry.lock", "", "read by poetry alone"),
        ("pyproject.toml", "[project]\nname='x'\n", "does not fix the versions"),
        ("requirements.txt", "-r other.txt\n", "leads to other files"),
        ("requirements.txt", "./here\n", "leads to other files"),
        ("uv.lock", "version = 1\n", "pyproject.toml is not there"),
        ("nothing", "", "no lock file for --venv auto"),
    ],
)
def test_what_fixes_no_versions_is_refused(
    rv: Rv, project: Path, name: str, text: str, says: str
) -> None:
    """Before the cluster is asked, with what to type instead."""
    (project / "requirements.txt").unlink()
    (project / name).write_text(text)
    done = rv("run", "--time", "5m", "--venv", "auto", "true", cwd=project)
    assert done.returncode == 125
    assert says in done.stderr
    assert "hint:" in done.stderr
    assert not rv.files()


def test_uv_lock_needs_uv_there(rv: Rv, project: Path) -> None:
    """pip cannot read it."""
    (project / "uv.lock").write_text('version = 1\nrequires-python = ">=3.11"\n')
    (project / "pyproject.toml").write_text("[project]\nname='x'\nversion='1'\n")
    done = rv("run", "--time", "5m", "--venv", "auto", "true", cwd=project)
    assert done.returncode == 125
    assert "uv.lock is read by uv, which is not on the cluster" in done.stderr
    assert not rv.files()


def test_one_that_is_there_is_used_and_one_that_is_not_is_refused(rv: Rv) -> None:
    """By its path, relative or from the home; those beside it are named."""
    own = rv.home / "envs" / "mine"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", own], check=True)
    show = 'echo $VIRTUAL_ENV; python -c "import sys; print(sys.prefix)"'
    for path in (str(own), "envs/mine"):
        done = rv("run", "--time", "5m", "--venv", path, show)
        assert done.stdout == f"{own}\n{own}\n", done.stderr
    there = replace(rv, more={"HOME": str(rv.home)})
    assert there("run", "--time", "5m", "--venv", "~/envs/mine", show).stdout == f"{own}\n{own}\n"
    races = len(rv.files())
    done = rv("run", "--time", "5m", "--venv", "envs/other", "true")
    assert done.returncode == 125
    assert f"no virtual environment {rv.home}/envs/other on the cluster" in done.stderr
    assert f"there is: {own}" in done.stderr
    assert len(rv.files()) == races


def test_a_conda_environment_is_activated(rv: Rv) -> None:
    """As conda does: its programs first, and what its packages lay into activate.d."""
    env = rv.home / "miniconda3" / "envs" / "deep"
    for folder in ("conda-meta", "bin", "etc/conda/activate.d"):
        (env / folder).mkdir(parents=True)
    (env / "bin" / "tool").write_text("#!/bin/sh\necho the tool of $CONDA_PREFIX\n")
    (env / "bin" / "tool").chmod(0o755)
    (env / "etc" / "conda" / "activate.d" / "a.sh").write_text(
        "export FROM_ACTIVATE=$CONDA_PREFIX\n"
    )
    there = replace(rv, more={"HOME": str(rv.home)})
    done = there("run", "--time", "5m", "--conda", "deep", "tool; echo $FROM_ACTIVATE")
    assert done.stdout == f"the tool of {env}\n{env}\n", done.stderr
    done = there("run", "--time", "5m", "--conda", "shallow", "true")
    assert done.returncode == 125
    assert "no conda environment shallow on the cluster" in done.stderr
    assert f"there is: {env}" in done.stderr


@pytest.fixture(scope="session")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real uv, in a folder with a wheel of six beside it."""
    folder = tmp_path_factory.mktemp("uv")
    pip = [sys.executable, "-m", "pip", "-q"]
    subprocess.run([*pip, "install", "--target", folder, "uv"], check=True)
    subprocess.run(
        [*pip, "download", "--no-deps", "-d", folder / "wheels", "six==1.17.0"], check=True
    )
    return folder


@pytest.mark.parametrize("name", ["uv.lock", "pylock.toml", "requirements.txt"])
def test_uv_builds_where_it_is_there(rv: Rv, project: Path, uv: Path, name: str) -> None:
    """From each kind of lock file that it writes."""
    settings = {
        "PATH": f"{uv}/bin:{rv.environment['PATH']}", "UV_NO_INDEX": "1", "UV_OFFLINE": "1",
        "UV_FIND_LINKS": str(uv / "wheels"), "UV_CACHE_DIR": str(rv.home / "uv-cache"),
    }  # fmt: skip
    there = replace(rv, more=settings)
    (project / "requirements.txt").unlink()
    (project / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["six"]\n'
    )
    subprocess.run(["uv", "lock", "-q"], cwd=project, env=there.environment, check=True)
    if name != "uv.lock":
        subprocess.run(
            ["uv", "export", "-q", "--frozen", "--no-emit-project", "-o", name],
            cwd=project, env=there.environment, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        (project / "uv.lock").unlink()
    done = there("run", "--time", "5m", "--venv", "auto", SHOW, cwd=project)
    assert done.returncode == 0, done.stderr
    (home,) = built(rv)
    assert done.stdout == f"1.17.0 {home}/venv\n{home}/venv\n"
    assert f"uv installs {name}" in done.stderr


def age(home: Path) -> None:
    """Let an environment have been used last 31 days ago."""
    long_ago = time.time() - 31 * 86400
    os.utime(home / "used", (long_ago, long_ago))


def test_what_nobody_uses_is_removed_and_what_a_race_needs_is_not(
    rv: Rv, project: Path, eventually: Callable[..., None]
) -> None:
    """Where another is built, 30 days after the last use."""
    lock = project / "requirements.txt"
    assert rv("run", "--time", "5m", "--venv", "auto", "true", cwd=project).returncode == 0
    (unused,) = built(rv)
    eventually(lambda: rv.state()["state"] == "COMPLETED")
    lock.write_text("iniconfig==2.3.1\n")
    waits = rv(
        "run", "-d", "--time", "5m", "--venv", "auto", "--sbatch", "begin=now+1hour", "true",
        cwd=project,
    )  # fmt: skip
    assert waits.returncode == 0, waits.stderr
    (needed,) = set(built(rv)) - {unused}
    for home in (unused, needed):
        age(home)
    lock.write_text(BOTH)
    assert rv("run", "--time", "5m", "--venv", "auto", "true", cwd=project).returncode == 0
    kept = built(rv)
    assert unused not in kept
    assert needed in kept
    assert not unused.exists()
    assert rv("stop", "--all").returncode == 0


def test_a_dry_run_builds_nothing(rv: Rv, project: Path) -> None:
    """It shows where the environment will be."""
    done = rv("run", "--time", "5m", "--venv", "auto", "--dry-run", "--json", "true", cwd=project)
    assert done.returncode == 0, done.stderr
    assert "/venv/bin" in json.dumps(json.loads(done.stdout))
    assert built(rv) == []
